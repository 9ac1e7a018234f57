"""Producer snapshots, from which a new owner learns a partition's idempotent producers without reading the whole log.

The producers as of one high watermark are stored in an object, to which the next commit of the partition refers. A new
owner reads that object and the batch headers after it. The log start therefore never passes the offset from which
headers must be read; a newer snapshot is stored first. Without idempotent producers a partition has no snapshots: its
commits record that there is nothing to read.
"""

from contextlib import suppress

import structlog
import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.membership import Membership
from kafscale.objects.interface import ObjectNotFound, ObjectStore, PreconditionFailed, clocks_agree
from kafscale.records.batch import peek
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.log.commit import Commit
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import IMPORTED, CommittedLog, Partition
from services.storage.log.producer_clock import ProducerClock
from services.storage.log.producers import ProducerTable, Sequenced
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.reading.reader import Reader

log = structlog.get_logger()

_SHORTEST_EXPIRY_MS = 600_000
"""Five times the default delivery.timeout.ms of Kafka clients."""
SEGMENTS_BETWEEN = 16
"""Segments committed between two snapshots. With 8 in flight a new owner reads at most 24."""


class SnapshotLost(Damaged):
    """The producer snapshot is missing or damaged."""


async def restore(
    view: CommittedLog,
    state: PartitionState,
    *,
    objects: ObjectStore,
    reader: Reader,
    limit: int,
    arrival_ms: int,
    oldest: int,
    snapshot: bool,
) -> tuple[ProducerTable, int]:
    """Return the producers at ``state``'s high watermark and the number of segments read. Raises Damaged, Unavailable.

    Batches that are read get the arrival time ``arrival_ms``. Those below ``oldest`` no longer exist. ``snapshot``:
    read the snapshot; otherwise read the whole log, which misses producers whose records are below the log start.
    """
    table, start = ProducerTable(limit), max(state.producers_from, state.log_start)
    if state.producer_snapshot and not snapshot:
        start = state.log_start
    elif state.producer_snapshot:
        try:
            table = ProducerTable.load((await objects.get(state.producer_snapshot)).body, limit)
        except (ObjectNotFound, CorruptData) as error:
            raise SnapshotLost(f"producer snapshot {state.producer_snapshot}: {error}") from error
    start, read = max(start, oldest), 0
    if start >= view.segments_end:
        return table, read
    first = await reader.holding(view, start)
    segment: KnownSegment | None = first
    expected = first.base_offset
    while segment is not None:
        with suppress(OfAnotherEpoch):
            whole = await reader.whole(view, segment)
            _check_no_hole(view, expected, segment.base_offset)
            expected = whole.next_offset
            for position in whole.positions:
                header = peek(whole.data, position)
                if header.producer_id >= 0 and header.base_offset >= start:
                    table.add(Sequenced.of(header, header.base_offset), arrival_ms)
        read += 1
        segment = await reader.finder.after(view, segment)
    _check_no_hole(view, expected, view.segments_end)
    return table, read


def _check_no_hole(view: CommittedLog, expected: int, base_offset: int) -> None:
    """Raise Damaged if offsets are missing, unless they follow an imported segment or were rewritten."""
    expected = max(expected, min(view.segments.through, base_offset))
    if expected < base_offset and view.epoch_of(expected) != IMPORTED:
        raise Damaged(f"{view.name}: no segment holds offset {expected}")


class ProducerSnapshots:
    """Writes snapshots, one per partition at a time, and deletes those that no state refers to."""

    def __init__(
        self,
        objects: ObjectStore,
        namespace: str,
        nursery: trio.Nursery,
        *,
        membership: Membership,
        expiry_ms: int,
        clock: ProducerClock,
    ) -> None:
        self._objects = objects
        self._namespace = namespace
        self._nursery = nursery
        self._membership = membership
        self._expiry_ms = expiry_ms
        self._clock = clock

    def committed(self, commit: Commit) -> None:
        """Begin a snapshot if it is due, and delete the one to which only the former state referred."""
        partition = commit.partition
        partition.segments_since_snapshot += len(commit.buffers)
        if partition.segments_since_snapshot >= SEGMENTS_BETWEEN and not partition.snapshot_under_way:
            self.expire(partition)
            if len(partition.committed_producers):
                self._begin(partition)
                self._nursery.start_soon(self._write, partition)
        self._referred(partition, commit.former)

    def expire(self, partition: Partition, *, pressed: bool = False) -> None:
        """Remove producers that are idle for the configured time, or for _SHORTEST_EXPIRY_MS if ``pressed``.

        Removes none while the clock may be wrong.
        """
        if not clocks_agree(self._objects.clock_skew_seconds):
            return
        idle_since_ms = self._clock.idle_until_ms() - (_SHORTEST_EXPIRY_MS if pressed else self._expiry_ms)
        for table in (partition.producers, partition.committed_producers):
            table.expire(idle_since_ms)

    def _referred(self, partition: Partition, before: PartitionState) -> None:
        if partition.next_snapshot and partition.next_snapshot[1] <= partition.state.producers_from:
            # The state refers to it, or all its producers have expired.
            partition.next_snapshot = None
        if before.producer_snapshot != partition.state.producer_snapshot:
            partition.under_way += 1
            self._nursery.start_soon(self._tidy, partition, before.producer_snapshot)

    async def cover(self, partition: Partition, offset: int) -> None:
        """Before the log start moves to ``offset``, make sure that restoring producers needs nothing below it.

        The partition's next state refers to the snapshot that this stores. Does nothing for a partition that is closed
        or being handed over. Raises KafscaleError.
        """
        while partition.snapshot_under_way:
            await partition.one_ended()
        if not (partition.closed or partition.moving) and _is_known_short_of(partition, offset):
            self._begin(partition)
            await self._store(partition)

    async def write_last(self, partition: Partition) -> None:
        """Store a last snapshot of a fully committed partition before its release, so that nobody must read the log."""
        while partition.snapshot_under_way:
            await partition.one_ended()
        if _is_known_short_of(partition, partition.log.segments_end):
            self._begin(partition)
            await self._write(partition)

    def _begin(self, partition: Partition) -> None:
        partition.snapshot_under_way = True
        partition.segments_since_snapshot = 0
        # A hand-over waits for this like for other uploads.
        partition.under_way += 1

    async def _write(self, partition: Partition) -> None:
        try:
            await self._store(partition)
        except KafscaleError as error:
            log.warning("producer snapshot not stored, retrying later", partition=partition.name, error=str(error))

    async def _store(self, partition: Partition) -> None:
        """Store the committed producers, to which the partition's next state refers. Raises KafscaleError."""
        answered = False
        try:
            await self._put(partition)
            answered = True
        finally:
            if not answered:
                partition.last_unknown_request = trio.current_time()
                partition.segments_since_snapshot += SEGMENTS_BETWEEN
            partition.snapshot_under_way = False
            partition.request_ended()

    async def _put(self, partition: Partition) -> None:
        end, data = partition.log.segments_end, partition.committed_producers.dump()
        ref = partition.ref
        key = paths.producer_snapshot_key(self._namespace, ref.topic, ref.partition, end, partition.epoch)
        try:
            await self._objects.put_if_absent(key, data)
        except PreconditionFailed:
            # Our earlier put succeeded: within an epoch, snapshots at one offset differ only in times of last use.
            log.debug("producer snapshot already stored", key=key)
        if end > partition.state.producers_from:
            partition.next_snapshot = key, end

    async def _tidy(self, partition: Partition, former: str) -> None:
        """Delete ``former``, to which the state no longer refers, and once the leftovers of earlier owners."""
        try:
            if former:
                # No other snapshot ever has this key, so a late delete does no harm.
                await self._objects.delete_many([former])
            if not (partition.snapshots_tidied or partition.moving):
                await self._delete_of_former_owners(partition)
        except KafscaleError as error:
            log.warning("old producer snapshots not deleted", partition=partition.name, error=str(error))
        finally:
            partition.request_ended()

    async def _delete_of_former_owners(self, partition: Partition) -> None:
        """Delete snapshots that dead owners left. No state refers to them since this owner wrote its own."""
        prefix = paths.producers_prefix(self._namespace, partition.ref.topic, partition.ref.partition)
        listed = [info.key for info in await self._objects.list_from(prefix)]
        leftovers = [key for key in listed if 0 <= paths.producer_snapshot_epoch(key) < partition.epoch]
        # Take the date first, so that the store refuses a delete sent by a process that was paused after the check.
        dated = self._objects.now()
        if partition.closed or partition.moving or not self._membership.proven:
            return
        if leftovers:
            await self._objects.delete_many(leftovers, dated=dated)
        partition.snapshots_tidied = True


def _is_known_short_of(partition: Partition, offset: int) -> bool:
    """Return whether a new owner with the last stored snapshot would have to read batch headers below ``offset``."""
    known_up_to = partition.next_snapshot[1] if partition.next_snapshot else partition.state.producers_from
    return len(partition.committed_producers) > 0 and known_up_to < offset
