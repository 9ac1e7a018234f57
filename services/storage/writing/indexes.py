"""Has the indexes of committed segments stored, after their records are acknowledged.

An index is a hint, so nothing waits for it but the hand-over of its partition. If this process dies first, readers have
the index rebuilt.
"""

from dataclasses import dataclass

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError, NotSent, Unavailable
from kafscale.metadata.outage import Outage
from kafscale.objects.interface import ObjectStore
from kafscale.objects.puts import put_derived
from kafscale.rpc.generated import IndexerClient
from kafscale.segment.index import build_index
from kafscale.segment.writer import BuiltSegment
from kafscale.signals import Signal
from kafscale.v1.indexer_pb2 import SegmentBatches, SegmentRef, WriteIndexesRequest
from services.storage.counters import StorageCounters
from services.storage.log.commit import Commit
from services.storage.log.partition import Partition

log = structlog.get_logger()

_MAX_SEGMENTS = 64
_MAX_BATCHES = 200_000
"""Limits of one call. A batch takes up to 15 bytes of the message."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    partition: Partition
    batches: SegmentBatches


class IndexWriter:
    """Sends the positions of the batches of new segments to an indexer, many segments in a call, one call at a time.

    Storage stores an index itself if no indexer answers or the indexer cannot. ``capacity`` is the number of indexes
    from which on `room` waits.
    """

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        objects: ObjectStore,
        indexer: IndexerClient,
        namespace: str,
        timeout: float,
        interval: int,
        capacity: int,
        counters: StorageCounters,
    ) -> None:
        self._nursery = nursery
        self._objects = objects
        self._indexer = indexer
        self._namespace = namespace
        self._timeout = timeout
        self._interval = interval
        self._capacity = capacity
        self._counters = counters
        self._queue: list[_Pending] = []
        self._wake = trio.Event()
        # All indexes that are not stored yet, including those in the queue.
        self._pending = 0
        self._ended = Signal()

    async def room(self) -> None:
        """Wait while there are too many indexes to be stored."""
        while self._pending >= self._capacity:
            await self._ended.wait()

    def committed(self, commit: Commit) -> None:
        """Take the segments of the commit into the queue."""
        for segment in commit.segments:
            self._add(commit.partition, segment)

    def _add(self, partition: Partition, segment: BuiltSegment) -> None:
        ref = SegmentRef(topic=partition.ref.topic, partition=partition.ref.partition, base_offset=segment.base_offset)
        batches = SegmentBatches(segment=ref, offsets=segment.offsets, positions=segment.positions)
        partition.under_way += 1
        partition.without_index.add(segment.base_offset)
        self._pending += 1
        self._queue.append(_Pending(partition, batches))
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._queue:
                await self._send(self._next())

    def _next(self) -> list[_Pending]:
        """Take the segments of the next call."""
        count, batches = 0, 0
        while count < min(len(self._queue), _MAX_SEGMENTS) and (not count or batches < _MAX_BATCHES):
            batches += len(self._queue[count].batches.offsets)
            count += 1
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    async def _send(self, pending: list[_Pending]) -> None:
        request = WriteIndexesRequest(segments=[one.batches for one in pending])
        try:
            errors = list((await self._indexer.write_indexes(request, timeout=self._timeout)).errors)
            if len(errors) != len(pending):
                raise Unavailable(f"an indexer answered for {len(errors)} of {len(pending)} indexes")
        except KafscaleError as error:
            # This includes Refused, for a request that is too large for a message.
            if not self._counters.no_indexer:
                log.warning("no indexer answered, storing indexes", error=str(error))
            self._counters.no_indexer = str(error)
            errors = [str(error)] * len(pending)
            sent = isinstance(error, Unavailable) and not isinstance(error, NotSent)
        else:
            self._counters.no_indexer = ""
            sent = True
        for one, failed in zip(pending, errors, strict=True):
            if failed:
                if sent:
                    # The put of the indexer may still take effect.
                    one.partition.last_unknown_request = trio.current_time()
                self._nursery.start_soon(self._store, one)
            else:
                self._counters.builds["indexer"] += 1
                self._end(one)

    async def _store(self, one: _Pending) -> None:
        ref, batches = one.batches.segment, one.batches
        key = paths.index_key(self._namespace, ref.topic, ref.partition, ref.base_offset)
        index = build_index(batches.offsets, batches.positions, self._interval)
        outage = Outage("index not stored, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        try:
            while not one.partition.closed:
                try:
                    await put_derived(self._objects, key, index)
                    self._counters.builds["storage"] += 1
                    return
                except KafscaleError as error:
                    one.partition.last_unknown_request = trio.current_time()
                    await outage.pause(error, key=key)
        finally:
            self._end(one)

    def _end(self, one: _Pending) -> None:
        one.partition.without_index.discard(one.batches.segment.base_offset)
        one.partition.request_ended()
        self._pending -= 1
        self._ended.notify()
