"""The logs of any partitions, for scans: own ones, and copies of what others own, whom a scan need not load.

What is committed never changes, so an older copy of a partition's state is good for all below its end. What the copy
cannot answer is answered from the state as it is now.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import structlog
import trio

from kafscale import paths
from kafscale.metadata.interface import Get, MetadataStore
from kafscale.metadata.membership import Membership
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState
from kafscale.v1.storage_pb2 import PartitionFetch, PartitionFetched
from services.storage.log.partition import CommittedLog, history_of
from services.storage.log.segments import UNKNOWN_TIME, KnownSegment, SegmentMap
from services.storage.owning.owned import Key, OwnedPartitions
from services.storage.owning.takeover import NotAvailable, checked_topic
from services.storage.reading.finder import Damaged
from services.storage.reading.reader import Reader

log = structlog.get_logger()

_MAX_SEGMENTS = 10_000
"""Remembered of one partition: at 24 bytes each."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A partition's state and history as they were at one revision; ``view`` is None until both were read once.

    ``reads`` have begun so far, number ``read`` is the one that the copy is of.
    """

    lock: trio.Lock = field(default_factory=trio.Lock)
    reads: int = 0
    read: int = 0
    epoch: int = 0
    view: CommittedLog | None = None


class Logs:
    """Keeps what is known of ``capacity`` partitions, least recently used out first."""

    def __init__(
        self,
        metadata: MetadataStore,
        reader: Reader,
        *,
        owned: OwnedPartitions,
        membership: Membership,
        capacity: int,
    ) -> None:
        self._metadata = metadata
        self._reader = reader
        self._owned = owned
        self._membership = membership
        self._capacity = capacity
        self._copies: OrderedDict[Key, _Copy] = OrderedDict()

    async def log_now(self, ref: PartitionRef) -> CommittedLog:
        """Where the log begins and ends at present. Raises NotAvailable, Damaged, Unavailable."""
        return self._own(ref) or await self.stored_log(ref)

    async def log_with(self, ref: PartitionRef, start: int, end: int) -> CommittedLog:
        """The same; an older copy will do that has all offsets from ``start`` up to ``end``."""
        view = self._own(ref) or self._copy((ref.topic_id, ref.partition)).view
        if view is not None and view.log_start <= start and end <= view.high_watermark:
            return view
        return await self.stored_log(ref)

    async def stored_log(self, ref: PartitionRef) -> CommittedLog:
        """As the metadata store has it now, whoever owns it."""
        copy = self._copy((ref.topic_id, ref.partition))
        return await self._refreshed(copy, ref, copy.reads)

    async def fetch(self, fetch: PartitionFetch, limit: int, result: PartitionFetched) -> bytes:
        """Everything of ``result`` but its records, and the records: ``limit`` bytes of them, or one batch."""
        copy = self._copy((fetch.partition.topic_id, fetch.partition.partition))
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
        view, offset, asked_at = copy.view, fetch.offset, copy.reads
        if view is not None and view.log_start <= offset < view.high_watermark:
            try:
                return await self._answer(copy, view, offset, limit, result)
            except Damaged:
                # What is missing may have been deleted since.
                asked_at = copy.reads
        view = await self._refreshed(copy, fetch.partition, asked_at)
        return await self._answer(copy, view, offset, limit, result)

    async def _answer(
        self, copy: _Copy, view: CommittedLog, offset: int, limit: int, result: PartitionFetched
    ) -> bytes:
        result.epoch, result.high_watermark, result.log_start = copy.epoch, view.high_watermark, view.log_start
        if not view.log_start <= offset <= view.high_watermark:
            result.status = Status.OFFSET_OUT_OF_RANGE
            result.detail = f"the log has {view.log_start} to {view.high_watermark}"
            return b""
        if limit <= 0 or offset == view.high_watermark:
            return b""
        return await self._reader.read(view, offset, limit)

    def _own(self, ref: PartitionRef) -> CommittedLog | None:
        """The log of a partition of which this run can prove that it is the owner."""
        partition = self._owned.get((ref.topic_id, ref.partition))
        if partition is None or partition.closed or not partition.log.epochs or not self._membership.proven:
            return None
        return partition.log

    def _copy(self, key: Key) -> _Copy:
        copy = self._copies.setdefault(key, _Copy())
        self._copies.move_to_end(key)
        if len(self._copies) > self._capacity:
            self._copies.popitem(last=False)
        return copy

    async def _refreshed(self, copy: _Copy, ref: PartitionRef, asked_at: int) -> CommittedLog:
        """The log by a state that was read after ``asked_at`` reads had begun, shared by all who ask meanwhile."""
        async with copy.lock:
            if copy.view is None or copy.read <= asked_at:
                copy.reads = number = copy.reads + 1
                copy.view = await self._read(copy, ref)
                copy.read = number
            return copy.view

    async def _read(self, copy: _Copy, ref: PartitionRef) -> CommittedLog:
        namespace = self._reader.namespace
        # One transaction: the end and the history belong together only at one revision.
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
            raise NotAvailable(Status.UNAVAILABLE, "the state of a deleted topic is still there")
        epochs = history_of(EpochHistory.FromString(history_kv.value)) if history_kv else []
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
                high_watermark=state.high_watermark,
                segments=SegmentMap(state.high_watermark, last, limit=_MAX_SEGMENTS),
            )
        view = copy.view
        view.epochs, view.log_start = epochs, state.log_start
        if last is not None and state.high_watermark > view.high_watermark:
            view.segments.moved_on(last, state.high_watermark)
        view.high_watermark = state.high_watermark
        return view
