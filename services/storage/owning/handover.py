"""Hand partitions over, so that their next owners need not wait for the lease to expire.

The order is: refuse appends; store and commit the buffer; write the producer snapshot; wait until every delete is
answered or can no longer take effect; only then write a state without owner. Readers are served until that last step.
A partition can also be released without the steps before it; those waiting for its records then get an error. Durable
records that are only in the intake stay there as the tail that the released state names.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale import paths
from kafscale.metadata.interface import Get, MetadataStore, Put, Unchanged
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.objects.interface import ObjectStore
from kafscale.v1.metadata_pb2 import IntakeTail, PartitionState
from services.storage.counters import StorageCounters
from services.storage.log.partition import Partition
from services.storage.owning.owned import OwnedPartitions

log = structlog.get_logger()

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class HandOver:
    """The steps of a hand-over.

    ``store`` stores a partition's buffer and commits it; ``closed`` is called when an epoch ends.
    """

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
        moved: Callable[[], Awaitable[None]],
        counters: StorageCounters,
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._owned = owned
        self._namespace = namespace
        self._run_id = run_id
        self._store = store
        self._closed = closed
        self._moved = moved
        self._counters = counters

    async def prepare(self, partition: Partition) -> None:
        """Refuse appends from now on, and wait until the partition can be released cleanly."""
        partition.moving = True
        partition.stop_rewriting()
        await self._store(partition)
        await partition.quiet()
        await trio.sleep_until(max(partition.last_unknown_delete + self._objects.settle_seconds, trio.current_time()))

    async def settle(self, partition: Partition) -> None:
        """Wait until no intake object with its records is on its way, so that it is known what is durable."""
        while partition.in_chain:
            await self._moved()

    def end(self, partition: Partition) -> None:
        """End this epoch here. Records that are still buffered are lost."""
        if not partition.closed:
            self._owned.drop(partition)
            self._closed(partition)

    async def release(self, partition: Partition) -> None:
        """Release the partition, whose epoch has ended, unless another run already owns it."""
        key = paths.partition_state_key(self._namespace, partition.ref.topic, partition.ref.partition)
        state, revision = partition.state, partition.state_revision
        outage = Outage("release not answered", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while (state.owner, state.epoch) == (self._run_id, partition.epoch):
            free = PartitionState()
            free.CopyFrom(state)
            free.owner, free.unclean = "", partition.may_land(self._objects.settle_seconds)
            await self.settle(partition)
            end = partition.log.high_watermark
            if end > max(free.high_watermark, partition.recovered_end):
                free.tail.CopyFrom(IntakeTail(run_id=self._run_id, epoch=free.epoch, end=end))
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
            # A commit whose response was not awaited may have been applied; keep what it wrote.
            state, revision = PartitionState.FromString(now.value), now.mod_revision
