"""Appends what committed epochs of sinks consist of to the partitions that this run is given, each batch once.

For one partition: it is had (taken over if need be); then the sink's record is read, which says whether the partition
still lacks anything; what its state says is committed, or its buffers hold, is passed over; the rest goes into its
write buffer, in the manifest's order, as room allows. The state that commits the records says how far they go. Only
when it says that all are in, the partition is taken out of the record; only when that is known, the state forgets.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
import trio

from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.follow import call_at_each
from kafscale.metadata.membership import Membership
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.records.batch import walk
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import Sink, SinkManifest
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.log.sink_progress import SinkEpoch, committed_batches
from services.storage.owning.owned import Key, OwnedPartitions
from services.storage.owning.takeover import NotAvailable
from services.storage.sinks.records import (
    MissingStage,
    SinkView,
    key_of,
    read_manifest,
    read_sink,
    read_staged,
    take_out,
)
from services.storage.sinks.staging import delete_staged

log = structlog.get_logger()

_MAX_AT_A_TIME = 256
"""Partitions that epochs are appended to; most of them wait for their commit."""
_SHARE = 4
"""Of each bound on buffers sinks fill one part in so many, so that producers always have room."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_RETRY, _LONGEST_RETRY = 1.0, 60.0
_BEHIND = 0.1
"""For so long the view may show what is done already."""

Work = tuple[SinkEpoch, Key]


@dataclass(slots=True)
class _Job:
    """One epoch of a sink: what its partitions here share."""

    manifest: SinkManifest | None = None
    reading: trio.Lock = field(default_factory=trio.Lock)
    # Partitions that have all of it and are to be taken out of the record.
    leaving: set[Key] = field(default_factory=set)
    writing: trio.Lock = field(default_factory=trio.Lock)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a partition does not get its records now. ``lasting``: it will not without help."""

    partition: str
    reason: str
    lasting: bool


class SinkAppends:
    """`run` must be running. ``moved`` waits until any log here moves; ``buffered`` is what all hold uncommitted."""

    def __init__(
        self,
        deps: Dependencies,
        membership: Membership,
        owned: OwnedPartitions,
        view: SinkView,
        *,
        nursery: trio.Nursery,
        appended: Callable[[Partition, int, int], None],
        moved: Callable[[], Awaitable[None]],
        buffered: Callable[[], int],
    ) -> None:
        self._deps = deps
        self._membership = membership
        self._owned = owned
        self._view = view
        self._nursery = nursery
        self._appended = appended
        self._moved = moved
        self._buffered = buffered
        self._jobs: dict[SinkEpoch, _Job] = {}
        self._active: dict[Work, Partition | None] = {}
        self.troubles: dict[Work, Trouble] = {}
        self._not_before: dict[Work, float] = {}
        # For how long it was left alone when it last failed for a lasting reason.
        self._left_alone: dict[Work, float] = {}
        # Bytes of stages that are read and not in a buffer yet.
        self._loaded = 0
        self._unloaded = trio.Event()
        self._wake = trio.Event()

    async def run(self) -> None:
        self._nursery.start_soon(call_at_each, self._deps.members.changed, self._look_again)
        self._nursery.start_soon(call_at_each, self._view.changed, self._look_again)
        while True:
            self._wake = trio.Event()
            self._begin()
            with trio.move_on_at(min(self._not_before.values(), default=math.inf)):
                await self._wake.wait()

    def taken(self, partition: Partition) -> None:
        """It was taken over: see whether its state says of any sink what is of no use any more."""
        if partition.state.sinks:
            self._nursery.start_soon(self._forget_finished, partition)

    def _look_again(self) -> None:
        self._wake.set()

    def _begin(self) -> None:
        """Start what is pending here, the oldest first, as much as may be under way."""
        pending: set[Work] = set()
        now = trio.current_time()
        self._not_before = {work: at for work, at in self._not_before.items() if at > now}
        for record in self._view.pending():
            epoch = SinkEpoch.of(record)
            for ref in record.remaining:
                work = epoch, key_of(ref)
                if not self._owned.is_assigned(work[1]):
                    continue
                pending.add(work)
                waits = work in self._active or work in self._not_before
                if not waits and len(self._active) < _MAX_AT_A_TIME:
                    self._active[work] = None
                    self._nursery.start_soon(self._work, work, ref)
        for work in self.troubles.keys() - pending:
            del self.troubles[work]
        for work in self._left_alone.keys() - pending:
            del self._left_alone[work]
        kept = {epoch for epoch, _ in pending | self._active.keys()}
        for epoch in self._jobs.keys() - kept:
            del self._jobs[epoch]

    async def _work(self, work: Work, ref: PartitionRef) -> None:
        # The view may lag behind what is found.
        again_in = _BEHIND
        try:
            await self._append_all(work, ref)
            self.troubles.pop(work, None)
            self._left_alone.pop(work, None)
        except (NotAvailable, CorruptData, *STORE_FAILURES) as error:
            again_in = self._again_in(work, lasting=self._tell(work, f"{ref.topic}-{ref.partition}", error))
        finally:
            del self._active[work]
            self._not_before[work] = trio.current_time() + again_in
            self._wake.set()

    def _again_in(self, work: Work, *, lasting: bool) -> float:
        """Seconds: longer each time where only a person can mend it."""
        if not lasting:
            self._left_alone.pop(work, None)
            return _RETRY
        seconds = self._left_alone[work] = min(2 * self._left_alone.get(work, _RETRY / 2), _LONGEST_RETRY)
        return seconds

    def _tell(self, work: Work, partition: str, error: KafscaleError) -> bool:
        """Gives whether the trouble is a lasting one."""
        lasting = isinstance(error, CorruptData) or getattr(error, "status", None) == Status.DAMAGED
        trouble, epoch = Trouble(partition, str(error), lasting), work[0]
        if self.troubles.get(work) != trouble:
            self.troubles[work] = trouble
            tell = log.error if lasting else log.info
            tell(
                "a sink's records wait", sink=epoch.sink, epoch=epoch.epoch, partition=partition, reason=trouble.reason
            )
        return lasting

    async def _append_all(self, work: Work, ref: PartitionRef) -> None:
        """Raises NotAvailable, MissingStage, Unavailable, Refused: to be tried again."""
        epoch, _ = work
        partition = await self._owned.acquire(ref)
        if partition.offline:
            raise NotAvailable(Status.DAMAGED, partition.offline)
        self._active[work] = partition
        record = await self._waiting_for(epoch, ref)
        if record is None:
            partition.sinks.finish(epoch)
            return
        if not partition.sinks.has_room(epoch, partition.state):
            raise NotAvailable(Status.UNAVAILABLE, "other sinks are appended to the partition")
        job = self._jobs.setdefault(epoch, _Job())
        try:
            total = await self._append_stages(job, record, partition, ref)
        except MissingStage:
            if partition.closed or await self._waiting_for(epoch, ref) is None:
                # Another owner has appended it all.
                return
            raise
        if await self._committed(partition, epoch, total):
            await self._take_out(job, epoch, ref)
            partition.sinks.finish(epoch)

    async def _waiting_for(self, epoch: SinkEpoch, ref: PartitionRef) -> Sink | None:
        """The sink's record as it is now, if the epoch lacks the partition by that. Raises Unavailable, Refused."""
        record, _ = await read_sink(self._deps.metadata, self._deps.namespace, epoch.sink)
        return record if SinkEpoch.of(record) == epoch and ref in record.remaining else None

    async def _manifest(self, job: _Job, record: Sink) -> SinkManifest:
        async with job.reading:
            if job.manifest is None:
                job.manifest = await read_manifest(self._deps.objects, record)
            return job.manifest

    async def _append_stages(self, job: _Job, record: Sink, partition: Partition, ref: PartitionRef) -> int:
        """Put what is not there yet into the partition's buffer; gives how many batches the epoch has for it."""
        manifest, epoch = await self._manifest(job, record), SinkEpoch.of(record)
        stages = next((found.stages for found in manifest.partitions if found.partition == ref), None)
        if not stages:
            raise MissingStage(f"object {record.manifest} has nothing for the partition")
        before = 0
        for stage in stages:
            if partition.sinks.position(epoch, partition.state) < before + stage.batches and _takes(partition):
                await self._loading(stage.size)
                try:
                    await self._append_stage(epoch, stage, before, partition)
                finally:
                    self._loaded -= stage.size
                    self._unloaded.set()
                    self._unloaded = trio.Event()
            before += stage.batches
        return before

    async def _loading(self, size: int) -> None:
        """Wait until so much more of stages may be in memory; one always may."""
        most = self._deps.settings.buffer_bytes // _SHARE
        while self._loaded and self._loaded + size > most:
            await self._unloaded.wait()
        self._loaded += size

    async def _append_stage(
        self, epoch: SinkEpoch, stage: SinkManifest.StagedObject, before: int, partition: Partition
    ) -> None:
        """What is not there yet of it; ``before``: batches of the epoch that lie in stages before this one."""
        body = memoryview(await read_staged(self._deps.objects, stage.key, stage.size, stage.crc))
        batches = [body[position : position + header.size] for position, header in walk(body)]
        if len(batches) != stage.batches:
            raise MissingStage(f"object {stage.key} has {len(batches)} batches, not {stage.batches}")
        for number, batch in enumerate(batches, before + 1):
            if number <= partition.sinks.position(epoch, partition.state):
                continue
            while _takes(partition) and not self._has_room(partition, len(batch)):
                await self._moved()
            # Nothing waits from here on.
            if not _takes(partition):
                return
            append_time = self._deps.now_ms() if partition.config.log_append_time else None
            base = partition.buffer.append(batch, log_append_time_ms=append_time)
            partition.buffer.note_staged(epoch, number, len(batch))
            partition.sinks.appended(epoch, number)
            self._deps.counters.sink_batches += 1
            self._appended(partition, len(batch), partition.buffer.next_offset - base)

    def _has_room(self, partition: Partition, size: int) -> bool:
        settings, buffer = self._deps.settings, partition.buffer
        if buffer.staged_bytes and buffer.staged_bytes + size > settings.partition_buffer_bytes // _SHARE:
            return False
        if buffer.uncommitted_bytes and buffer.uncommitted_bytes + size > settings.partition_buffer_bytes:
            return False
        staged = sum(one.buffer.staged_bytes for one in set(self._active.values()) if one is not None)
        if staged and staged + size > settings.buffer_bytes // _SHARE:
            return False
        return not self._buffered() or self._buffered() + size <= settings.buffer_bytes

    async def _committed(self, partition: Partition, epoch: SinkEpoch, total: int) -> bool:
        """Wait until the log has so many batches of the epoch; False: that is for a later owner to see to."""
        while committed_batches(partition.state, epoch) < total:
            if partition.closed or partition.offline or partition.sinks.position(epoch, partition.state) < total:
                return False
            await self._moved()
        return True

    async def _take_out(self, job: _Job, epoch: SinkEpoch, ref: PartitionRef) -> None:
        """Take the partition out of the record, with all others here that are to leave it by then."""
        key = key_of(ref)
        job.leaving.add(key)
        async with job.writing:
            if key not in job.leaving:
                return
            leaving = set(job.leaving)
            record = await take_out(self._deps.metadata, self._deps.namespace, epoch, leaving)
            job.leaving -= leaving
        if record is not None and not record.remaining:
            log.info("sink applied", sink=epoch.sink, epoch=epoch.epoch)
            self._nursery.start_soon(self._delete_applied, job, record)

    async def _delete_applied(self, job: _Job, record: Sink) -> None:
        """All logs have it: what it consists of can go. What stays because a store fails is the collector's."""
        try:
            manifest = await self._manifest(job, record)
            keys = [stage.key for partition in manifest.partitions for stage in partition.stages]
            await delete_staged(self._deps.objects, self._membership, [*keys, record.manifest])
        except KafscaleError as error:
            log.warning("stages are left to expire", sink=record.sink, error=str(error))

    async def _forget_finished(self, partition: Partition) -> None:
        """Let the state forget the epochs whose records do not wait for the partition any more."""
        outage = Outage("progress of sinks is looked at later", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        for epoch in [SinkEpoch.of(progress) for progress in partition.state.sinks]:
            while not partition.closed:
                try:
                    if await self._waiting_for(epoch, partition.ref) is None:
                        partition.sinks.finish(epoch)
                    break
                except STORE_FAILURES as error:
                    await outage.pause(error, partition=partition.name)


def _takes(partition: Partition) -> bool:
    """Whether appends may go into the partition's buffer."""
    return not (partition.closed or partition.moving or partition.offline)
