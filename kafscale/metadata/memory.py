"""A metadata store in memory with programmable faults, for tests and simulations only."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

import trio

from kafscale.errors import Unavailable
from kafscale.metadata.interface import Event, KeyValue, Operation, Page, Snapshot, TxnResult, Unchanged, Watch
from kafscale.metadata.local import LocalMetadataStore
from kafscale.metadata.state import Limits, State

Method = Literal[
    "get", "read_prefix", "read_page", "txn", "watch", "grant_lease", "keep_alive", "revoke_lease", "compact"
]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Fault:
    """A fault of the next ``times`` calls of ``method`` (any if None) that name a key beginning with ``key``.

    In this order: wait ``delay`` seconds; ``hang`` until cancelled; raise ``before``; do the call; raise ``after``,
    which simulates a lost answer. The method ``watch`` means `Watch.next`.
    """

    method: Method | None = None
    key: str = ""
    times: int = 1
    delay: float = 0
    hang: bool = False
    before: Exception | None = None
    after: Exception | None = None

    def hits(self, method: Method, keys: Sequence[str]) -> bool:
        named = not self.key or any(key.startswith(self.key) for key in keys)
        return self.times > 0 and self.method in (None, method) and named


def lost_answer(method: Method = "txn", *, key: str = "", times: int = 1) -> Fault:
    """Return a fault: the call is done, but its caller gets Unavailable."""
    return Fault(method=method, key=key, times=times, after=Unavailable("the answer was lost"))


def no_answer(method: Method | None = None, *, key: str = "", times: int = 1) -> Fault:
    """Return a fault: the call is not done, and its caller gets Unavailable."""
    return Fault(method=method, key=key, times=times, before=Unavailable("no answer"))


class MemoryMetadataStore(LocalMetadataStore):
    """A store whose data is lost with the object. The first of its ``faults`` that matches a call applies."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__(State(limits=limits), _NoJournal())
        self.faults: list[Fault] = []

    async def get(self, key: str) -> KeyValue | None:
        return await self._call("get", [key], lambda: super(MemoryMetadataStore, self).get(key))

    async def read_prefix(self, prefix: str) -> Snapshot:
        return await self._call("read_prefix", [prefix], lambda: super(MemoryMetadataStore, self).read_prefix(prefix))

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        page = super().read_page
        return await self._call("read_page", [prefix], lambda: page(prefix, after=after, revision=revision))

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        keys = [compare.key for compare in compares] + [operation.key for operation in (*then, *otherwise)]
        return await self._call("txn", keys, lambda: super(MemoryMetadataStore, self).txn(compares, then, otherwise))

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Watch]:
        async with super().watch(prefix, from_revision) as watch:
            yield _FaultyWatch(lambda: self._call("watch", [prefix], watch.next))

    async def grant_lease(self, ttl_seconds: int) -> int:
        return await self._call("grant_lease", [], lambda: super(MemoryMetadataStore, self).grant_lease(ttl_seconds))

    async def keep_alive(self, lease: int) -> int:
        return await self._call("keep_alive", [], lambda: super(MemoryMetadataStore, self).keep_alive(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._call("revoke_lease", [], lambda: super(MemoryMetadataStore, self).revoke_lease(lease))

    async def compact(self, revision: int) -> None:
        await self._call("compact", [], lambda: super(MemoryMetadataStore, self).compact(revision))

    async def _call(self, method: Method, keys: Sequence[str], do: Callable[[], Awaitable[T]]) -> T:
        fault = next((fault for fault in self.faults if fault.hits(method, keys)), None)
        if fault is None:
            return await do()
        fault.times -= 1
        if fault.delay:
            await trio.sleep(fault.delay)
        if fault.hang:
            await trio.sleep_forever()
        if fault.before is not None:
            raise fault.before
        result = await do()
        if fault.after is not None:
            raise fault.after
        return result


@dataclass(frozen=True, slots=True)
class _FaultyWatch:
    call: Callable[[], Awaitable[tuple[Event, ...]]]

    async def next(self) -> tuple[Event, ...]:
        return await self.call()


class _NoJournal:
    """A journal that makes nothing durable, so nothing is gained by several changes at once."""

    at_once = 1

    async def commit(self, changes: Sequence[Sequence[Event]]) -> None:
        pass

    async def revision(self) -> int:
        raise Unavailable("memory has no journal")
