"""Follows to whom partitions are given: hands over what others are to have, takes over what this run is to have.

Both are bounded in number. Nothing is taken from a live run; what a run gives back is seen by a watch that is kept only
while this run waits for something. Partitions that never had an owner are taken over on first use.
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
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.log.partition import Partition
from services.storage.owning.handover import HandOver
from services.storage.owning.owned import Key, OwnedPartitions
from services.storage.owning.takeover import NotAvailable

log = structlog.get_logger()

_RETRY = 1.0


class Assignment:
    """`run` must be running."""

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
        self._giving = trio.Semaphore(moves_in_flight)
        self._taking = trio.Semaphore(moves_in_flight)
        # Partitions that could not be had just now, and wait until it is their turn again.
        self._again: set[Key] = set()
        # Partitions being given back; the scope is around what is done for their records before.
        self._moves: dict[Partition, trio.CancelScope] = {}
        self._everything = self._at_once = False
        self._wake = trio.Event()
        self._given_back = trio.Event()

    async def run(self) -> None:
        self._nursery.start_soon(self._follow_members)
        self._nursery.start_soon(self._follow_topics)
        self._nursery.start_soon(self._take_over)
        await self._give_away()

    def taken(self, partition: Partition | None) -> None:
        """A take-over has ended; None: without success."""
        if partition is not None:
            self._give_up_doomed([partition])
            if self._is_to_move(partition):
                self._wake.set()
        self._tell_given_back()

    def holds(self, key: Key) -> bool:
        """Whether this run has the partition, is taking it over or giving it back."""
        return self._owned.busy(key) or any(partition.key == key for partition in self._moves)

    async def give_all(self) -> None:
        """Hand over everything, whoever it is given to, without a time limit for each."""
        self._everything = True
        for scope in self._moves.values():
            scope.deadline = math.inf
        await self._nothing_left()

    async def let_go_of_all(self) -> None:
        """Give everything back without waiting for records to be stored."""
        self._everything = self._at_once = True
        for scope in self._moves.values():
            scope.cancel()
        await self._nothing_left()

    async def _nothing_left(self) -> None:
        self._wake.set()
        while self._moves or not self._owned.nothing_left:
            await self._given_back.wait()

    async def _follow_members(self) -> None:
        view = self._members.view
        while True:
            self._wake.set()
            view = await self._members.wait_change(view)

    async def _follow_topics(self) -> None:
        view = self._catalog.view
        while True:
            self._give_up_doomed(self._owned)
            view = await self._catalog.wait_change(view)

    async def _give_away(self) -> None:
        while True:
            self._wake = trio.Event()
            for partition in self._owned:
                if self._is_to_move(partition):
                    await self._giving.acquire()
                    # The members may be others by now.
                    if self._is_to_move(partition):
                        self._moves[partition] = trio.CancelScope()
                        self._nursery.start_soon(self._move, partition)
                    else:
                        self._giving.release()
            self._tell_given_back()
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
                log.warning("partition given back without what was buffered", partition=partition.name)
            self._hand_over.end(partition)
            await self._hand_over.release(partition)
        finally:
            self._moved(partition)
            self._giving.release()

    def _give_up_doomed(self, partitions: Iterable[Partition]) -> None:
        """Their topics are being deleted: nothing of them is stored any more."""
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
        self._tell_given_back()

    def _tell_given_back(self) -> None:
        self._given_back.set()
        self._given_back = trio.Event()

    async def _take_over(self) -> None:
        while True:
            view = self._members.view
            async with trio.open_nursery() as following:
                following.start_soon(self._take_what_is_given)
                await self._members.wait_change(view)
                following.cancel_scope.cancel()

    async def _take_what_is_given(self) -> None:
        """Take over what is free of what this run is given, and the rest as its owners give it back."""
        outage = Outage("partitions are looked at later", first=_RETRY, longest=_RETRY)
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
        """Begin to take over what no live run has; gives the others by their states' keys."""
        awaited = {}
        for item in snapshot.items:
            named = paths.parse_partition(self._prefix, item.key)
            state = PartitionState.FromString(item.value)
            if named is None or self._catalog.view.live_by_id(state.topic_id) is None:
                continue
            ref = PartitionRef(topic=named[0], topic_id=state.topic_id, partition=named[1])
            key = (ref.topic_id, ref.partition)
            found = self._owned.get(key)
            if not self._owned.given(key) or (found is not None and not found.moving):
                continue
            # What is this run's own and not here was lost on the way.
            if state.owner in self._members.view.by_run_id and (state.owner != self._run_id or found is not None):
                awaited[item.key] = ref
            else:
                await self._start_taking(ref)
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
                        await self._start_taking(ref)

    async def _start_taking(self, ref: PartitionRef) -> None:
        if (ref.topic_id, ref.partition) not in self._again:
            await self._taking.acquire()
            self._nursery.start_soon(self._take, ref)

    async def _take(self, ref: PartitionRef) -> None:
        try:
            await self._owned.acquire(ref)
        except NotAvailable as error:
            log.info("partition not taken over", partition=f"{ref.topic}-{ref.partition}", reason=str(error))
            if error.status == Status.UNAVAILABLE:
                self._nursery.start_soon(self._take_again, ref)
        finally:
            self._taking.release()

    async def _take_again(self, ref: PartitionRef) -> None:
        """After a pause and behind all that wait already: what stays unavailable keeps no place from the others."""
        key = (ref.topic_id, ref.partition)
        if key in self._again:
            return
        self._again.add(key)
        await trio.sleep(_RETRY)
        await self._taking.acquire()
        self._again.discard(key)
        self._nursery.start_soon(self._take, ref)
