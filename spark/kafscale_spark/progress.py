"""Shows the progress of long work in one line that is overwritten. Only for terminals."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import IO

_WIDTH = 110
_EVERY_SECONDS = 1.0


class Ticker:
    """A context manager that shows the text of ``status`` once a second."""

    def __init__(self, status: Callable[[], str], out: IO[str]) -> None:
        self._status = status
        self._out = out
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._out.write("\r" + " " * _WIDTH + "\r")
        self._out.flush()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self._out.write("\r" + self._status()[:_WIDTH].ljust(_WIDTH))
            self._out.flush()


def ticking(status: Callable[[], str], out: IO[str] | None = None) -> AbstractContextManager[None]:
    """Return a `Ticker` if ``out``, by default standard error, is a terminal."""
    stream = sys.stderr if out is None else out
    return Ticker(status, stream) if stream.isatty() else nullcontext()


class Pace:
    """Measures work per second since this object was created."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    def per_second(self, done: float) -> float:
        return done / max(self._clock() - self._since, 1e-9)

    @property
    def seconds(self) -> float:
        return self._clock() - self._since


def amount(count: float) -> str:
    """Format a count: 12,345."""
    return f"{count:,.0f}"


def size(count: float) -> str:
    """Format a number of bytes: 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
