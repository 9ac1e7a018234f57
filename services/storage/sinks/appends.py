"""Append the batches of committed sink epochs to the partitions assigned to this run, each batch once.

For one partition: acquire it; read the sink's record, which says whether the partition still lacks the epoch; skip the
batches that are committed or buffered; append the others to the write buffer in the order of the manifest, as space
allows. The state that commits the records has the progress, and so has the intake entry with them. Once all are
durable, the partition is removed from the record; once that is known, the state drops the progress.
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
from kafscale.signals import Signal
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
"""Partitions appended to concurrently, most of which wait for a commit."""
_SHARE = 4
"""Sinks use at most 1/_SHARE of each buffer limit, so that producers always have space."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_RETRY, _LONGEST_RETRY = 1.0, 60.0
_BEHIND = 0.1
"""Seconds for which the view may lag behind completed work."""

Work = tuple[SinkEpoch, Key]


@dataclass(slots=True)
class _Job:
    """One epoch of a sink: the state that its partitions on this instance share."""

    manifest: SinkManifest | None = None
    reading: trio.Lock = field(default_factory=trio.Lock)
    # Partitions that have all batches and must be removed from the record.
    leaving: set[Key] = field(default_factory=set)
    writing: trio.Lock = field(default_factory=trio.Lock)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a partition's records are not appended. ``lasting``: an operator must fix it."""

    partition: str
    reason: str
    lasting: bool


class SinkAppends:
    """Appends pending epochs while `run` is running.

    ``moved`` waits until any log on this instance moves; ``buffered`` returns the uncommitted bytes of all of them.
    """

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
        # The last delay after a failure for a lasting reason, in seconds.
        self._backoff: dict[Work, float] = {}
        # Bytes of stages that are read and not in a write buffer yet.
        self._loaded = 0
        self._unloaded = Signal()
        self._wake = trio.Event()

    async def run(self) -> None:
        self._nursery.start_soon(call_at_each, self._deps.members.changed, self._wake_up)
        self._nursery.start_soon(call_at_each, self._view.changed, self._wake_up)
        while True:
            self._wake = trio.Event()
            self._begin()
            with trio.move_on_at(min(self._not_before.values(), default=math.inf)):
                await self._wake.wait()

    def taken(self, partition: Partition) -> None:
        """Called after a take-over. Starts to drop progress that is no longer needed."""
        if partition.sinks.known(partition.state):
            self._nursery.start_soon(self._forget_finished, partition)

    def _wake_up(self) -> None:
        self._wake.set()

    def _begin(self) -> None:
        """Start pending work, oldest first, up to the limit of concurrent partitions."""
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
        for work in self._backoff.keys() - pending:
            del self._backoff[work]
        kept = {epoch for epoch, _ in pending | self._active.keys()}
        for epoch in self._jobs.keys() - kept:
            del self._jobs[epoch]

    async def _work(self, work: Work, ref: PartitionRef) -> None:
        # The view may lag behind what was read.
        delay = _BEHIND
        try:
            await self._append_all(work, ref)
            self.troubles.pop(work, None)
            self._backoff.pop(work, None)
        except (NotAvailable, CorruptData, *STORE_FAILURES) as error:
            delay = self._retry_delay(work, lasting=self._report(work, f"{ref.topic}-{ref.partition}", error))
        finally:
            del self._active[work]
            self._not_before[work] = trio.current_time() + delay
            self._wake.set()

    def _retry_delay(self, work: Work, *, lasting: bool) -> float:
        """Return the delay in seconds, which grows each time if only an operator can fix the problem."""
        if not lasting:
            self._backoff.pop(work, None)
            return _RETRY
        seconds = self._backoff[work] = min(2 * self._backoff.get(work, _RETRY / 2), _LONGEST_RETRY)
        return seconds

    def _report(self, work: Work, partition: str, error: KafscaleError) -> bool:
        """Record and log the trouble. Return whether it is lasting."""
        lasting = isinstance(error, CorruptData) or getattr(error, "status", None) == Status.DAMAGED
        trouble, epoch = Trouble(partition, str(error), lasting), work[0]
        if self.troubles.get(work) != trouble:
            self.troubles[work] = trouble
            write = log.error if lasting else log.info
            write(
                "sink records not appended",
                sink=epoch.sink,
                epoch=epoch.epoch,
                partition=partition,
                reason=trouble.reason,
            )
        return lasting

    async def _append_all(self, work: Work, ref: PartitionRef) -> None:
        """Append the epoch to one partition. Raises NotAvailable, MissingStage, Unavailable, Refused: to be retried."""
        epoch, _ = work
        partition = await self._owned.acquire(ref)
        if partition.offline:
            raise NotAvailable(Status.DAMAGED, partition.offline)
        self._active[work] = partition
        while partition.is_recovering and not partition.closed and not partition.offline:
            await self._moved()
        record = await self._waiting_for(epoch, ref)
        if record is None:
            partition.sinks.finish(epoch)
            return
        if not partition.sinks.has_room(epoch, partition.state):
            raise NotAvailable(Status.UNAVAILABLE, "too many other sinks are being appended to the partition")
        job = self._jobs.setdefault(epoch, _Job())
        try:
            total = await self._append_stages(job, record, partition, ref)
        except MissingStage:
            if partition.closed or await self._waiting_for(epoch, ref) is None:
                # Another owner has appended the whole epoch.
                return
            raise
        if await self._durable(partition, epoch, total):
            await self._take_out(job, epoch, ref)
            partition.sinks.finish(epoch)

    async def _waiting_for(self, epoch: SinkEpoch, ref: PartitionRef) -> Sink | None:
        """Return the sink's current record if the partition still lacks the epoch. Raises Unavailable, Refused."""
        record, _ = await read_sink(self._deps.metadata, self._deps.namespace, epoch.sink)
        return record if SinkEpoch.of(record) == epoch and ref in record.remaining else None

    async def _manifest(self, job: _Job, record: Sink) -> SinkManifest:
        async with job.reading:
            if job.manifest is None:
                job.manifest = await read_manifest(self._deps.objects, record)
            return job.manifest

    async def _append_stages(self, job: _Job, record: Sink, partition: Partition, ref: PartitionRef) -> int:
        """Append the missing batches to the partition's buffer. Return how many batches the epoch has for it."""
        manifest, epoch = await self._manifest(job, record), SinkEpoch.of(record)
        stages = next((found.stages for found in manifest.partitions if found.partition == ref), None)
        if not stages:
            raise MissingStage(f"object {record.manifest} has no batches for the partition")
        before = 0
        for stage in stages:
            if partition.sinks.position(epoch, partition.state) < before + stage.batches and _accepts(partition):
                await self._loading(stage.size)
                try:
                    await self._append_stage(epoch, stage, before, partition)
                finally:
                    self._loaded -= stage.size
                    self._unloaded.notify()
            before += stage.batches
        return before

    async def _loading(self, size: int) -> None:
        """Wait until ``size`` more bytes of stages may be in memory. A single stage always may."""
        limit = self._deps.settings.buffer_bytes // _SHARE
        while self._loaded and self._loaded + size > limit:
            await self._unloaded.wait()
        self._loaded += size

    async def _append_stage(
        self, epoch: SinkEpoch, stage: SinkManifest.StagedObject, before: int, partition: Partition
    ) -> None:
        """Append the missing batches of one stage. ``before``: the number of batches in earlier stages of the epoch."""
        body = memoryview(await read_staged(self._deps.objects, stage.key, stage.size, stage.crc))
        batches = [(header, body[position : position + header.size]) for position, header in walk(body)]
        if len(batches) != stage.batches:
            raise MissingStage(f"object {stage.key} has {len(batches)} batches, expected {stage.batches}")
        for number, (header, batch) in enumerate(batches, before + 1):
            if number <= partition.sinks.position(epoch, partition.state):
                continue
            while _accepts(partition) and not self._has_room(partition, len(batch)):
                await self._moved()
            # No await from here on.
            if not _accepts(partition):
                return
            append_time = self._deps.now_ms() if partition.config.log_append_time else None
            base = partition.buffer.append(batch, [(0, header)], log_append_time_ms=append_time)
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
        staged = sum(one.buffer.staged_bytes for one in self._owned)
        if staged and staged + size > settings.buffer_bytes // _SHARE:
            return False
        return not self._buffered() or self._buffered() + size <= settings.buffer_bytes

    async def _durable(self, partition: Partition, epoch: SinkEpoch, total: int) -> bool:
        """Wait until ``total`` batches of the epoch are durable. Return False if a later owner must complete it."""
        while max(committed_batches(partition.state, epoch), partition.buffer.durable_batches(epoch)) < total:
            if partition.closed or partition.offline or partition.sinks.position(epoch, partition.state) < total:
                return False
            await self._moved()
        return True

    async def _take_out(self, job: _Job, epoch: SinkEpoch, ref: PartitionRef) -> None:
        """Remove the partition from the record, together with the others that are waiting for it by then."""
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
        """Delete the objects of an epoch that is in all logs. Those that cannot be deleted now expire later."""
        try:
            manifest = await self._manifest(job, record)
            keys = [stage.key for partition in manifest.partitions for stage in partition.stages]
            await delete_staged(self._deps.objects, self._membership, [*keys, record.manifest])
        except KafscaleError as error:
            log.warning("stages not deleted, they will expire", sink=record.sink, error=str(error))

    async def _forget_finished(self, partition: Partition) -> None:
        """Drop the progress of epochs from the state whose records no longer list the partition."""
        outage = Outage("reading sinks failed, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        for epoch in partition.sinks.known(partition.state):
            while not partition.closed:
                try:
                    if await self._waiting_for(epoch, partition.ref) is None:
                        partition.sinks.finish(epoch)
                    break
                except STORE_FAILURES as error:
                    await outage.pause(error, partition=partition.name)


def _accepts(partition: Partition) -> bool:
    """Return whether the partition accepts appends."""
    return not (partition.closed or partition.moving or partition.offline or partition.is_recovering)
