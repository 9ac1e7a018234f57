"""Keeps what is known of a partition's idempotent producers across owners, without reading the whole log.

The committed view at one high watermark goes to an object of its own; the next commit of the partition refers to it. A
new owner reads that object and the batch headers behind it. So the log start never passes the place from which headers
are to be read: a newer snapshot comes first. A partition without such producers costs nothing: its commits say that
there is nothing to read.
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
from services.storage.log.partition import IMPORTED, CommittedLog, Partition
from services.storage.log.producer_clock import ProducerClock
from services.storage.log.producers import ProducerTable, Sequenced
from services.storage.log.segments import KnownSegment
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.reading.reader import Reader

log = structlog.get_logger()

_SHORTEST_EXPIRY_MS = 600_000
"""Five times the delivery timeout that Kafka's clients have by default."""
SEGMENTS_BETWEEN = 16
"""Commits of so many segments lie between two snapshots: with 8 in flight, a new owner reads 24 at most."""


class SnapshotLost(Damaged):
    """It is missing or damaged."""


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
    """The committed view at ``state``'s high watermark, and how many segments were read. Raises Damaged, Unavailable.

    Batches that are read count as come at ``arrival_ms``. Those below ``oldest`` are not there any more. ``snapshot``:
    it is read; without it the whole log is, which says nothing about producers whose records lay below the log start.
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
    if start >= view.high_watermark:
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
    _check_no_hole(view, expected, view.high_watermark)
    return table, read


def _check_no_hole(view: CommittedLog, expected: int, base_offset: int) -> None:
    """Only behind imported segments offsets may be missing."""
    if expected < base_offset and view.epoch_of(expected) != IMPORTED:
        raise Damaged(f"{view.name}: no segment holds offset {expected}")


class ProducerSnapshots:
    """Writes snapshots, one of a partition at a time, and deletes those that no state refers to any more."""

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

    def committed(self, partition: Partition, segments: int) -> None:
        """The partition's committed view has moved by ``segments``."""
        partition.segments_since_snapshot += segments
        if partition.segments_since_snapshot >= SEGMENTS_BETWEEN and not partition.snapshot_under_way:
            self.expire(partition)
            if len(partition.committed_producers):
                self._begin(partition)
                self._nursery.start_soon(self._write, partition)

    def expire(self, partition: Partition, *, pressed: bool = False) -> None:
        """Forget idle producers; ``pressed``: all that cannot be within their delivery timeout any more.

        Nobody is idle by a clock that may be wrong.
        """
        if not clocks_agree(self._objects.clock_skew_seconds):
            return
        idle_since_ms = self._clock.idle_until_ms() - (_SHORTEST_EXPIRY_MS if pressed else self._expiry_ms)
        for table in (partition.producers, partition.committed_producers):
            table.expire(idle_since_ms)

    def referred(self, partition: Partition, before: PartitionState) -> None:
        """A commit has applied: what the state referred to ``before`` and does not now can go."""
        if partition.next_snapshot and partition.next_snapshot[1] <= partition.state.producers_from:
            # Referred to, or of producers that have expired all.
            partition.next_snapshot = None
        if before.producer_snapshot != partition.state.producer_snapshot:
            partition.under_way += 1
            self._nursery.start_soon(self._tidy, partition, before.producer_snapshot)

    async def cover(self, partition: Partition, offset: int) -> None:
        """Before the log starts at ``offset``: see to it that nothing below is needed to know the producers.

        What this stores the partition's next state refers to. Raises KafscaleError. Nothing is begun for a partition
        that is closed or being given back.
        """
        while partition.snapshot_under_way:
            await partition.one_ended()
        if not (partition.closed or partition.moving) and _is_known_short_of(partition, offset):
            self._begin(partition)
            await self._store(partition)

    async def write_last(self, partition: Partition) -> None:
        """Before the partition is released, with all of it committed: its next owner need not read the log."""
        while partition.snapshot_under_way:
            await partition.one_ended()
        if _is_known_short_of(partition, partition.log.high_watermark):
            self._begin(partition)
            await self._write(partition)

    def _begin(self, partition: Partition) -> None:
        partition.snapshot_under_way = True
        partition.segments_since_snapshot = 0
        # Whoever gives the partition back waits for this as for other uploads.
        partition.under_way += 1

    async def _write(self, partition: Partition) -> None:
        try:
            await self._store(partition)
        except KafscaleError as error:
            log.warning("producer snapshot not stored, tried again later", partition=partition.name, error=str(error))

    async def _store(self, partition: Partition) -> None:
        """Store the committed view as it is; the partition's next state refers to it. Raises KafscaleError."""
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
        end, data = partition.log.high_watermark, partition.committed_producers.dump()
        ref = partition.ref
        key = paths.producer_snapshot_key(self._namespace, ref.topic, ref.partition, end, partition.epoch)
        try:
            await self._objects.put_if_absent(key, data)
        except PreconditionFailed:
            # One epoch has one committed view at one end, but for the times of last use: ours came before.
            log.debug("producer snapshot is there already", key=key)
        if end > partition.state.producers_from:
            partition.next_snapshot = key, end

    async def _tidy(self, partition: Partition, former: str) -> None:
        """Delete ``former``, which the state does not refer to any more, and once what owners before this one left."""
        try:
            if former:
                # No other snapshot ever has this key, however late this lands.
                await self._objects.delete_many([former])
            if not (partition.snapshots_tidied or partition.moving):
                await self._delete_of_former_owners(partition)
        except KafscaleError as error:
            log.warning("old producer snapshots not deleted", partition=partition.name, error=str(error))
        finally:
            partition.request_ended()

    async def _delete_of_former_owners(self, partition: Partition) -> None:
        """What owners that died could not delete. This one's state has moved on: no later one refers to any of it."""
        prefix = paths.producers_prefix(self._namespace, partition.ref.topic, partition.ref.partition)
        listed = [info.key for info in await self._objects.list_from(prefix)]
        left = [key for key in listed if 0 <= paths.producer_snapshot_epoch(key) < partition.epoch]
        # The date first: whoever is stopped after the proof sends a delete that the store refuses.
        dated = self._objects.now()
        if partition.closed or partition.moving or not self._membership.proven:
            return
        if left:
            await self._objects.delete_many(left, dated=dated)
        partition.snapshots_tidied = True


def _is_known_short_of(partition: Partition, offset: int) -> bool:
    """Whether a new owner, by the snapshot that was stored last, would read batch headers below ``offset``."""
    known_up_to = partition.next_snapshot[1] if partition.next_snapshot else partition.state.producers_from
    return len(partition.committed_producers) > 0 and known_up_to < offset
