"""How far long work is, on a terminal: one line that is written anew. Elsewhere nothing is shown."""

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
    """Shows what ``tell`` says once a second while it is entered."""

    def __init__(self, tell: Callable[[], str], out: IO[str]) -> None:
        self._tell = tell
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
            self._out.write("\r" + self._tell()[:_WIDTH].ljust(_WIDTH))
            self._out.flush()


def ticking(tell: Callable[[], str], out: IO[str] | None = None) -> AbstractContextManager[None]:
    """A `Ticker` where ``out``, standard error by itself, is a terminal."""
    shown = sys.stderr if out is None else out
    return Ticker(tell, shown) if shown.isatty() else nullcontext()


class Pace:
    """What was done per second since it was made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()

    def per_second(self, done: float) -> float:
        return done / max(self._clock() - self._since, 1e-9)

    @property
    def seconds(self) -> float:
        return self._clock() - self._since


def amount(count: float) -> str:
    """12,345"""
    return f"{count:,.0f}"


def size(count: float) -> str:
    """Bytes as a person says them: 1.5 GB."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
