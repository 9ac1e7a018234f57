"""What happened in a simulation, for a person and for comparing two runs: time, actor, event."""

import hashlib
import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import structlog
import trio

_ALARMS = ("a call failed by a defect", "request failed", "connection failed")
_OFFLINE = "partition offline"

_ADDRESS = re.compile("0x[0-9a-f]+")

actor: ContextVar[str] = ContextVar("actor", default="world")
"""Who the running task belongs to; tasks inherit it from who starts them."""


class Trace:
    """Lines in the order in which they happened. While a simulation runs, the product's logs go here too."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, dict[str, Any]]] = []
        # Logged events that tell of a defect, not of trouble outside.
        self.alarms: list[str] = []
        # As alarming, but where reads were wrong.
        self.offline: list[str] = []

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, event: str, *, by: str | None = None, **values: Any) -> None:
        self._lines.append((trio.current_time(), actor.get() if by is None else by, event, values))

    def lines(self) -> list[str]:
        return [
            f"{time:10.6f}  {by:<12}  {event}" + "".join(f"  {name}={value}" for name, value in values.items())
            for time, by, event, values in self._lines
        ]

    def digest(self) -> str:
        """The same for two runs if and only if all that was traced was the same."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()

    @contextmanager
    def capturing_logs(self) -> Iterator[None]:
        """Send structlog's events here, from information upwards."""
        before = structlog.get_config()
        structlog.configure(
            processors=[self._take],
            wrapper_class=structlog.make_filtering_bound_logger(20),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)

    def _take(self, _: Any, level: str, event: MutableMapping[str, Any]) -> str:
        values = {key: _ADDRESS.sub("0x", str(value)) for key, value in event.items()}
        name = values.pop("event")
        if name.startswith(_ALARMS):
            self.alarms.append(f"{name} {values}")
        if name == _OFFLINE:
            self.offline.append(f"{name} {values}")
        self.add(f"[{level}] {name}", **values)
        raise structlog.DropEvent
