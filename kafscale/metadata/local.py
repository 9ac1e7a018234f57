"""A metadata store whose state is in this process: `State` made durable by a journal. SQLite and memory are journals.

No task runs in the background. Whoever could notice that a lease ran out ends it: every operation does before it looks,
and a waiting watch wakes for the next deadline.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from kafscale.errors import Unavailable
from kafscale.metadata.interface import (
    Compacted,
    Event,
    KeyValue,
    Operation,
    Page,
    Snapshot,
    TxnResult,
    Unchanged,
    Watch,
)
from kafscale.metadata.state import State, check_size

_PAGE_KEYS = 512


class Journal(Protocol):
    """Where changes are made durable, one after another."""

    async def commit(self, events: Sequence[Event]) -> None:
        """Make one revision's changes durable. Raises Unavailable (outcome unknown); cancelled only before it began."""
        ...

    async def revision(self) -> int:
        """The last durable revision, asked of the medium itself. Raises Unavailable."""
        ...


class LocalMetadataStore:
    """The interface's promises, on a `State` and a `Journal`; changes are made one at a time, under one lock."""

    def __init__(self, state: State, journal: Journal, *, first_lease: int = 1) -> None:
        self._state = state
        self._journal = journal
        self._next_lease = first_lease
        self._lock = trio.Lock()
        self._watchers = trio.lowlevel.ParkingLot()
        # A change whose outcome is unknown: nothing is answered before the journal was asked what became of it.
        self._unsettled: tuple[Event, ...] = ()

    async def get(self, key: str) -> KeyValue | None:
        await self._catch_up()
        return self._state.get(key)

    async def read_prefix(self, prefix: str) -> Snapshot:
        await self._catch_up()
        return Snapshot(self._state.revision, self._state.read_prefix(prefix))

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        await self._catch_up()
        if revision not in (0, self._state.revision):
            raise Compacted(f"revision {revision} was asked for, only {self._state.revision} is kept")
        found = self._state.read_prefix(prefix, after=after, limit=_PAGE_KEYS + 1)
        return Page(self._state.revision, found[:_PAGE_KEYS], more=len(found) > _PAGE_KEYS)

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        check_size(compares, then, otherwise)
        async with self._lock:
            await self._settle_and_expire()
            outcome = self._state.evaluate(compares, then, otherwise)
            await self._commit(outcome.events)
            return outcome.result

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Watch]:
        await trio.lowlevel.checkpoint()
        yield _Cursor(self, prefix, from_revision)

    async def grant_lease(self, ttl_seconds: int) -> int:
        if ttl_seconds < 1:
            raise ValueError("a lease lasts at least one second")
        await self._catch_up()
        lease, self._next_lease = self._next_lease, self._next_lease + 1
        self._state.grant(lease, ttl_seconds, trio.current_time())
        return lease

    async def keep_alive(self, lease: int) -> int:
        await self._catch_up()
        return self._state.keep_alive(lease, trio.current_time())

    async def revoke_lease(self, lease: int) -> None:
        async with self._lock:
            await self._settle_and_expire()
            await self._end_lease(lease)

    async def compact(self, revision: int) -> None:
        await self._catch_up()
        self._state.compact(revision)

    async def next_changes(self, prefix: str, from_revision: int) -> tuple[tuple[Event, ...], int]:
        """Wait for the next batch under ``prefix``; also where to go on from. Raises Compacted, Unavailable."""
        while True:
            await self._catch_up()
            batch, from_revision = self._state.changes(prefix, from_revision)
            if batch:
                return batch, from_revision
            # No await between the look above and parking: a change in between cannot be missed. A lease granted later
            # matters only with its first key, and that commit wakes this.
            with trio.move_on_at(self._state.next_deadline()):
                await self._watchers.park()

    async def _catch_up(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._unsettled or self._state.next_deadline() <= trio.current_time():
            async with self._lock:
                await self._settle_and_expire()

    async def _settle_and_expire(self) -> None:
        if self._unsettled:
            applied = await self._journal.revision() > self._state.revision
            events, self._unsettled = self._unsettled, ()
            if applied:
                self._apply(events)
        for lease in self._state.due(trio.current_time()):
            await self._end_lease(lease)

    async def _end_lease(self, lease: int) -> None:
        await self._commit(self._state.end_of_lease(lease))
        self._state.forget_lease(lease)

    async def _commit(self, events: tuple[Event, ...]) -> None:
        if not events:
            return
        try:
            await self._journal.commit(events)
        except Unavailable:
            self._unsettled = events
            raise
        self._apply(events)

    def _apply(self, events: tuple[Event, ...]) -> None:
        self._state.apply(events)
        self._watchers.unpark_all()


class _Cursor:
    """A watch is a place in the history: it has no queue to overflow, and a slow reader ends with Compacted."""

    def __init__(self, store: LocalMetadataStore, prefix: str, from_revision: int) -> None:
        self._store = store
        self._prefix = prefix
        self._from_revision = from_revision

    async def next(self) -> tuple[Event, ...]:
        batch, self._from_revision = await self._store.next_changes(self._prefix, self._from_revision)
        return batch
