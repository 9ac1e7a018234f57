"""Follow the assignment of partitions: hand over those assigned to other runs and take over those assigned to this one.

Both are bounded in number. Nothing is taken from a live run. A watch, which is open only while this run waits for
partitions, shows when they are released. Partitions that never had an owner are taken over on first use.
"""

import math
from collections.abc import Iterable

import structlog
import trio

from kafscale import paths
from kafscale.metadata.interface import Compacted, MetadataStore, Snapshot
from kafscale.metadata.members import Members
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.metadata.topics import TopicCatalog
from kafscale.signals import Signal
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.log.partition import Partition
from services.storage.owning.handover import HandOver
from services.storage.owning.owned import Key, OwnedPartitions
from services.storage.owning.takeover import NotAvailable

log = structlog.get_logger()

_RETRY = 1.0


class Assignment:
    """Keeps the owned partitions in line with their assignment. Requires that `run` is running."""

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        metadata: MetadataStore,
        members: Members,
        catalog: TopicCatalog,
        owned: OwnedPartitions,
        hand_over: HandOver,
        namespace: str,
        run_id: str,
        moves_in_flight: int,
        timeout: float,
    ) -> None:
        self._nursery = nursery
        self._metadata = metadata
        self._members = members
        self._catalog = catalog
        self._owned = owned
        self._hand_over = hand_over
        self._prefix = paths.partition_states_prefix(namespace)
        self._run_id = run_id
        self._timeout = timeout
        self._releasing = trio.Semaphore(moves_in_flight)
        self._taking = trio.Semaphore(moves_in_flight)
        # Partitions whose take-over failed and is retried later.
        self._again: set[Key] = set()
        # Partitions being released. The scope covers the work for their records before that.
        self._moves: dict[Partition, trio.CancelScope] = {}
        self._everything = self._at_once = False
        self._wake = trio.Event()
        self._released = Signal()

    async def run(self) -> None:
        self._nursery.start_soon(self._follow_members)
        self._nursery.start_soon(self._follow_topics)
        self._nursery.start_soon(self._take_over)
        await self._hand_over_moved()

    def taken(self, partition: Partition | None) -> None:
        """Called when a take-over has ended, with None if it failed."""
        if partition is not None:
            self._drop_deleted([partition])
            if self._is_to_move(partition):
                self._wake.set()
        self._released.notify()

    def holds(self, key: Key) -> bool:
        """Return whether this run owns the partition, is taking it over or is releasing it."""
        return self._owned.busy(key) or any(partition.key == key for partition in self._moves)

    async def hand_over_all(self) -> None:
        """Hand over all partitions regardless of their assignment, without a time limit for each."""
        self._everything = True
        for scope in self._moves.values():
            scope.deadline = math.inf
        await self._wait_until_empty()

    async def release_all(self) -> None:
        """Release all partitions without waiting for records to be stored."""
        self._everything = self._at_once = True
        for scope in self._moves.values():
            scope.cancel()
        await self._wait_until_empty()

    async def _wait_until_empty(self) -> None:
        self._wake.set()
        while self._moves or not self._owned.is_empty:
            await self._released.wait()

    async def _follow_members(self) -> None:
        view = self._members.view
        while True:
            self._wake.set()
            view = await self._members.wait_change(view)

    async def _follow_topics(self) -> None:
        view = self._catalog.view
        while True:
            self._drop_deleted(self._owned)
            view = await self._catalog.wait_change(view)

    async def _hand_over_moved(self) -> None:
        while True:
            self._wake = trio.Event()
            for partition in self._owned:
                if self._is_to_move(partition):
                    await self._releasing.acquire()
                    # The assignment may have changed meanwhile.
                    if self._is_to_move(partition):
                        self._moves[partition] = trio.CancelScope()
                        self._nursery.start_soon(self._move, partition)
                    else:
                        self._releasing.release()
            self._released.notify()
            await self._wake.wait()

    def _is_to_move(self, partition: Partition) -> bool:
        return (
            not partition.closed
            and partition not in self._moves
            and (self._everything or bool(self._owned.elsewhere(partition.key)))
        )

    async def _move(self, partition: Partition) -> None:
        scope = self._moves[partition]
        if self._at_once:
            scope.cancel()
        elif not self._everything:
            scope.deadline = trio.current_time() + self._timeout
        try:
            with scope:
                await self._hand_over.prepare(partition)
            if scope.cancelled_caught:
                log.warning("partition released without storing its buffer", partition=partition.name)
                await self._hand_over.settle(partition)
            self._hand_over.end(partition)
            await self._hand_over.release(partition)
        finally:
            self._moved(partition)
            self._releasing.release()

    def _drop_deleted(self, partitions: Iterable[Partition]) -> None:
        """Drop the partitions whose topics are being deleted. Nothing more of them is stored."""
        for partition in partitions:
            topic = self._catalog.view.by_id.get(partition.topic.id)
            if topic is not None and not topic.live:
                self._hand_over.end(partition)
                if partition not in self._moves:
                    self._moves[partition] = trio.CancelScope()
                    self._nursery.start_soon(self._release_when_quiet, partition)

    async def _release_when_quiet(self, partition: Partition) -> None:
        try:
            with self._moves[partition]:
                await partition.quiet()
            await self._hand_over.release(partition)
        finally:
            self._moved(partition)

    def _moved(self, partition: Partition) -> None:
        del self._moves[partition]
        self._released.notify()

    async def _take_over(self) -> None:
        while True:
            view = self._members.view
            async with trio.open_nursery() as following:
                following.start_soon(self._take_assigned)
                await self._members.wait_change(view)
                following.cancel_scope.cancel()

    async def _take_assigned(self) -> None:
        """Take over the free partitions assigned to this run, and the others as their owners release them."""
        outage = Outage("reading partition states failed, retrying", first=_RETRY, longest=_RETRY)
        while True:
            try:
                snapshot = await self._metadata.read_prefix(self._prefix)
                outage.over()
                awaited = await self._take_free(snapshot)
                if awaited:
                    await self._take_released(awaited, snapshot.revision + 1)
                return
            except Compacted:
                continue
            except STORE_FAILURES as error:
                await outage.pause(error)

    async def _take_free(self, snapshot: Snapshot) -> dict[str, PartitionRef]:
        """Start to take over partitions without a live owner. Return the others by the keys of their states."""
        awaited = {}
        for item in snapshot.items:
            named = paths.parse_partition(self._prefix, item.key)
            state = PartitionState.FromString(item.value)
            if named is None or self._catalog.view.live_by_id(state.topic_id) is None:
                continue
            ref = PartitionRef(topic=named[0], topic_id=state.topic_id, partition=named[1])
            key = (ref.topic_id, ref.partition)
            found = self._owned.get(key)
            if not self._owned.is_assigned(key) or (found is not None and not found.moving):
                continue
            # If the state names this run and the partition is not here, an earlier take-over did not finish.
            if state.owner in self._members.view.by_run_id and (state.owner != self._run_id or found is not None):
                awaited[item.key] = ref
            else:
                await self._start_take_over(ref)
        return awaited

    async def _take_released(self, awaited: dict[str, PartitionRef], revision: int) -> None:
        async with self._metadata.watch(self._prefix, revision) as watch:
            while awaited:
                for event in await watch.next():
                    ref = awaited.get(event.key)
                    if ref is None:
                        continue
                    state = PartitionState.FromString(event.value.value) if event.value else PartitionState()
                    if state.topic_id != ref.topic_id:
                        del awaited[event.key]
                    elif not state.owner:
                        del awaited[event.key]
                        await self._start_take_over(ref)

    async def _start_take_over(self, ref: PartitionRef) -> None:
        if (ref.topic_id, ref.partition) not in self._again:
            await self._taking.acquire()
            self._nursery.start_soon(self._take, ref)

    async def _take(self, ref: PartitionRef) -> None:
        try:
            await self._owned.acquire(ref)
        except NotAvailable as error:
            log.info("partition not taken over", partition=f"{ref.topic}-{ref.partition}", reason=str(error))
            if error.status == Status.UNAVAILABLE:
                self._nursery.start_soon(self._take_later, ref)
        finally:
            self._taking.release()

    async def _take_later(self, ref: PartitionRef) -> None:
        """Retry after a pause and after all waiting ones, so that unavailable partitions do not block the others."""
        key = (ref.topic_id, ref.partition)
        if key in self._again:
            return
        self._again.add(key)
        await trio.sleep(_RETRY)
        await self._taking.acquire()
        self._again.discard(key)
        self._nursery.start_soon(self._take, ref)
