"""Counters of calls, with gRPC's usual metrics: calls started, calls by status code, and durations."""

from collections import Counter
from typing import Any, Literal

import grpc

from kafscale.rpc.methods import Method
from kafscale.telemetry import Family, Histogram

_Side = Literal["server", "client"]


class CallCounters:
    """Counts the calls of a client or a server. A single thread may write, any thread may read.

    Durations are recorded for unary calls only, because the duration of a stream depends on its reader.
    """

    def __init__(self) -> None:
        self._methods: dict[str, Method[Any, Any]] = {}  # by path
        self._started: Counter[str] = Counter()  # by path
        self._ended: Counter[tuple[str, str]] = Counter()  # by path and code
        self._seconds: dict[str, Histogram] = {}  # by path

    def register(self, method: Method[Any, Any]) -> None:
        """Expose ``method`` from now on, even if it is never called."""
        self._methods[method.path] = method
        self._started[method.path] += 0
        self._ended[method.path, grpc.StatusCode.OK.name] += 0
        if not method.streams:
            self._seconds[method.path] = Histogram()

    def began(self, method: Method[Any, Any]) -> None:
        if method.path not in self._methods:
            self.register(method)
        self._started[method.path] += 1

    def ended(self, method: Method[Any, Any], code: grpc.StatusCode, seconds: float) -> None:
        if not method.streams:
            self._seconds[method.path].observe(seconds)
        self._ended[method.path, code.name] += 1

    def families(self, side: _Side) -> list[Family]:
        labels = ("grpc_type", "grpc_service", "grpc_method")
        whose = "received by this process" if side == "server" else "made by this process to other services"
        # Copies, because the writing thread may add keys at the same time.
        return [
            Family(
                f"grpc_{side}_started_total",
                "counter",
                f"The number of calls {whose}.",
                lambda: {self._labels(path): count for path, count in self._started.copy().items()},
                labels,
            ),
            Family(
                f"grpc_{side}_handled_total",
                "counter",
                f"The number of completed calls {whose}, by gRPC status code.",
                lambda: {(*self._labels(path), code): count for (path, code), count in self._ended.copy().items()},
                (*labels, "grpc_code"),
            ),
            Family(
                f"grpc_{side}_handling_seconds",
                "histogram",
                f"The duration of unary calls {whose}.",
                lambda: {self._labels(path): seconds for path, seconds in self._seconds.copy().items()},
                labels,
            ),
        ]

    def _labels(self, path: str) -> tuple[str, str, str]:
        _, service, name = path.split("/")
        return ("server_stream" if self._methods[path].streams else "unary", service, name)
