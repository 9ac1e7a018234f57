"""Giving partitions back, so that their next owners need not wait for the lease's end.

A partition is handed over in this order: no append is taken any more; what is buffered is stored and committed; the
producer snapshot is written; every delete is answered or can land no more; only then the state says that nobody owns
it. Readers are served until that is about to be said. A partition can also be let go of without all that: what waits
for its records is told that they are lost.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale import paths
from kafscale.metadata.interface import Get, MetadataStore, Put, Unchanged
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.objects.interface import ObjectStore
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.counters import StorageCounters
from services.storage.log.partition import Partition
from services.storage.owning.owned import OwnedPartitions

log = structlog.get_logger()

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class HandOver:
    """The steps. ``store`` puts all that a partition has into its state; ``closed`` is told of each epoch's end."""

    def __init__(
        self,
        *,
        metadata: MetadataStore,
        objects: ObjectStore,
        owned: OwnedPartitions,
        namespace: str,
        run_id: str,
        store: Callable[[Partition], Awaitable[None]],
        closed: Callable[[Partition], None],
        counters: StorageCounters,
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._owned = owned
        self._namespace = namespace
        self._run_id = run_id
        self._store = store
        self._closed = closed
        self._counters = counters

    async def prepare(self, partition: Partition) -> None:
        """Refuse appends from now on, and wait until the state can be given back as it is."""
        partition.moving = True
        await self._store(partition)
        await partition.quiet()
        await trio.sleep_until(max(partition.last_unknown_delete + self._objects.settle_seconds, trio.current_time()))

    def end(self, partition: Partition) -> None:
        """End this epoch here: what it still had buffered is lost."""
        if not partition.closed:
            self._owned.drop(partition)
            self._closed(partition)

    async def release(self, partition: Partition) -> None:
        """Give the partition back, its epoch ended, unless somebody else has it already."""
        key = paths.partition_state_key(self._namespace, partition.ref.topic, partition.ref.partition)
        state, revision = partition.state, partition.state_revision
        outage = Outage("release not answered", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while (state.owner, state.epoch) == (self._run_id, partition.epoch):
            free = PartitionState()
            free.CopyFrom(state)
            free.owner, free.unclean = "", partition.may_land(self._objects.settle_seconds)
            try:
                done = await self._metadata.txn(
                    [Unchanged(key, revision)], [Put(key, free.SerializeToString())], [Get(key)]
                )
            except STORE_FAILURES as error:
                await outage.pause(error, partition=partition.name)
                continue
            if done.succeeded:
                self._counters.hand_overs += 1
                log.info("partition released", partition=partition.name, epoch=free.epoch, unclean=free.unclean)
                return
            now = done.reads[0]
            if now is None:
                return
            # A commit whose answer was not waited for may have applied: what it wrote stays.
            state, revision = PartitionState.FromString(now.value), now.mod_revision
