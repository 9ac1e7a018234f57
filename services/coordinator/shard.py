"""A shard that this run owns: its groups, and a queue of pending writes for each of them.

A group's writes are stored in the order of its operations. A request is answered once its own changes and all earlier
ones are stored. Heartbeats are answered at once, so that a slow store ends no sessions, but never from state that is
not stored yet. If a write is refused, or too large for the metadata store, the group is unloaded and loaded again. If
the outcome of a write stays unknown, the shard is dropped, because only another claim guarantees that the write can no
longer take effect.
"""

from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from itertools import groupby
from typing import cast

import structlog
import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.interface import (
    Delete,
    Get,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Snapshot,
    TooLarge,
    Unchanged,
)
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.signals import Signal
from kafscale.v1.coordinator_pb2 import GroupError as E
from kafscale.v1.coordinator_pb2 import HeartbeatResult, MemberHeartbeat
from services.coordinator.claims import Claim
from services.coordinator.counters import CoordinatorCounters
from services.coordinator.effects import Effects, Now, Reply, Timer
from services.coordinator.groups import Groups
from services.coordinator.pacing import Pacing
from services.coordinator.table import State
from services.coordinator.tickets import NotServed, Tickets
from services.coordinator.timers import Timers
from services.coordinator.writes import Entry, in_order, together, transactions, written_bytes

log = structlog.get_logger()

_FINAL = (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID, E.ILLEGAL_GENERATION)
"""Errors on which a member gives up its membership."""
_NO_TICKET = 0


class _Refused(KafscaleError):
    """The group's header was changed by another writer."""


class _Lost(KafscaleError):
    """The shard was claimed by another run, or claimed again by this one."""


class Shard:
    """The groups of one shard. ``failed`` is called once, when the shard cannot be served any longer."""

    def __init__(
        self,
        claimed: Claim,
        groups: Groups,
        *,
        metadata: MetadataStore,
        namespace: str,
        nursery: trio.Nursery,
        writing: trio.CapacityLimiter,
        pacing: Pacing,
        timers: Timers,
        tickets: Tickets,
        now: Callable[[], Now],
        counters: CoordinatorCounters,
        failed: Callable[["Shard", Exception], None],
    ) -> None:
        self.claimed = claimed
        self.groups = groups
        self.releasing = False
        self.closed = False
        self.damaged: set[str] = set()
        self._key = paths.group_shard_key(namespace, claimed.shard)
        self._metadata = metadata
        self._namespace = namespace
        self._nursery = nursery
        self._writing = writing
        self._pacing = pacing
        self._timers = timers
        self._tickets = tickets
        self._now = now
        self._counters = counters
        self._failed = failed
        self._headers: dict[str, int] = {}  # mod revisions
        self._queues: dict[str, deque[Entry]] = {}
        self._loading: set[str] = set()
        self._idle = Signal()

    async def load(self, snapshot: Snapshot) -> None:
        """Load all groups from a snapshot that was read after the claim."""
        for group_id, items in groupby(snapshot.items, lambda item: paths.parse_group_key(self._namespace, item.key)):
            if self.closed:
                return
            if group_id is not None:
                self._load(group_id, list(items), snapshot.revision)
                await trio.lowlevel.checkpoint()

    def check(self, group_id: str) -> None:
        """Raise NotServed if the group cannot be served now."""
        if group_id in self._loading:
            raise NotServed(E.COORDINATOR_LOAD_IN_PROGRESS)
        if group_id in self.damaged:
            # Retriable, so that clients keep their positions. A final error would make them restart without offsets.
            raise NotServed(E.COORDINATOR_NOT_AVAILABLE)

    @property
    def loading(self) -> bool:
        """Whether a group is being loaded again."""
        return bool(self._loading)

    def storing(self, group_id: str) -> bool:
        return group_id in self._queues

    def delayed_bytes(self, group_id: str) -> int:
        """Return the size of the group's pending writes if it is throttled, else 0."""
        if not self._pacing.wait(group_id, trio.current_time()):
            return 0
        return sum(entry.weight for entry in self._queues.get(group_id, ()))

    def perform(self, group_id: str, effects: Effects) -> None:
        """Apply an operation's effects, after those of the group's earlier operations."""
        self._timers.set(self, group_id, effects.timers)
        self._counters.generations += effects.generations
        queue = self._queues.get(group_id)
        if queue is None:
            if not (effects.writes or effects.sweep):
                self._answer(effects.replies)
                self._forget_dead(group_id)
                return
            queue = self._queues[group_id] = deque()
            self._nursery.start_soon(self._store, group_id, queue)
        entry = Entry.of(effects, paths.GroupKeys(self._namespace, group_id).header)
        self._counters.queued_bytes += entry.weight
        queue.append(entry)

    def beat(self, beat: MemberHeartbeat) -> HeartbeatResult:
        """Return the answer to a heartbeat. Raises NotServed if it is final and may depend on a pending write.

        Pending commits do not change members, so they do not delay the answer to a removed member.
        """
        effects = self.groups.heartbeat(beat, _NO_TICKET, self._now())
        self._timers.set(self, beat.group, effects.timers)
        [reply] = effects.replies
        result = cast(HeartbeatResult, reply.message)
        if result.error in _FINAL and any(entry.alone for entry in self._queues.get(beat.group, ())):
            raise NotServed(E.COORDINATOR_LOAD_IN_PROGRESS)
        return result

    def deadline(self, group_id: str, timer: Timer) -> int | None:
        return self.groups[group_id].deadlines.get(timer) if group_id in self.groups else None

    def expire(self, group_id: str, timer: Timer) -> None:
        self._counters.expired_timers += 1
        self.perform(group_id, self.groups.expire(group_id, timer, self._now()))

    def expire_offsets(self, group_id: str, gone: AbstractSet[bytes]) -> None:
        if group_id in self.groups:
            self.perform(group_id, self.groups.expire_offsets(group_id, self._now(), gone=gone))

    async def quiet(self) -> None:
        """Wait until there are no pending writes."""
        while self._queues and not self.closed:
            await self._idle.wait()

    def close(self, why: NotServed) -> None:
        """Stop storing and answering. Waiting requests are answered with ``why``."""
        if self.closed:
            return
        self.closed = True
        self._timers.forget(self)
        for group_id in list(self._queues):
            self._drop_queue(group_id, why)
        for group_id in list(self.groups):
            self._fail(self.groups.unload(group_id, self._now()).replies, why)

    def _load(self, group_id: str, items: Iterable[KeyValue], revision: int) -> None:
        header = paths.GroupKeys(self._namespace, group_id).header
        stored = list(items)
        try:
            effects = self.groups.load(group_id, [(i.key, i.value) for i in stored], revision, self._now())
        except CorruptData as error:
            log.error("group metadata damaged, refusing requests", group=group_id, reason=str(error))
            self.damaged.add(group_id)
            return
        self._headers[group_id] = next((item.mod_revision for item in stored if item.key == header), 0)
        self.perform(group_id, effects)

    async def _store(self, group_id: str, queue: deque[Entry]) -> None:
        """Store the group's queue until it is empty."""
        sweep: list[str] = []
        try:
            while queue and not self.closed:
                wait = self._pacing.wait(group_id, trio.current_time())
                if wait and not self.releasing:
                    self._counters.delayed_writes += 1
                    await trio.sleep(wait)
                    continue
                batch = together(queue)
                async with self._writing:
                    for part in in_order(batch):
                        await self._write(group_id, part)
                    if self.closed:
                        return
                    for entry in batch:
                        queue.popleft()
                        self._counters.queued_bytes -= entry.weight
                        self._answer(entry.replies)
                        sweep += entry.sweep
                    if not queue:
                        for part in transactions([Delete(key) for key in sweep]):
                            await self._write(group_id, part)
                        sweep = []
        except (_Refused, TooLarge) as error:
            log.error("reloading group", group=group_id, reason=str(error))
            await self._reload(group_id)
        except (_Lost, *STORE_FAILURES) as error:
            self._failed(self, error)
        else:
            self._end_queue(group_id)

    def _end_queue(self, group_id: str) -> None:
        if not self.closed:
            del self._queues[group_id]
            self._forget_dead(group_id)
            self._idle.notify()

    async def _write(self, group_id: str, operations: list[Put | Delete]) -> None:
        """Write one transaction.

        Nothing was written if this raises _Refused, _Lost or TooLarge. The outcome is unknown after Unavailable and
        Refused.
        """
        if self.closed:
            return
        header = paths.GroupKeys(self._namespace, group_id).header
        began = trio.current_time()
        outcome = "unknown"
        compares = [
            Unchanged(self._key, self.claimed.revision),
            Unchanged(header, self._headers.get(group_id, 0)),
        ]
        then: list[Operation] = [*operations]
        try:
            result = await self._metadata.txn(compares, then, [Get(self._key)])
            outcome = "stored" if result.succeeded else "refused"
        except TooLarge:
            outcome = "refused"
            raise
        finally:
            self._counters.writes[outcome] += 1
            self._counters.write_seconds.observe(trio.current_time() - began)
        if not result.succeeded:
            [shard] = result.reads
            if shard is None or shard.mod_revision != self.claimed.revision:
                raise _Lost(f"shard {self.claimed.shard} was claimed again")
            raise _Refused("the group's header was changed by another coordinator")
        self._pacing.wrote(group_id, written_bytes(operations), trio.current_time())
        for operation in operations:
            if operation.key == header:
                self._headers[group_id] = result.revision if isinstance(operation, Put) else 0

    async def _reload(self, group_id: str) -> None:
        if self.closed:
            return
        why = NotServed(E.COORDINATOR_LOAD_IN_PROGRESS)
        self._loading.add(group_id)
        self._drop_queue(group_id, why)
        if group_id in self.groups:
            self._fail(self.groups.unload(group_id, self._now()).replies, why)
        try:
            snapshot = await self._metadata.read_prefix(paths.GroupKeys(self._namespace, group_id).prefix)
        except STORE_FAILURES as error:
            self._failed(self, error)
            return
        self._loading.discard(group_id)
        if not self.closed:
            self._headers.pop(group_id, None)
            self._load(group_id, snapshot.items, snapshot.revision)
            self._idle.notify()

    def _drop_queue(self, group_id: str, why: NotServed) -> None:
        for entry in self._queues.pop(group_id):
            self._counters.queued_bytes -= entry.weight
            self._fail(entry.replies, why)
        self._idle.notify()

    def _forget_dead(self, group_id: str) -> None:
        if group_id in self.groups and self.groups[group_id].state is State.DEAD:
            self.groups.forget(group_id)
            self._headers.pop(group_id, None)

    def _answer(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            self._tickets.settle(reply.ticket, reply.message)

    def _fail(self, replies: Iterable[Reply], why: NotServed) -> None:
        for reply in replies:
            self._tickets.settle(reply.ticket, why)
