"""One run of the storage service: everything that exists for the lifetime of one lease."""

import structlog
import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.interface import LeaseNotFound
from kafscale.metadata.membership import Membership
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.metadata.topic_values import NEWEST_STATE_FORMAT, REWRITE_STATE_FORMAT
from kafscale.process.version import kafscale_version
from kafscale.signals import Signal
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import Member, PartitionState
from services.storage.dependencies import Dependencies
from services.storage.intake.intake import Intake
from services.storage.intake.register import Register
from services.storage.log.buffer import Trigger
from services.storage.log.commit import Commit
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import CommittedLog, Partition
from services.storage.log.producer_clock import ProducerClock
from services.storage.owning.assignment import Assignment
from services.storage.owning.configs import TopicConfigs
from services.storage.owning.deletes import OwnerDeletes
from services.storage.owning.handover import HandOver
from services.storage.owning.logs import Logs
from services.storage.owning.owned import OwnedPartitions
from services.storage.owning.restoring import ProducerRestorer, Restored
from services.storage.owning.snapshots import ProducerSnapshots
from services.storage.owning.takeover import IntakeUnknown, NotAvailable
from services.storage.reading.catalogs import Catalogs
from services.storage.reading.old_end import OldEnd
from services.storage.reading.reader import Reader
from services.storage.rewriting.merge_pace import MergePace
from services.storage.rewriting.obsolete import Obsolete
from services.storage.rewriting.parts import LogParts
from services.storage.rewriting.rewrites import Rewrites
from services.storage.rewriting.roots import Roots
from services.storage.sinks.sinks import Sinks
from services.storage.upkeep.deletion import TopicDeleter
from services.storage.upkeep.intakes import IntakeCollector
from services.storage.upkeep.retention import Retention
from services.storage.upkeep.topic_objects import TopicObjects
from services.storage.writing.buffers import Buffers
from services.storage.writing.commit_streams import CommitStreams
from services.storage.writing.committer import Committer
from services.storage.writing.flusher import Flusher
from services.storage.writing.indexes import IndexWriter

log = structlog.get_logger()

_RELEASE_SECONDS = 3.0
_LEAVE_SECONDS = 1.0
"""Part of the last 5 seconds of a stopping process. A released partition can be taken over before the lease expires."""
_ANNOUNCE_SECONDS = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_VERIFIED_AT_A_TIME = 2
"""Segments, across all requests, because each is held in memory whole, here and in an indexer."""


class Run:
    """The owned partitions and the tasks that maintain them."""

    def __init__(self, deps: Dependencies, run_id: str, nursery: trio.Nursery) -> None:
        settings = deps.settings
        self._deps = deps
        self._nursery = nursery
        self.lost_bytes = 0
        self._moved = Signal()
        self.membership = Membership(
            deps.metadata,
            namespace=deps.namespace,
            member=Member(
                format=1,
                run_id=run_id,
                service="storage",
                address=deps.address,
                started_ms=deps.now_ms(),
                version=kafscale_version(),
                state_format=NEWEST_STATE_FORMAT,
            ),
            ttl_seconds=settings.lease_ttl_seconds,
            clock=deps.lease_clock,
        )
        self.streams = CommitStreams(settings.commit_heartbeat_ms / 1000)
        self.intake = Intake(
            deps, self.membership, nursery=nursery, durable=self._durable, too_long=self._chain_too_long
        )
        self._committer = Committer(
            deps.metadata,
            namespace=deps.namespace,
            fenced=self._fenced,
            counters=deps.counters,
        )
        self._indexes = IndexWriter(
            nursery=nursery,
            objects=deps.single_tries or deps.objects,
            indexer=deps.indexer,
            namespace=deps.namespace,
            timeout=settings.index_timeout_ms / 1000,
            interval=settings.index_interval,
            capacity=settings.pending_indexes,
            counters=deps.counters,
        )
        self._flusher = Flusher(
            nursery=nursery,
            objects=deps.single_tries or deps.objects,
            metadata=deps.metadata,
            indexes=self._indexes,
            namespace=deps.namespace,
            in_flight=settings.flushes_in_flight,
            now_ms=deps.now_ms,
            run_sync=deps.run_sync,
            stored=self._committer.ready,
            abandoned=self._abandoned,
            counters=deps.counters,
            tracer=deps.tracer,
        )
        self.buffers = Buffers(
            settings,
            self.intake,
            start=self._flusher.start,
            is_crowded=lambda: self.owned.is_crowded,
            counters=deps.counters,
        )
        self.owned = OwnedPartitions(
            nursery=nursery,
            metadata=deps.metadata,
            members=deps.members,
            objects=deps.objects,
            settings=settings,
            namespace=deps.namespace,
            run_id=run_id,
            register=self._open_register,
            intakes=self.intake.recovery,
            restore=self._restore,
            taken=self._taken,
            online=self._online,
            counters=deps.counters,
        )
        self._configs = TopicConfigs(deps.catalog, self.owned, self.buffers.configured)
        self.assignment = Assignment(
            nursery=nursery,
            metadata=deps.metadata,
            members=deps.members,
            catalog=deps.catalog,
            owned=self.owned,
            hand_over=HandOver(
                metadata=deps.metadata,
                objects=deps.objects,
                owned=self.owned,
                namespace=deps.namespace,
                run_id=run_id,
                store=self._store_all,
                closed=self._closed,
                moved=self.moved,
                counters=deps.counters,
            ),
            namespace=deps.namespace,
            run_id=run_id,
            moves_in_flight=settings.moves_in_flight,
            timeout=settings.handover_timeout_ms / 1000,
        )
        self.producer_clock = ProducerClock(deps.now_ms)
        self.snapshots = ProducerSnapshots(
            deps.objects,
            deps.namespace,
            nursery,
            membership=self.membership,
            expiry_ms=settings.producer_expiry_ms,
            clock=self.producer_clock,
        )
        self.reader = Reader(
            nursery=nursery,
            objects=deps.objects,
            indexer=deps.indexer,
            namespace=deps.namespace,
            cache_size=settings.cache_size,
            index_cache_size=settings.index_cache_size,
            readahead=settings.readahead_segments,
            reads_in_flight=settings.reads_in_flight,
            index_interval=settings.index_interval,
            run_sync=deps.run_sync,
            counters=deps.counters,
        )
        old_end = OldEnd(deps.objects, deps.catalog, self.reader, deps.namespace)
        self._restorer = ProducerRestorer(
            deps.objects,
            self.reader,
            old_end,
            limit=settings.max_producers_per_partition,
            clock=self.producer_clock,
        )
        self.catalogs = Catalogs(
            nursery=nursery,
            objects=deps.objects,
            indexer=deps.indexer,
            reader=self.reader,
            namespace=deps.namespace,
        )
        self._topic_objects = TopicObjects(
            catalog=deps.catalog,
            members=deps.members,
            membership=self.membership,
            metadata=deps.metadata,
            objects=deps.objects,
            namespace=deps.namespace,
            check_seconds=settings.retention_check_ms / 1000,
        )
        deletes = OwnerDeletes(deps.objects, self.membership)
        self.retention = Retention(
            catalog=deps.catalog,
            owned=self.owned,
            deletes=deletes,
            reader=self.reader,
            catalogs=self.catalogs,
            old_end=old_end,
            objects=deps.objects,
            namespace=deps.namespace,
            move=self._move_log_start,
            now_ms=deps.now_ms,
            check_seconds=settings.retention_check_ms / 1000,
        )
        self._deleter = TopicDeleter(
            catalog=deps.catalog,
            topic_objects=self._topic_objects,
            members=deps.members,
            membership=self.membership,
            metadata=deps.metadata,
            objects=deps.objects,
            namespace=deps.namespace,
            holds=self.assignment.holds,
        )
        self._intakes = IntakeCollector(
            members=deps.members,
            membership=self.membership,
            metadata=deps.metadata,
            objects=deps.objects,
            namespace=deps.namespace,
            now_ms=deps.now_ms,
            check_seconds=settings.retention_check_ms / 1000,
        )
        self.logs = Logs(
            deps.metadata,
            self.reader,
            owned=self.owned,
            membership=self.membership,
            objects=deps.objects,
            capacity=settings.scanned_partitions,
            longest_age=settings.rewrite_grace_ms / 1000,
        )
        self.scan_turns = trio.CapacityLimiter(settings.scan_streams)
        self.verify_turns = trio.CapacityLimiter(_VERIFIED_AT_A_TIME)
        self.plan_turns = trio.CapacityLimiter(settings.plans_in_flight)
        self.sinks = Sinks(
            deps,
            self.membership,
            self.owned,
            nursery=nursery,
            appended=self.buffers.added,
            moved=self.moved,
            buffered=lambda: self.buffers.size,
        )
        pace = MergePace(settings.merge_io_bytes_per_second)
        obsolete = Obsolete(deps.objects, deletes, deps.namespace, nursery=nursery, hurries=lambda: not pace.is_least)
        self._rewrites = Rewrites(
            nursery=nursery,
            owned=self.owned,
            parts=LogParts(self.reader, self.catalogs),
            roots=Roots(
                deps.objects,
                obsolete,
                namespace=deps.namespace,
                grace=settings.rewrite_grace_ms / 1000,
                ready=self._committer.ready,
                moved=self.moved,
            ),
            obsolete=obsolete,
            pace=pace,
            objects=deps.objects,
            indexer=deps.indexer,
            settings=settings,
            namespace=deps.namespace,
            now_ms=deps.now_ms,
            enabled=self._may_rewrite,
            has_sink_epoch=self.sinks.concern,
            cover=self.snapshots.cover,
            counters=deps.counters,
        )
        self._committer.listeners = (
            self._move_log,
            self.reader.committed,
            self.catalogs.committed,
            self._indexes.committed,
            self.buffers.committed,
            self._forget_sink_epochs,
            self.snapshots.committed,
            self._topic_objects.committed,
            self.intake.writer.committed,
            self._go_on,
        )

    async def start(self) -> None:
        """Join the cluster, wait until the local view contains this run, and start the tasks in the nursery."""
        await self.membership.join()
        self._nursery.start_soon(self.membership.keep)
        await self.intake.start()
        view = self._deps.members.view
        while self.membership.run_id not in view.by_run_id:
            view = await self._deps.members.wait_change(view)
        self._nursery.start_soon(self.streams.run)
        self._nursery.start_soon(self._committer.run)
        self._nursery.start_soon(self._indexes.run)
        self._nursery.start_soon(self.buffers.run)
        self._nursery.start_soon(self.assignment.run)
        self._nursery.start_soon(self._deleter.run)
        self._nursery.start_soon(self._intakes.run)
        self._nursery.start_soon(self.retention.run)
        self._nursery.start_soon(self._rewrites.run)
        self._nursery.start_soon(self._topic_objects.run)
        self._nursery.start_soon(self._configs.run)
        self._nursery.start_soon(self.sinks.run)

    def _open_register(self) -> Register:
        if self.intake.register is None:
            raise Unavailable("storage is starting")
        if self.intake.unknown:
            raise IntakeUnknown(self.intake.unknown)
        return self.intake.register

    @property
    def oldest_uncompacted_seconds(self) -> float:
        """The age of the oldest records in the owned partitions that compaction could remove and has not seen."""
        oldest = [one.dirty_since_ms for one in self.owned if one.dirty_since_ms is not None]
        return max(self._deps.now_ms() - min(oldest), 0) / 1000 if oldest else 0.0

    def _may_rewrite(self) -> bool:
        register = self.intake.register
        return register is not None and register.state_format >= REWRITE_STATE_FORMAT

    def _durable(self, partition: Partition) -> None:
        """Called when records of the partition became durable in the intake."""
        if partition.closed:
            self._moved.notify()
        else:
            self._announce(partition)

    def _chain_too_long(self, partition: Partition) -> None:
        if not partition.closed:
            self.buffers.seal(partition, "request")

    async def recovered(self, partition: Partition | NotAvailable, *, patience: float) -> Partition | NotAvailable:
        """Wait up to ``patience`` seconds until the partition accepts appends, if its former owner had an intake."""
        if isinstance(partition, NotAvailable) or not partition.is_recovering:
            return partition
        with trio.move_on_after(patience):
            while partition.is_recovering and not partition.closed and not partition.offline:
                await self._moved.wait()
        if partition.is_recovering and not partition.closed and not partition.offline:
            return NotAvailable(Status.UNAVAILABLE, "the partition is still being taken over")
        return partition

    async def flush(self, partition: Partition, trigger: Trigger) -> bool:
        """Wait until everything buffered now is in committed segments. Return False if this epoch ended first."""
        self.buffers.seal(partition, trigger)
        return await self.stored(partition, partition.buffer.next_offset)

    async def stored(self, partition: Partition, end: int) -> bool:
        """Wait until all before ``end`` is in committed segments. Return False if this epoch ended first."""
        while partition.log.segments_end < end and not partition.closed and not partition.offline:
            await self.moved()
        return partition.log.segments_end >= end

    async def moved(self) -> None:
        """Wait until the log of any partition has moved or any epoch has ended."""
        await self._moved.wait()

    async def move_log_start(self, partition: Partition, offset: int) -> None:
        """Move the log start to ``offset``, which must be committed.

        Returns when the log starts there or the partition is closed or being handed over.
        """
        outage = Outage("log start not moved, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while not partition.closed:
            try:
                await self._move_log_start(partition, offset)
                return
            except KafscaleError as error:
                await outage.pause(error, partition=partition.name)

    async def _move_log_start(self, partition: Partition, offset: int) -> None:
        """Try once. Raises KafscaleError if the producer snapshot, which must be stored first, could not be."""
        await self.snapshots.cover(partition, offset)
        if partition.moving:
            return
        partition.target_log_start = max(partition.target_log_start, offset)
        self._committer.ready(partition)
        while partition.log.log_start < offset and not partition.closed:
            await self._moved.wait()

    async def drain(self) -> None:
        """Hand over all partitions within the deadline and leave. `lost_bytes` then counts what was not stored."""
        self.owned.stopping = True
        with trio.move_on_after(self._deps.settings.drain_timeout_ms / 1000):
            # Upload what is buffered now; each partition accepts more appends until its turn comes.
            for partition in self.owned:
                self.buffers.seal(partition, "hand_over")
            await self._announce_leaving()
            await self.assignment.hand_over_all()
        with trio.move_on_after(_RELEASE_SECONDS):
            await self.assignment.release_all()
        if self.owned.is_empty:
            with trio.move_on_after(_ANNOUNCE_SECONDS):
                await self.intake.seal_register()
        self.lost_bytes += sum(partition.buffer.volatile_bytes for partition in self.owned)
        with trio.move_on_after(_LEAVE_SECONDS):
            await self.membership.leave()

    def end(self) -> None:
        """Called when the lease is lost or released. Drops all partitions and ends the commit streams."""
        self.owned.end()
        self.streams.end()
        self._moved.notify()

    async def _announce_leaving(self) -> None:
        with trio.move_on_after(_ANNOUNCE_SECONDS):
            try:
                await self.membership.tell_leaving()
            except (*STORE_FAILURES, LeaseNotFound) as error:
                # Partitions are handed over anyway; the others notice once this run has left.
                log.warning("leaving without announcement", error=str(error))

    async def _store_all(self, partition: Partition) -> None:
        """Wait until everything this epoch accepted is in the partition's state, or the epoch has ended."""
        await self.flush(partition, "hand_over")
        await self.snapshots.write_last(partition)
        self._committer.ready(partition)
        while partition.unreported and not partition.closed and not partition.offline:
            await self._moved.wait()

    def _move_log(self, commit: Commit) -> None:
        """Add the committed segments to the view of the log."""
        partition, arrival_ms = commit.partition, self.producer_clock.arrival_ms()
        view = partition.log
        for segment in commit.segments:
            view.segments.committed(
                KnownSegment(segment.base_offset, len(segment.data), segment.max_timestamp_ms), segment.next_offset
            )
            view.segments_end = segment.next_offset
            self._deps.counters.segments += 1
            self._deps.counters.committed_bytes += len(segment.data)
        for buffer in commit.buffers:
            for batch in buffer.sequenced:
                partition.committed_producers.add(batch, arrival_ms)
        view.log_start = partition.state.log_start
        partition.follow_root()

    def _forget_sink_epochs(self, commit: Commit) -> None:
        commit.partition.sinks.written(commit.partition.state, commit.partition.buffer.sink_epochs)

    def _go_on(self, commit: Commit) -> None:
        """Tell who waits for the commit, and begin what it allows."""
        partition = commit.partition
        self._announce(partition)
        if partition.buffer.stored():
            self._committer.ready(partition)
        self._flusher.start(partition)

    def _taken(self, partition: Partition | None) -> None:
        if partition is not None:
            self._deps.counters.take_overs += 1
            # The configs may have changed during the take-over.
            self._configs.apply(partition)
            self.buffers.recovered(partition)
            self._flusher.start(partition)
            self.sinks.taken(partition)
            self.streams.announce(partition.key, partition.committed_event())
            self._look_for_missing(partition)
        self.assignment.taken(partition)

    async def _restore(self, view: CommittedLog, state: PartitionState) -> Restored:
        return await self._restorer.restore(view, state)

    def _online(self, partition: Partition) -> None:
        self._announce(partition)
        self._flusher.start(partition)
        self._look_for_missing(partition)

    def _look_for_missing(self, partition: Partition) -> None:
        if partition.oldest_gone:
            self.retention.look_at(partition)

    def _announce(self, partition: Partition, *, lost: bool = False) -> None:
        self.streams.announce(partition.key, partition.committed_event(lost=lost))
        self._moved.notify()

    def _fenced(self, partition: Partition, who: str) -> None:
        log.warning("partition lost", partition=partition.name, epoch=partition.epoch, reason=who)
        if not partition.closed:
            self._deps.counters.fenced += 1
            self.owned.drop(partition)
            self._closed(partition)

    def _abandoned(self, partition: Partition, reason: str, offline: bool) -> None:
        if offline:
            log.error("partition offline", partition=partition.name, reason=reason)
            partition.offline = reason
            self.buffers.discard(partition, keep_durable=True)
            self._announce(partition, lost=True)
        else:
            self._fenced(partition, reason)

    def _closed(self, partition: Partition) -> None:
        """Discard what the partition still has buffered; it is lost with the epoch."""
        if self.owned.stopping:
            self.lost_bytes += partition.buffer.volatile_bytes
        self.buffers.discard(partition)
        self._announce(partition, lost=True)
        self.streams.forget(partition.key)
