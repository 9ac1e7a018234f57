"""The events of a simulation (time, actor, event), for people and to compare two runs."""

import hashlib
import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import structlog
import trio

_ALARMS = ("call failed with an unexpected error", "request failed", "connection failed")
_OFFLINE = "partition offline"

_ADDRESS = re.compile("0x[0-9a-f]+")

WRONG_SECONDS = 3.0
"""The time for which a wrong read can explain a process's report about objects, because it reads them again."""

actor: ContextVar[str] = ContextVar("actor", default="world")
"""The process of the running task. Tasks inherit it from the task that starts them."""


class Trace:
    """Events in order. During a simulation, they include the log entries of the product."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, dict[str, Any]]] = []
        # Logged events that indicate a defect, not an external fault.
        self.alarms: list[str] = []
        # When each machine last received wrong bytes or an incomplete listing.
        self._wrong_reads: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, event: str, *, by: str | None = None, **values: Any) -> None:
        self._lines.append((trio.current_time(), actor.get() if by is None else by, event, values))

    def read_wrongly(self, process: str) -> None:
        """Record that the process received a wrong result."""
        self._wrong_reads[_machine(process)] = trio.current_time()

    def may_be_wrong(self, process: str) -> bool:
        """Return whether a recent wrong read can explain a report of the process about objects."""
        since = self._wrong_reads.get(_machine(process))
        return since is not None and trio.current_time() - since <= WRONG_SECONDS

    def lines(self) -> list[str]:
        return [
            f"{time:10.6f}  {by:<12}  {event}" + "".join(f"  {name}={value}" for name, value in values.items())
            for time, by, event, values in self._lines
        ]

    def digest(self) -> str:
        """Return a digest, which is equal for two runs if and only if their traces are equal."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()

    @contextmanager
    def capturing_logs(self) -> Iterator[None]:
        """Add structlog's events from level info on to this trace."""
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
        if name.startswith(_ALARMS) or (name == _OFFLINE and not self.may_be_wrong(actor.get())):
            self.alarms.append(f"{name} {values}")
        self.add(f"[{level}] {name}", **values)
        raise structlog.DropEvent


def _machine(process: str) -> str:
    """Return the machine in a process name, which also has the number of starts and an optional part."""
    return process.partition(".")[0]
