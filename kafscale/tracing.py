"""The tracing interface for code that begins spans or passes them on, independent of the library that exports them.

A *place* is the value of the W3C header ``traceparent`` of a recorded span. It is passed between services in the
metadata of calls, and with each batch of an Append, because these batches belong to several traces. If tracing is off,
there is no `Tracer`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

HEADER = "traceparent"
CURRENT: ContextVar[str] = ContextVar("kafscale_trace", default="")
"""The place that calls of this task, and of tasks that it starts, belong to. Empty if they are not traced."""


class Span(Protocol):
    """A span that has begun."""

    @property
    def place(self) -> str:
        """The parent of the spans that follow."""
        ...

    def end(self, error: str = "") -> None:
        """End the span. ``error`` says what failed."""
        ...


class Tracer(Protocol):
    """Begins spans. No method waits or fails, whether or not spans can be exported."""

    def begin(self, name: str, **attributes: str | int) -> Span | None:
        """Begin the first span of a trace. Return None if the trace is not sampled."""
        ...

    def go_on(self, name: str, place: str, *, links: Sequence[str] = (), **attributes: str | int) -> Span | None:
        """Begin a child span of ``place`` that is linked to ``links``. Return None if ``place`` is invalid."""
        ...


@contextmanager
def within(span: Span | None) -> Iterator[None]:
    """Make ``span`` the current span in this context and end it on exit. If it is None, nothing is traced."""
    if span is None:
        yield
        return
    token = CURRENT.set(span.place)
    try:
        yield
    except BaseException as error:
        span.end(type(error).__name__)
        raise
    finally:
        CURRENT.reset(token)
    span.end()
