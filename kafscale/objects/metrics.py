"""The wrapper next to a store, inside ``retry.py``, that reports each single request and its outcome.

So a retried request counts as often as S3 sees and bills it, and retries do not hide failures from health.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import trio

from kafscale.errors import Refused, Unavailable
from kafscale.objects.interface import (
    MAX_KEYS,
    Body,
    Object,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
)
from kafscale.telemetry import Family, Histogram, by_label

_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (ObjectNotFound, "not_found"),
    (PreconditionFailed, "precondition_failed"),
    (Unavailable, "unavailable"),
    (Refused, "refused"),
    (trio.Cancelled, "cancelled"),
)
OUTCOMES = {"ok", "error", *(name for _, name in _OUTCOMES)}
ANSWERS = ("ok", "not_found", "precondition_failed")
"""The outcomes of requests that the store has served."""
WITH_BODIES = ("put_if_absent", "replace_if_match", "get", "get_range")
"""The operations that transfer bytes of objects."""


class Request:
    """An operation of ``ObjectStore``. ``size`` is the bytes of objects to store or read, as far as known."""

    __slots__ = ("error", "kind", "outcome", "seconds", "size", "started")

    def __init__(self, kind: str, size: int, started: float) -> None:
        self.kind = kind
        self.size = size
        self.started = started
        self.seconds = 0.0
        self.outcome = "ok"  # one of OUTCOMES; "error" is any error without a name of its own
        self.error = ""


class Recorder(Protocol):
    """Receives the start and the end of each request."""

    def began(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...


class OperationCounters:
    """A ``Recorder`` that counts in memory."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # by kind and outcome
        self.transferred_bytes: Counter[str] = Counter()  # by kind
        self.seconds: dict[str, Histogram] = {}  # by kind
        self.in_flight = 0

    def began(self, request: Request) -> None:
        self.in_flight += 1

    def ended(self, request: Request) -> None:
        self.in_flight -= 1
        self.requests[request.kind, request.outcome] += 1
        histogram = self.seconds.get(request.kind)
        if histogram is None:
            histogram = self.seconds[request.kind] = Histogram()
        histogram.observe(request.seconds)
        if request.outcome == "ok" and request.size:
            self.transferred_bytes[request.kind] += request.size

    def totals(self) -> dict[str, int]:
        """Return totals for a log line: requests by kind, failed ones by kind and outcome, and bytes by kind."""
        totals: Counter[str] = Counter()
        for (kind, outcome), count in self.requests.items():
            totals[kind] += count
            if outcome != "ok":
                totals[f"{kind}_{outcome}"] += count
        return dict(totals) | {f"{kind}_bytes": size for kind, size in self.transferred_bytes.items()}

    def families(self) -> list[Family]:
        return [
            Family(
                "kafscale_s3_requests_total",
                "counter",
                "The number of requests to the object store. Each retry is counted.",
                lambda: {labels: count for labels, count in self.requests.items()},  # noqa: C416 - its type widens
                ("operation", "outcome"),
            ),
            Family(
                "kafscale_s3_request_seconds",
                "histogram",
                "The duration of requests to the object store.",
                lambda: {(kind,): histogram for kind, histogram in self.seconds.items()},
                ("operation",),
            ),
            Family(
                "kafscale_s3_bytes_total",
                "counter",
                "The number of bytes of objects that were stored (puts) and read (gets).",
                lambda: by_label(self.transferred_bytes, WITH_BODIES),
                ("operation",),
            ),
            Family(
                "kafscale_s3_requests_in_flight",
                "gauge",
                "The number of requests to the object store that are not answered yet.",
                lambda: {(): self.in_flight},
            ),
        ]


class MeteredObjectStore:
    """Forwards all operations and reports them to ``recorders``. ``clock`` is monotonic, in seconds."""

    def __init__(
        self, inner: ObjectStore, *recorders: Recorder, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._inner = inner
        self._recorders = recorders
        self._clock = clock

    @property
    def settle_seconds(self) -> float:
        return self._inner.settle_seconds

    @property
    def clock_skew_seconds(self) -> float | None:
        return self._inner.clock_skew_seconds

    def now(self) -> float:
        return self._inner.now()

    async def put_if_absent(self, key: str, body: Body, *, send_seconds: float = 0.0) -> str:
        with self._measured("put_if_absent", len(body)):
            return await self._inner.put_if_absent(key, body, send_seconds=send_seconds)

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        with self._measured("replace_if_match", len(body)):
            return await self._inner.replace_if_match(key, body, etag)

    async def get(self, key: str) -> Object:
        with self._measured("get") as request:
            found = await self._inner.get(key)
            request.size = len(found.body)
            return found

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._measured("get_range", length) as request:
            found = await self._inner.get_range(key, start, length)
            request.size = len(found)
            return found

    async def head(self, key: str) -> ObjectInfo:
        with self._measured("head"):
            return await self._inner.head(key)

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        with self._measured("list_from"):
            return await self._inner.list_from(prefix, start_after, limit)

    async def delete_many(self, keys: Iterable[str], *, dated: float | None = None, unused: bool = False) -> None:
        with self._measured("delete_many"):
            await self._inner.delete_many(keys, dated=dated, unused=unused)

    def _measured(self, kind: str, size: int = 0) -> "_Measured":
        return _Measured(Request(kind, size, self._clock()), self._recorders, self._clock)


class _Measured:
    """A context in which a request is made. Provides the request. A class, because generators cost more."""

    __slots__ = ("_clock", "_recorders", "_request")

    def __init__(self, request: Request, recorders: Sequence[Recorder], clock: Callable[[], float]) -> None:
        self._request = request
        self._recorders = recorders
        self._clock = clock

    def __enter__(self) -> Request:
        for recorder in self._recorders:
            recorder.began(self._request)
        return self._request

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        request = self._request
        if error is not None:
            request.outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "error")
            request.error = str(error)
        request.seconds = self._clock() - request.started
        for recorder in self._recorders:
            recorder.ended(request)
