"""What happened in a simulation, for a person and for comparing two runs: time, actor, event."""

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
"""For so long one bad read may explain what a process says of objects: it reads them a second time."""

actor: ContextVar[str] = ContextVar("actor", default="world")
"""Who the running task belongs to; tasks inherit it from who starts them."""


class Trace:
    """Lines in the order in which they happened. While a simulation runs, the product's logs go here too."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, dict[str, Any]]] = []
        # Logged events that tell of a defect, not of trouble outside.
        self.alarms: list[str] = []
        # When each machine was last given bytes, or a lack of objects, that the bucket does not have.
        self._wrong_reads: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, event: str, *, by: str | None = None, **values: Any) -> None:
        self._lines.append((trio.current_time(), actor.get() if by is None else by, event, values))

    def read_wrongly(self, process: str) -> None:
        """The process was given what the bucket does not have."""
        self._wrong_reads[_machine(process)] = trio.current_time()

    def may_be_wrong(self, process: str) -> bool:
        """Whether what the process says of objects may come from what it was given wrongly a while ago."""
        since = self._wrong_reads.get(_machine(process))
        return since is not None and trio.current_time() - since <= WRONG_SECONDS

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
        if name.startswith(_ALARMS) or (name == _OFFLINE and not self.may_be_wrong(actor.get())):
            self.alarms.append(f"{name} {values}")
        self.add(f"[{level}] {name}", **values)
        raise structlog.DropEvent


def _machine(process: str) -> str:
    """Names of processes are made of it, of how often it was started, and of what runs there besides."""
    return process.partition(".")[0]
