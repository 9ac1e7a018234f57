"""The logs of all partitions for scans: owned ones, and copies of those of other owners, which need not be taken over.

Committed records never change, so an older copy of a partition's state is valid below its high watermark. Requests
beyond it are answered from the current state. The objects of a log that is rewritten are deleted some time later, so no
read begins with a copy older than that.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog
import trio

from kafscale import paths
from kafscale.metadata.interface import Get, MetadataStore
from kafscale.metadata.membership import Membership
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.topic_values import NEWEST_STATE_FORMAT
from kafscale.objects.interface import ObjectStore
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState
from kafscale.v1.storage_pb2 import PartitionFetch, PartitionFetched
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog, history_of, whole_history
from services.storage.log.rewritten import RewrittenLog
from services.storage.log.segments import SegmentMap
from services.storage.owning.owned import Key, OwnedPartitions
from services.storage.owning.takeover import NotAvailable, checked_topic
from services.storage.reading.finder import Damaged
from services.storage.reading.reader import Reader
from services.storage.reading.roots import read_rewritten

log = structlog.get_logger()

_TRIES = 3
"""Attempts at one read while the log start moves past its offset."""
_MAX_SEGMENTS = 10_000
"""Segments remembered per partition, at 24 bytes each."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A partition's state and history at one revision. ``view`` is None until they are read for the first time.

    ``reads``: how many reads were started. ``read``: the number of the read that the copy is from, which began at
    ``read_at`` (Trio time).
    """

    lock: trio.Lock = field(default_factory=trio.Lock)
    reads: int = 0
    read: int = 0
    read_at: float = -math.inf
    epoch: int = 0
    view: CommittedLog | None = None


class Logs:
    """Keeps copies of the ``capacity`` most recently used partitions, and uses them for ``longest_age`` seconds."""

    def __init__(
        self,
        metadata: MetadataStore,
        reader: Reader,
        *,
        owned: OwnedPartitions,
        membership: Membership,
        objects: ObjectStore,
        capacity: int,
        longest_age: float,
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._longest_age = longest_age
        self._reader = reader
        self._owned = owned
        self._membership = membership
        self._capacity = capacity
        self._copies: OrderedDict[tuple[str, Key], _Copy] = OrderedDict()

    async def log_now(self, ref: PartitionRef) -> CommittedLog:
        """Return the log with its current start and end. Raises NotAvailable, Damaged, Unavailable."""
        return self._own(ref) or await self.stored_log(ref)

    async def log_with(self, ref: PartitionRef, start: int, end: int) -> CommittedLog:
        """Return the log, or an older copy of it that has all offsets from ``start`` up to ``end``. Raises the same."""
        view = self._own(ref) or self._recent(self._copy(ref))
        if view is not None and view.log_start <= start and end <= view.segments_end:
            return view
        return await self.stored_log(ref)

    async def stored_log(self, ref: PartitionRef) -> CommittedLog:
        """Return the log as it is now in the metadata store, regardless of its owner."""
        copy = self._copy(ref)
        return await self._refreshed(copy, ref, copy.reads)

    async def fetch(self, fetch: PartitionFetch, limit: int, result: PartitionFetched) -> bytes:
        """Fill ``result`` except for its records, and return the records: ``limit`` bytes of them, or one batch."""
        copy = self._copy(fetch.partition)
        try:
            return await self._fetch(copy, fetch, limit, result)
        except NotAvailable as error:
            result.status, result.detail = error.status, str(error)
        except Damaged as error:
            log.error("committed data cannot be read by a scan", reason=str(error))
            result.status, result.detail = Status.DAMAGED, str(error)
        except STORE_FAILURES as error:
            result.status, result.detail = Status.UNAVAILABLE, str(error)
        return b""

    async def _fetch(self, copy: _Copy, fetch: PartitionFetch, limit: int, result: PartitionFetched) -> bytes:
        view, offset, requested_at = self._recent(copy), fetch.offset, copy.reads
        for _ in range(_TRIES - 1):
            if view is None or not view.log_start <= offset < view.segments_end:
                view = await self._refreshed(copy, fetch.partition, requested_at)
            try:
                return await self._answer(copy, view, offset, limit, result)
            except Damaged:
                # The missing object may have been deleted since the state was read.
                requested_at, view = copy.reads, None
        view = await self._refreshed(copy, fetch.partition, requested_at)
        return await self._answer(copy, view, offset, limit, result)

    async def _answer(
        self, copy: _Copy, view: CommittedLog, offset: int, limit: int, result: PartitionFetched
    ) -> bytes:
        result.epoch, result.high_watermark, result.log_start = copy.epoch, view.segments_end, view.log_start
        if not view.log_start <= offset <= view.segments_end:
            result.status = Status.OFFSET_OUT_OF_RANGE
            result.detail = f"the log has offsets {view.log_start} to {view.segments_end}"
            return b""
        if limit <= 0 or offset == view.segments_end:
            return b""
        return await self._reader.read(view, offset, limit)

    def _own(self, ref: PartitionRef) -> CommittedLog | None:
        """Return the log of a partition if this run can prove that it is the owner, else None."""
        partition = self._owned.get((ref.topic_id, ref.partition))
        if partition is None or partition.closed or not partition.log.epochs or not self._membership.proven:
            return None
        # A request is allowed by the topic's name, so the id must be that of this name.
        return partition.log if partition.log.topic == ref.topic else None

    def _recent(self, copy: _Copy) -> CommittedLog | None:
        return copy.view if trio.current_time() - copy.read_at <= self._longest_age else None

    def _copy(self, ref: PartitionRef) -> _Copy:
        # By the name too, so that an id with the name of another topic is not answered from the copy of its own.
        key = ref.topic, (ref.topic_id, ref.partition)
        copy = self._copies.setdefault(key, _Copy())
        self._copies.move_to_end(key)
        if len(self._copies) > self._capacity:
            self._copies.popitem(last=False)
        return copy

    async def _refreshed(self, copy: _Copy, ref: PartitionRef, requested_at: int) -> CommittedLog:
        """Return the log from a read that started after read number ``requested_at``, shared by concurrent callers."""
        async with copy.lock:
            if copy.view is None or copy.read <= requested_at:
                copy.reads = number = copy.reads + 1
                began = trio.current_time()
                copy.view = await self._read(copy, ref)
                copy.read, copy.read_at = number, began
            return copy.view

    async def _read(self, copy: _Copy, ref: PartitionRef) -> CommittedLog:
        namespace = self._reader.namespace
        # Read in one transaction, because high watermark and history match only at the same revision.
        topic_kv, state_kv, history_kv = (
            await self._metadata.txn(
                (),
                [
                    Get(paths.topic_key(namespace, ref.topic)),
                    Get(paths.partition_state_key(namespace, ref.topic, ref.partition)),
                    Get(paths.epoch_history_key(namespace, ref.topic, ref.partition)),
                ],
            )
        ).reads
        topic = checked_topic(topic_kv, ref)
        state = PartitionState.FromString(state_kv.value) if state_kv else PartitionState(topic_id=topic.id)
        if state.topic_id != topic.id:
            raise NotAvailable(Status.UNAVAILABLE, "the state of a deleted topic still exists")
        if state.format > NEWEST_STATE_FORMAT:
            raise NotAvailable(
                Status.UNAVAILABLE, f"its state has format {state.format}, this release supports {NEWEST_STATE_FORMAT}"
            )
        rewritten = await self._rewritten(copy, ref, state)
        epochs = whole_history(rewritten, history_of(EpochHistory.FromString(history_kv.value)) if history_kv else [])
        if state.log_start < state.high_watermark and not epochs:
            raise Damaged(f"{ref.topic}-{ref.partition}: the epoch history is missing")
        last = None
        if state.HasField("last_segment"):
            last = KnownSegment(state.last_segment.base_offset, state.last_segment.size, UNKNOWN_TIME)
        copy.epoch = state.epoch
        if copy.view is None:
            return CommittedLog(
                topic=ref.topic,
                topic_id=ref.topic_id,
                partition=ref.partition,
                epochs=epochs,
                log_start=state.log_start,
                segments_end=state.high_watermark,
                segments=SegmentMap(state.high_watermark, last, limit=_MAX_SEGMENTS, rewritten=rewritten),
            )
        view = copy.view
        view.epochs, view.log_start = epochs, state.log_start
        if last is not None and state.high_watermark > view.segments_end:
            view.segments.moved_on(last, state.high_watermark)
        view.segments_end = state.high_watermark
        if rewritten is not view.segments.rewritten:
            view.segments.rewrite(rewritten)
        return view

    async def _rewritten(self, copy: _Copy, ref: PartitionRef, state: PartitionState) -> RewrittenLog | None:
        known = copy.view.segments.rewritten if copy.view is not None else None
        if known is not None and not known.fault and known.ref == state.root:
            return known
        return await read_rewritten(self._objects, self._reader.namespace, ref, state)
