"""Counts what callers asked of a store and what they got: the outermost wrapper, so repeats count as one operation."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

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

T = TypeVar("T")

_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (ObjectNotFound, "not_found"),
    (PreconditionFailed, "precondition_failed"),
    (Unavailable, "unavailable"),
    (Refused, "refused"),
    (trio.Cancelled, "cancelled"),
)


class Recorder(Protocol):
    """Where the figures go."""

    def operation(self, kind: str, outcome: str, seconds: float) -> None:
        """One operation (named as in ``ObjectStore``) ended.

        ``outcome``: ok, not_found, precondition_failed, unavailable, refused, cancelled, or error for anything else.
        """
        ...

    def transferred(self, kind: str, size: int) -> None:
        """``size`` bytes of objects were stored (puts) or read (gets)."""
        ...


class OperationCounters:
    """A ``Recorder`` that adds up in memory."""

    def __init__(self) -> None:
        self.operations: Counter[tuple[str, str]] = Counter()  # by kind and outcome
        self.transferred_bytes: Counter[str] = Counter()  # by kind
        self.seconds: dict[str, float] = {}  # by kind, all operations added up

    def operation(self, kind: str, outcome: str, seconds: float) -> None:
        self.operations[kind, outcome] += 1
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds

    def transferred(self, kind: str, size: int) -> None:
        self.transferred_bytes[kind] += size

    def totals(self) -> dict[str, int]:
        """For a log line: operations by kind, those that did not end well by kind and outcome, and bytes by kind."""
        totals: Counter[str] = Counter()
        for (kind, outcome), count in self.operations.items():
            totals[kind] += count
            if outcome != "ok":
                totals[f"{kind}_{outcome}"] += count
        return dict(totals) | {f"{kind}_bytes": size for kind, size in self.transferred_bytes.items()}


class MeteredObjectStore:
    """Passes everything on and tells ``recorder``; ``clock`` gives seconds, of any origin, that never go back."""

    def __init__(self, inner: ObjectStore, recorder: Recorder, clock: Callable[[], float] = trio.current_time) -> None:
        self._inner = inner
        self._recorder = recorder
        self._clock = clock

    @property
    def settle_seconds(self) -> float:
        return self._inner.settle_seconds

    async def put_if_absent(self, key: str, body: Body) -> str:
        etag = await self._timed("put_if_absent", self._inner.put_if_absent(key, body))
        self._recorder.transferred("put_if_absent", len(body))
        return etag

    async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
        new_etag = await self._timed("replace_if_match", self._inner.replace_if_match(key, body, etag))
        self._recorder.transferred("replace_if_match", len(body))
        return new_etag

    async def get(self, key: str) -> Object:
        found = await self._timed("get", self._inner.get(key))
        self._recorder.transferred("get", len(found.body))
        return found

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        body = await self._timed("get_range", self._inner.get_range(key, start, length))
        self._recorder.transferred("get_range", len(body))
        return body

    async def head(self, key: str) -> ObjectInfo:
        return await self._timed("head", self._inner.head(key))

    async def list_from(self, prefix: str, start_after: str = "", limit: int = MAX_KEYS) -> list[ObjectInfo]:
        return await self._timed("list_from", self._inner.list_from(prefix, start_after, limit))

    async def delete_many(self, keys: Iterable[str]) -> None:
        await self._timed("delete_many", self._inner.delete_many(keys))

    async def _timed(self, kind: str, operation: Awaitable[T]) -> T:
        start = self._clock()
        outcome = "ok"
        try:
            return await operation
        except BaseException as error:
            outcome = next((name for kind_of, name in _OUTCOMES if isinstance(error, kind_of)), "error")
            raise
        finally:
            self._recorder.operation(kind, outcome, self._clock() - start)
