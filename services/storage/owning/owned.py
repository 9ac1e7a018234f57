"""The partitions that this run owns. They are taken over when assigned to it, on first use or before."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Refused
from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.members import Members
from kafscale.metadata.outage import Refusal
from kafscale.objects.interface import ObjectStore
from kafscale.topics.configs import TopicConfig, default_values
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.counters import StorageCounters
from services.storage.intake.recovery import IntakeRecovery
from services.storage.intake.register import Register
from services.storage.log.buffer import WriteBuffer
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog, Partition
from services.storage.log.segments import SegmentMap
from services.storage.log.sink_progress import SinkEpoch
from services.storage.owning.offline import OfflineRetries
from services.storage.owning.restoring import Restored
from services.storage.owning.takeover import (
    IntakeUnknown,
    NotAvailable,
    StillOwned,
    TakenOver,
    release_abandoned,
    take_over,
    wait_for_release,
)
from services.storage.reading.finder import Damaged
from services.storage.settings import StorageSettings

log = structlog.get_logger()

Key = tuple[bytes, int]
_REMEMBER_FAILURE = 0.5  # seconds for which a failed take-over is not retried
_MAX_FAILURES = 1000
_CONFIGS_REMEMBERED = 1000
_CROWDED_SECONDS = 0.5
_SAME_TROUBLE = 10.0  # seconds after a failure within which the next take-over counts as a continuation of it


@dataclass(slots=True)
class _Load:
    """A take-over. ``since``: when it began, or the first of a series of failed ones that it continues.

    ``awaited``: names the owner whose hand-over is awaited, if known.
    """

    since: float
    done: trio.Event = field(default_factory=trio.Event)
    awaited: NotAvailable | None = None
    error: NotAvailable | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    since: float
    at: float
    error: NotAvailable

    @property
    def is_recent(self) -> bool:
        """Whether this is still the result for callers. A hand-over by the owner is awaited again each time."""
        return self.error.status != Status.NOT_OWNER and trio.current_time() - self.at < _REMEMBER_FAILURE


class OwnedPartitions:
    """Partitions by topic id and index. A partition is taken over only while `Members` assigns it to this run.

    ``taken`` is called with each partition taken over, and with None after a failed take-over.
    """

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        metadata: MetadataStore,
        members: Members,
        objects: ObjectStore,
        settings: StorageSettings,
        namespace: str,
        run_id: str,
        register: Callable[[], Register],
        intakes: IntakeRecovery,
        restore: Callable[[CommittedLog, PartitionState], Awaitable[Restored]],
        taken: Callable[[Partition | None], None],
        online: Callable[[Partition], None],
        counters: StorageCounters,
    ) -> None:
        self._nursery = nursery
        self._metadata = metadata
        self._members = members
        self._objects = objects
        self._settings = settings
        self._namespace = namespace
        self._run_id = run_id
        self._register = register
        self._intakes = intakes
        self._restore = restore
        self._taken = taken
        self._counters = counters
        self._retries = OfflineRetries(
            nursery,
            restore=self._restore_producers,
            online=online,
            longest_pause=settings.offline_retry_ms / 1000,
            counters=counters,
        )
        self._defaults = default_values(settings)
        # The number of take-overs that wait for others, and until when that counts after the last one.
        self._queued, self._crowded_until = 0, -math.inf
        # Many partitions have the same configs.
        self._config_of = lru_cache(_CONFIGS_REMEMBERED)(lambda items: TopicConfig.of(dict(items), self._defaults))
        self._turns = trio.CapacityLimiter(settings.take_overs_in_flight)
        self._partitions: dict[Key, Partition] = {}
        self._loading: dict[Key, _Load] = {}
        self._failed: dict[Key, _Failure] = {}
        # Partitions whose state may name this run although the take-over failed -> whether a task is finishing it.
        self._unfinished: dict[Key, bool] = {}
        self._refusal = Refusal("take-over failed")
        self._damaged: dict[Key, str] = {}
        self.stopping = False

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    @property
    def loading(self) -> int:
        """The number of take-overs in progress, including those between two attempts."""
        since = trio.current_time() - _SAME_TROUBLE
        return len(self._loading.keys() | {key for key, failed in self._failed.items() if failed.at > since})

    @property
    def is_crowded(self) -> bool:
        """Whether take-overs wait for others, or one did in the last half second."""
        return self._queued > 0 or trio.current_time() < self._crowded_until

    @property
    def is_empty(self) -> bool:
        """Whether this run has no partitions and no take-overs in progress."""
        return not self._partitions and not self._loading

    @property
    def damaged(self) -> list[str]:
        """Why partitions that are assigned to this run cannot be taken over before an operator acts."""
        return [reason for key, reason in self._damaged.items() if self.is_assigned(key)]

    def busy(self, key: Key) -> bool:
        """Return whether this run owns the partition or is taking it over."""
        return key in self._partitions or key in self._loading or key in self._unfinished

    def get(self, key: Key) -> Partition | None:
        return self._partitions.get(key)

    def elsewhere(self, key: Key) -> str:
        """Return the id of the other run that the partition is assigned to; empty if it is this run or none."""
        assigned = self._members.view.owner(*key)
        return assigned.run_id if assigned is not None and assigned.run_id != self._run_id else ""

    def is_assigned(self, key: Key) -> bool:
        """Return whether the partition is assigned to this run."""
        assigned = self._members.view.owner(*key)
        return assigned is not None and assigned.run_id == self._run_id

    def may_acquire(self, ref: PartitionRef) -> bool:
        """Return whether `acquire` can succeed."""
        key = (ref.topic_id, ref.partition)
        return key in self._partitions or self.is_assigned(key)

    async def acquire(self, ref: PartitionRef, *, patience: float = math.inf) -> Partition:
        """Return the partition, after taking it over if necessary. Raises NotAvailable.

        Waits at most KAFSCALE_PARTITION_LOAD_TIMEOUT_MS, and no longer than until the take-over has been tried for
        ``patience`` seconds. The take-over continues after that.
        """
        key = (ref.topic_id, ref.partition)
        found = self._partitions.get(key)
        if found is not None:
            return found
        self._check_assigned(key)
        load = self._loading.get(key) or self._begin(key, ref)
        timeout = self._settings.partition_load_timeout_ms / 1000
        with trio.move_on_at(min(trio.current_time() + timeout, load.since + patience)):
            await load.done.wait()
        found = self._partitions.get(key)
        if found is not None:
            return found
        error = load.error or load.awaited
        if error is not None:
            raise _copy(error)
        raise NotAvailable(Status.UNAVAILABLE, "the partition is still being taken over")

    def _begin(self, key: Key, ref: PartitionRef) -> _Load:
        now, failed = trio.current_time(), self._failed.get(key)
        if failed is not None and failed.is_recent:
            raise _copy(failed.error)
        self._failed.pop(key, None)
        load = self._loading[key] = _Load(now)
        if failed is not None and now - failed.at < _SAME_TROUBLE:
            load.since = failed.since
            load.awaited = failed.error if failed.error.status == Status.NOT_OWNER else None
        self._nursery.start_soon(self._load, key, ref, load)
        return load

    async def has_records(self, ref: PartitionRef) -> bool:
        """Return whether the partition's log has records, owned or not. Raises Unavailable."""
        found = self._partitions.get((ref.topic_id, ref.partition))
        if found is not None:
            return found.log.log_start < found.log.high_watermark
        item = await self._metadata.get(paths.partition_state_key(self._namespace, ref.topic, ref.partition))
        state = PartitionState.FromString(item.value) if item else PartitionState()
        return state.log_start < state.high_watermark

    def drop(self, partition: Partition) -> None:
        """End this epoch here, so that nothing more of it is committed."""
        partition.closed = True
        partition.stop_rewriting()
        if self._partitions.get(partition.key) is partition:
            del self._partitions[partition.key]

    def end(self) -> None:
        """End the run and the epochs of all its partitions."""
        self.stopping = True
        for partition in self:
            self.drop(partition)

    def _check_assigned(self, key: Key) -> None:
        if self.stopping:
            raise NotAvailable(Status.NOT_OWNER, "this instance is stopping", self.elsewhere(key))
        if not self.is_assigned(key) and key not in self._unfinished:
            raise NotAvailable(Status.NOT_OWNER, "the partition is moving to another instance", self.elsewhere(key))

    async def _load(self, key: Key, ref: PartitionRef, load: _Load) -> None:
        try:
            taken = await self._take_over(key, ref, load)
            partition = self._partition(ref, taken)
            if not taken.offline:
                await self._restore_producers(partition)
                if partition.offline:
                    self._retries.begin(partition)
            self._partitions[key] = partition
            self._damaged.pop(key, None)
            self._counters.take_over_seconds.observe(trio.current_time() - load.since)
            self._refusal.over()
            log.info("partition taken over", partition=f"{ref.topic}-{ref.partition}", epoch=taken.state.epoch)
            if partition.offline:
                log.error("partition offline", partition=partition.name, reason=partition.offline)
        except NotAvailable as error:
            load.error = error
            self._note_damage(key, f"{ref.topic}-{ref.partition}", error)
        except KafscaleError as error:
            self._log_failure(error, f"{ref.topic}-{ref.partition}")
            load.error = NotAvailable(Status.UNAVAILABLE, str(error))
        finally:
            if isinstance(load.error, StillOwned) or (load.error and load.error.status != Status.NOT_OWNER):
                self._fail(key, _Failure(load.since, trio.current_time(), load.error))
            self._follow_up(key, ref, load.error)
            del self._loading[key]
            load.done.set()
            self._taken(self._partitions.get(key))

    def _note_damage(self, key: Key, partition: str, error: NotAvailable) -> None:
        """Log, once, that damage or rolled-back metadata prevents a take-over."""
        if error.status != Status.DAMAGED or isinstance(error, IntakeUnknown):
            self._damaged.pop(key, None)
        elif self._damaged.get(key) != str(error):
            self._damaged[key] = str(error)
            log.error("take-over not possible", partition=partition, reason=str(error))

    def _log_failure(self, error: KafscaleError, partition: str) -> None:
        if isinstance(error, Refused):
            self._refusal.report(error, partition=partition)
        else:
            log.warning("take-over failed", partition=partition, error=str(error))

    async def _take_over(self, key: Key, ref: PartitionRef, load: _Load) -> TakenOver:
        """Take the partition over, waiting for a live owner to hand it over. Raises NotAvailable, Unavailable."""
        state_key = paths.partition_state_key(self._namespace, ref.topic, ref.partition)
        deadline = math.inf
        while True:
            try:
                async with self._turn():
                    deadline = min(deadline, trio.current_time() + self._settings.handover_wait_ms / 1000)
                    self._check_assigned(key)
                    return await take_over(
                        self._metadata,
                        self._objects,
                        namespace=self._namespace,
                        register=self._register(),
                        intakes=self._intakes,
                        ref=ref,
                        fencing=partial(self._fencing, key),
                    )
            except StillOwned as held:
                load.awaited = held
                with trio.move_on_at(deadline) as waiting:
                    await wait_for_release(self._metadata, self._members, held, state_key=state_key)
                if waiting.cancelled_caught:
                    raise
                load.awaited = None

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until few enough other take-overs are in progress."""
        try:
            self._turns.acquire_nowait()
        except trio.WouldBlock:
            self._queued += 1
            try:
                await self._turns.acquire()
            finally:
                self._queued -= 1
                self._crowded_until = trio.current_time() + _CROWDED_SECONDS
        try:
            yield
        finally:
            self._turns.release()

    def _fencing(self, key: Key) -> None:
        self._unfinished.setdefault(key, False)

    def _follow_up(self, key: Key, ref: PartitionRef, error: NotAvailable | None) -> None:
        """Make sure that a take-over which failed half-way is finished."""
        if error is None or error.status == Status.NOT_OWNER:
            # This run or another one owns it now.
            self._unfinished.pop(key, None)
        elif self._unfinished.get(key) is False:
            self._unfinished[key] = True
            self._nursery.start_soon(self._finish, key, ref)

    async def _finish(self, key: Key, ref: PartitionRef) -> None:
        """Retry until the take-over succeeds, because no other run can take over while the state names this one."""
        while key in self._unfinished and not self.stopping:
            await trio.sleep(_REMEMBER_FAILURE)
            try:
                await self.acquire(ref)
            except NotAvailable as error:
                if error.status in (Status.UNKNOWN_TOPIC, Status.TOPIC_ID_MISMATCH):
                    await release_abandoned(self._metadata, namespace=self._namespace, run_id=self._run_id, ref=ref)
                    self._unfinished.pop(key, None)

    def _fail(self, key: Key, failure: _Failure) -> None:
        # Bounded. A failure is only needed if the partition is requested again soon.
        if len(self._failed) >= _MAX_FAILURES:
            self._failed.clear()
        self._failed[key] = failure

    def _partition(self, ref: PartitionRef, taken: TakenOver) -> Partition:
        state = taken.state
        last = None
        if state.HasField("last_segment"):
            last = KnownSegment(state.last_segment.base_offset, state.last_segment.size, UNKNOWN_TIME)
        config = self.config_of(taken.topic.configs)
        buffer = WriteBuffer(
            epoch=state.epoch, next_offset=state.high_watermark, segment_bytes=self._segment_bytes(config)
        )
        buffer.recover(taken.tail)
        view = CommittedLog(
            topic=ref.topic,
            topic_id=ref.topic_id,
            partition=ref.partition,
            epochs=taken.history,
            log_start=state.log_start,
            segments_end=state.high_watermark,
            leader_offsets=taken.leader_offsets,
            segments=SegmentMap(state.high_watermark, last, rewritten=taken.rewritten),
            tail=buffer,
        )
        partition = Partition(
            topic=taken.topic,
            ref=PartitionRef(topic=ref.topic, topic_id=ref.topic_id, partition=ref.partition),
            config=config,
            state=state,
            state_revision=taken.state_revision,
            log=view,
            buffer=buffer,
        )
        partition.recovered_end = taken.tail.end
        for _, progress in taken.tail.sinks:
            partition.sinks.appended(SinkEpoch.of(progress), progress.batches)
        partition.offline = taken.offline
        partition.unclean = taken.unclean
        partition.leftovers = taken.leftovers
        partition.taken_at = trio.current_time()
        if taken.rewritten is not None and taken.rewritten.root is not None:
            partition.obsolete = dict.fromkeys(taken.rewritten.root.obsolete, partition.taken_at)
        return partition

    async def _restore_producers(self, partition: Partition) -> None:
        try:
            restored = await self._restore(partition.log, partition.state)
        except Damaged as error:
            # The log can be read, but appends without producer state could be duplicates or out of order.
            partition.offline = str(error)
            return
        if partition.closed or partition.moving:
            # Released with the state unchanged.
            return
        partition.offline = None
        partition.committed_producers = restored.producers
        partition.producers = restored.producers.copy()
        for buffer in partition.buffer.recovered:
            for batch in buffer.sequenced:
                partition.producers.add(batch, restored.arrival_ms)
        # Count what was read, so that a series of failing owners does not make the next restore longer and longer.
        partition.segments_since_snapshot = restored.segments
        partition.oldest_gone = restored.oldest_gone

    def config_of(self, configs: Mapping[str, str]) -> TopicConfig:
        return self._config_of(frozenset(configs.items()))

    def configure(self, partition: Partition, configs: Mapping[str, str]) -> bool:
        """Apply the topic's configs. Return False if they are unchanged."""
        config = self.config_of(configs)
        if config == partition.config:
            return False
        partition.config = config
        partition.buffer.segment_bytes = self._segment_bytes(config)
        return True

    def _segment_bytes(self, config: TopicConfig) -> int:
        # A buffer that fills up before a segment is full would block appends until flush.ms elapses.
        return min(config.segment_bytes, self._settings.partition_buffer_bytes // 4)


def _copy(error: NotAvailable) -> NotAvailable:
    """Return a copy for another caller, because an exception that is raised twice accumulates tracebacks."""
    return NotAvailable(error.status, str(error), error.owner)
