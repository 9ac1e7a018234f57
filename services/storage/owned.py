"""The partitions that this run owns: taken over on first use, let go of in order."""

from collections.abc import Awaitable, Callable, Iterator, Mapping

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.interface import MetadataStore, Put, Unchanged
from kafscale.objects.interface import ObjectStore
from kafscale.topics.configs import TopicConfig, default_values
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.buffer import WriteBuffer
from services.storage.finder import Damaged
from services.storage.partition import CommittedLog, Partition
from services.storage.producers import ProducerTable
from services.storage.segments import UNKNOWN_TIME, KnownSegment, SegmentMap
from services.storage.settings import StorageSettings
from services.storage.takeover import NotAvailable, TakenOver, take_over

log = structlog.get_logger()

Key = tuple[bytes, int]
_REMEMBER_FAILURE = 0.5  # seconds for which a failed take-over is not tried again


class OwnedPartitions:
    """Partitions by topic id and index; start-up touches none of them."""

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        metadata: MetadataStore,
        objects: ObjectStore,
        settings: StorageSettings,
        namespace: str,
        run_id: str,
        restore: Callable[[CommittedLog, PartitionState], Awaitable[ProducerTable]],
    ) -> None:
        self._nursery = nursery
        self._metadata = metadata
        self._objects = objects
        self._settings = settings
        self._namespace = namespace
        self._run_id = run_id
        self._restore = restore
        self._defaults = default_values(
            compression_type=settings.compression_codec,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
        )
        self._partitions: dict[Key, Partition] = {}
        self._loading: dict[Key, trio.Event] = {}
        self._failed: dict[Key, tuple[float, NotAvailable]] = {}
        self.stopping = False

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, key: Key) -> Partition | None:
        return self._partitions.get(key)

    async def acquire(self, ref: PartitionRef) -> Partition:
        """The partition, taken over if need be. Raises NotAvailable; waits no longer than the setting says."""
        key = (ref.topic_id, ref.partition)
        found = self._partitions.get(key)
        if found is not None:
            return found
        failed = self._failed.get(key)
        if failed and trio.current_time() - failed[0] < _REMEMBER_FAILURE:
            raise NotAvailable(failed[1].status, str(failed[1]))
        if self.stopping:
            raise NotAvailable(Status.NOT_OWNER, "this instance is stopping")
        self._failed.pop(key, None)
        with trio.move_on_after(self._settings.partition_load_timeout_ms / 1000):
            await self._loaded(key, ref)
        found = self._partitions.get(key)
        if found is not None:
            return found
        failed = self._failed.get(key)
        if failed is not None:
            raise NotAvailable(failed[1].status, str(failed[1]))
        raise NotAvailable(Status.UNAVAILABLE, "the partition is still being taken over")

    async def has_records(self, ref: PartitionRef) -> bool:
        """Whether there is anything in the partition's log, owned or not. Raises Unavailable."""
        found = self._partitions.get((ref.topic_id, ref.partition))
        if found is not None:
            return found.log.log_start < found.log.committed_end
        item = await self._metadata.get(paths.partition_state_key(self._namespace, ref.topic, ref.partition))
        state = PartitionState.FromString(item.value) if item else PartitionState()
        return state.log_start < state.committed_end

    def drop(self, partition: Partition) -> None:
        """This epoch is over here: nothing of it is committed any more."""
        partition.closed = True
        if partition.buffer.in_flight == 0:
            partition.idle.set()
        if self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]

    async def _loaded(self, key: Key, ref: PartitionRef) -> None:
        event = self._loading.get(key)
        if event is None:
            event = self._loading[key] = trio.Event()
            self._nursery.start_soon(self._load, key, ref, event)
        await event.wait()

    async def _load(self, key: Key, ref: PartitionRef, event: trio.Event) -> None:
        try:
            taken = await take_over(
                self._metadata, self._objects, namespace=self._namespace, run_id=self._run_id, ref=ref
            )
            partition = self._partition(ref, taken)
            if not taken.offline:
                await self._restore_producers(partition)
            self._partitions[key] = partition
            log.info("partition taken over", partition=f"{ref.topic}-{ref.partition}", epoch=taken.state.epoch)
            if partition.offline:
                log.error("partition offline", partition=partition.name, reason=partition.offline)
        except NotAvailable as error:
            self._fail(key, error)
        except KafscaleError as error:
            log.warning("take-over failed", partition=f"{ref.topic}-{ref.partition}", error=str(error))
            self._fail(key, NotAvailable(Status.UNAVAILABLE, str(error)))
        finally:
            del self._loading[key]
            event.set()

    def _fail(self, key: Key, error: NotAvailable) -> None:
        # Bounded: what is not asked for again soon is of no use.
        if len(self._failed) >= 1000:
            self._failed.clear()
        self._failed[key] = (trio.current_time(), error)

    def _partition(self, ref: PartitionRef, taken: TakenOver) -> Partition:
        state = taken.state
        last = None
        if state.HasField("last_segment"):
            last = KnownSegment(state.last_segment.base_offset, state.last_segment.size, UNKNOWN_TIME)
        view = CommittedLog(
            topic=ref.topic,
            topic_id=ref.topic_id,
            partition=ref.partition,
            epochs=taken.history,
            log_start=state.log_start,
            committed_end=state.committed_end,
            segments=SegmentMap(state.committed_end, last),
        )
        buffer = WriteBuffer(
            epoch=state.epoch,
            next_offset=state.committed_end,
            # A buffer that fills up before a segment is full would stand still until the interval is over.
            segment_bytes=min(self._settings.segment_bytes, self._settings.partition_buffer_bytes // 4),
        )
        partition = Partition(
            topic=taken.topic,
            ref=PartitionRef(topic=ref.topic, topic_id=ref.topic_id, partition=ref.partition),
            config=self.config_of(taken.topic.configs),
            state=state,
            state_revision=taken.state_revision,
            log=view,
            buffer=buffer,
        )
        partition.offline = taken.offline
        partition.unclean = taken.unclean
        partition.leftovers = taken.leftovers
        partition.taken_at = trio.current_time()
        return partition

    async def _restore_producers(self, partition: Partition) -> None:
        try:
            partition.committed_producers = await self._restore(partition.log, partition.state)
        except Damaged as error:
            # What is left can be read; writing on could repeat or reorder what producers sent.
            partition.offline = str(error)
        partition.producers = partition.committed_producers.copy()

    def config_of(self, configs: Mapping[str, str]) -> TopicConfig:
        return TopicConfig.of(configs, self._defaults)

    async def release_all(self, on_release: Callable[[Partition], None]) -> None:
        """Give every partition back, so that the next owner need not wait for the lease's end."""
        for partition in self:
            self.drop(partition)
            on_release(partition)
            if partition.last_unknown_request + self._objects.settle_seconds > trio.current_time():
                # Its request may still land: the next owner has to wait as for a dead one's.
                continue
            state = PartitionState()
            state.CopyFrom(partition.state)
            state.owner = ""
            former = state.producer_snapshot
            partition.refer(state)
            key = paths.partition_state_key(self._namespace, partition.ref.topic, partition.ref.partition)
            try:
                await self._metadata.txn(
                    [Unchanged(key, partition.state_revision)], [Put(key, state.SerializeToString())]
                )
                if former and former != state.producer_snapshot:
                    await self._objects.delete_many([former])
            except KafscaleError as error:
                log.warning("partition not released", partition=partition.name, error=str(error))
