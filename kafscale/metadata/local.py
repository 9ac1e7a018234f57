"""A metadata store whose state is in this process: a `State` made durable by a journal, in SQLite or in memory.

Transactions that wait while the journal is busy become durable together.

No task runs in the background. Expired leases are ended by every operation before it reads the state, and by waiting
watches, which wake at the next deadline.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.interface import (
    Compacted,
    Event,
    KeyValue,
    LeaseNotFound,
    Operation,
    Page,
    Snapshot,
    TxnResult,
    Unchanged,
    Watch,
)
from kafscale.metadata.state import Pending, State, check_size

_PAGE_KEYS = 512


class Journal(Protocol):
    """Makes changes durable, one call after another. ``at_once``: the maximum number of revisions of a call."""

    at_once: int

    async def commit(self, changes: Sequence[Sequence[Event]]) -> None:
        """Make the changes of consecutive revisions durable, all or none. Raises Unavailable if the outcome is unknown.

        It can be cancelled only before it has begun.
        """
        ...

    async def revision(self) -> int:
        """Return the last durable revision, read from the medium itself. Raises Unavailable."""
        ...


@dataclass(slots=True, eq=False)
class _Waiting:
    """A transaction, and its result or error when it has ended."""

    compares: Sequence[Unchanged]
    then: Sequence[Operation]
    otherwise: Sequence[Operation]
    outcome: TxnResult | KafscaleError | None = None


@dataclass(slots=True, eq=False)
class _Watcher:
    """A watch that waits for changes under ``prefix``. There are none before ``from_revision``."""

    prefix: str
    from_revision: int
    changed: trio.Event

    def applied(self, changes: Sequence[Sequence[Event]], revision: int) -> None:
        """Called when ``changes`` were applied, the last of them with ``revision``."""
        if self.changed.is_set():
            return
        if any(event.key.startswith(self.prefix) for events in changes for event in events):
            self.changed.set()
        else:
            # So that the history that it has not seen stays short, whatever changes elsewhere.
            self.from_revision = max(self.from_revision, revision + 1)


class LocalMetadataStore:
    """A `MetadataStore` on a `State` and a `Journal`. Whoever holds its lock makes changes, also those of others."""

    def __init__(self, state: State, journal: Journal, *, first_lease: int = 1) -> None:
        self._state = state
        self._journal = journal
        self._next_lease = first_lease
        self._lock = trio.Lock()
        # Transactions that no call of the journal has begun with, in the order in which they wait for the lock.
        self._waiting: deque[_Waiting] = deque()
        self._watchers: dict[_Watcher, None] = {}
        # Changes whose outcome is unknown. No operation returns until the journal has been asked for it.
        self._unsettled: list[tuple[Event, ...]] = []

    async def get(self, key: str) -> KeyValue | None:
        await self._catch_up()
        return self._state.get(key)

    async def read_prefix(self, prefix: str) -> Snapshot:
        await self._catch_up()
        return Snapshot(self._state.revision, self._state.read_prefix(prefix))

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        await self._catch_up()
        if revision not in (0, self._state.revision):
            raise Compacted(f"revision {revision} was requested, but only {self._state.revision} is kept")
        found = self._state.read_prefix(prefix, after=after, limit=_PAGE_KEYS + 1)
        return Page(self._state.revision, found[:_PAGE_KEYS], more=len(found) > _PAGE_KEYS)

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        check_size(compares, then, otherwise)
        own = _Waiting(compares, then, otherwise)
        self._waiting.append(own)
        try:
            async with self._lock:
                if own.outcome is None:
                    await self._settle_and_expire()
                    await self._commit_with(own)
        finally:
            if own.outcome is None and own in self._waiting:
                self._waiting.remove(own)
        if isinstance(own.outcome, TxnResult):
            return own.outcome
        raise own.outcome or AssertionError("a transaction has no outcome")

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Watch]:
        await trio.lowlevel.checkpoint()
        yield _Cursor(self, prefix, from_revision)

    async def grant_lease(self, ttl_seconds: int) -> int:
        if ttl_seconds < 1:
            raise ValueError("a lease must last at least one second")
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
        """Wait for the next batch under ``prefix``; return it and the revision to continue from.

        Raises Compacted, Unavailable.
        """
        while True:
            await self._catch_up()
            batch, from_revision = self._state.changes(prefix, from_revision)
            if batch:
                return batch, from_revision
            # There is no await between the check above and the wait, so no change is missed. A lease granted later
            # matters only once it has a key under the prefix, and the commit of that key wakes this task.
            watcher = _Watcher(prefix, from_revision, trio.Event())
            self._watchers[watcher] = None
            try:
                with trio.move_on_at(self._state.next_deadline()):
                    await watcher.changed.wait()
            finally:
                del self._watchers[watcher]
            from_revision = watcher.from_revision

    async def _catch_up(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._unsettled or self._state.next_deadline() <= trio.current_time():
            async with self._lock:
                await self._settle_and_expire()

    async def _commit_with(self, own: _Waiting) -> None:
        """Commit ``own`` and then others that wait, as many as the journal takes at once."""
        # A transaction before it may be cancelled and not know it yet.
        self._waiting.remove(own)
        self._waiting.appendleft(own)
        pending, committed = Pending(), list[tuple[_Waiting, TxnResult]]()
        while self._waiting and len(committed) < self._journal.at_once:
            one = self._waiting.popleft()
            try:
                outcome = self._state.evaluate(one.compares, one.then, one.otherwise, pending)
            except LeaseNotFound as error:
                one.outcome = error
                continue
            pending.add(outcome.events)
            committed.append((one, outcome.result))
        try:
            await self._commit(pending.changes)
        except Unavailable as error:
            for one, _ in committed:
                one.outcome = Unavailable(str(error))
        except BaseException:
            # The journal has not begun, for example because this task is cancelled.
            self._waiting.extendleft(one for one, _ in reversed(committed))
            raise
        else:
            for one, result in committed:
                one.outcome = result

    async def _settle_and_expire(self) -> None:
        if self._unsettled:
            applied = await self._journal.revision() > self._state.revision
            changes, self._unsettled = self._unsettled, []
            if applied:
                self._apply(changes)
        for lease in self._state.due(trio.current_time()):
            await self._end_lease(lease)

    async def _end_lease(self, lease: int) -> None:
        events = self._state.end_of_lease(lease)
        await self._commit([events] if events else [])
        self._state.forget_lease(lease)

    async def _commit(self, changes: list[tuple[Event, ...]]) -> None:
        if not changes:
            return
        try:
            await self._journal.commit(changes)
        except Unavailable:
            self._unsettled = changes
            raise
        self._apply(changes)

    def _apply(self, changes: list[tuple[Event, ...]]) -> None:
        for events in changes:
            self._state.apply(events)
        for watcher in self._watchers:
            watcher.applied(changes, self._state.revision)


class _Cursor:
    """A watch is a position in the history, so no queue can overflow. A reader that is too slow gets Compacted."""

    def __init__(self, store: LocalMetadataStore, prefix: str, from_revision: int) -> None:
        self._store = store
        self._prefix = prefix
        self._from_revision = from_revision

    async def next(self) -> tuple[Event, ...]:
        batch, self._from_revision = await self._store.next_changes(self._prefix, self._from_revision)
        return batch
