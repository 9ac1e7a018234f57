"""Traces: what those use who begin spans or pass them on, without knowing who collects them.

A *place* is the text of the W3C header ``traceparent`` of a span that is recorded. It goes from service to service in
the metadata of calls, and with each batch of an Append, which are of several traces. Where nothing is traced there is
no `Tracer`, and nobody asks for more than that.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

HEADER = "traceparent"
CURRENT: ContextVar[str] = ContextVar("kafscale_trace", default="")
"""The place that calls are made for by this task, and by those that it starts; empty: they are not traced."""


class Span(Protocol):
    """A step that has begun."""

    @property
    def place(self) -> str:
        """What the next steps go on from."""
        ...

    def end(self, error: str = "") -> None:
        """It is over; ``error``: what failed."""
        ...


class Tracer(Protocol):
    """Begins spans. Nothing here waits or fails, whether spans are collected or not."""

    def begin(self, name: str, **attributes: str | int) -> Span | None:
        """The first span of a trace; None: this one is not recorded."""
        ...

    def go_on(self, name: str, place: str, *, links: Sequence[str] = (), **attributes: str | int) -> Span | None:
        """A span below ``place``, which it serves together with ``links``; None: that is no place."""
        ...


@contextmanager
def within(span: Span | None) -> Iterator[None]:
    """A context around what is done for ``span``: it ends with that. None: for nobody."""
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
