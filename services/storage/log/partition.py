"""One partition that this instance owns, in one epoch."""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from kafscale.paths import SegmentKey
from kafscale.topics.configs import TopicConfig
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState, Topic
from kafscale.v1.storage_pb2 import Committed
from services.storage.log.buffer import WriteBuffer
from services.storage.log.pages import KnownPages, UnfinishedPage
from services.storage.log.producers import ProducerTable
from services.storage.log.segments import SegmentMap
from services.storage.log.sink_progress import SinkPositions

IMPORTED = 0
"""The epoch of what KafScale 1 wrote: offsets may be missing between such segments."""


@dataclass(slots=True, eq=False)
class CommittedLog:
    """What readers see of a partition: offsets from ``log_start`` up to, not including, ``high_watermark``.

    ``epochs`` is the epoch history as (epoch, first offset), ascending; read at the same revision as the end.
    """

    topic: str
    topic_id: bytes
    partition: int
    epochs: list[tuple[int, int]]
    log_start: int
    high_watermark: int
    segments: SegmentMap
    pages: KnownPages = field(default_factory=KnownPages)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def epoch_of(self, offset: int) -> int:
        """The epoch that the object at base ``offset`` must have to belong to the log; -1: none can."""
        i = bisect_right(self.epochs, offset, key=lambda entry: entry[1]) - 1
        return self.epochs[i][0] if i >= 0 else -1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` and one past its last offset, as Kafka's OffsetForLeaderEpoch means it.

        (-1, -1) for an epoch that has not begun; for one before all that are known, where the first of those begins.
        Where no record has epoch 0, it is what clients send that know no epoch: it ends with the log, so that none of
        them concludes that its position was truncated.
        """
        i = bisect_right(self.epochs, epoch, key=lambda entry: entry[0])
        if epoch < 0 or (i == len(self.epochs) and self.epochs[-1][0] < epoch):
            return -1, -1
        unknown = i == 0 and epoch == IMPORTED
        end = self.epochs[i][1] if i < len(self.epochs) and not unknown else self.high_watermark
        return (self.epochs[i - 1][0] if i else epoch), end


class Measured(NamedTuple):
    """The bytes of a log's segments with bases below ``reached``, from the one that holds ``log_start`` on."""

    log_start: int = 0
    reached: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False)
class Partition:
    """Owned state: ``state`` as last written, at ``state_revision``; only a write that compares it can follow."""

    topic: Topic
    ref: PartitionRef
    config: TopicConfig
    state: PartitionState
    state_revision: int
    log: CommittedLog
    buffer: WriteBuffer
    # Since when the interval counts (Trio time): the beginning of the last flush.
    last_flush: float = -math.inf
    # The number of the timer that will seal the open buffer; 0: none.
    timer: int = 0
    # Why nothing more can be written, for a person: damaged or rolled-back metadata.
    offline: str | None = None
    # It is handed over: readers are served as before, appends and deletes are not begun any more.
    moving: bool = False
    # This epoch is over here: fenced, deleted, released. Uploads under way end by themselves.
    closed: bool = False
    # Uploads and deletes that were begun and have not ended.
    under_way: int = 0
    # A request's outcome was unknown at this Trio time: it may still land for a while.
    last_unknown_request: float = -math.inf
    last_unknown_delete: float = -math.inf
    # The former owner died, or gave up before its requests had ended: its last ones may still land for a while.
    unclean: bool = False
    taken_at: float = 0.0  # Trio time
    # Idempotent producers up to the log's end, and up to the high watermark.
    producers: ProducerTable = field(default_factory=lambda: ProducerTable(0))
    committed_producers: ProducerTable = field(default_factory=lambda: ProducerTable(0))
    sinks: SinkPositions = field(default_factory=SinkPositions)
    # Where the log is to start from its next state on.
    wanted_log_start: int = 0
    # The log start below which all objects are known to be deleted.
    deleted_below: int = 0
    # Objects that were above the high watermark when this owner began.
    leftovers: list[SegmentKey] = field(default_factory=list)
    # When retention looked at it last (Trio time).
    looked_at: float = -math.inf
    # Somebody else removed its oldest objects: the log start is to move over them.
    oldest_gone: bool = False
    # How much of the object store the log of a compacted topic took then.
    measured: Measured = field(default_factory=Measured)
    segments_since_snapshot: int = 0
    snapshot_under_way: bool = False
    # What former owners left of snapshots is deleted.
    snapshots_tidied: bool = False
    # A snapshot's key and high watermark, for the next state to refer to.
    next_snapshot: tuple[str, int] | None = None
    # What its catalog's next page will hold.
    unfinished: UnfinishedPage = field(default_factory=UnfinishedPage)
    _ended: trio.Event = field(default_factory=trio.Event)

    @property
    def unreported(self) -> bool:
        """Whether the state is to be written although there are no new records."""
        to_refer = self.moving and self.next_snapshot is not None
        return self.wanted_log_start > self.state.log_start or to_refer

    def refer(self, state: PartitionState) -> None:
        """Let ``state``, about to be written, refer to the snapshot that was stored last."""
        if self.next_snapshot is not None:
            state.producer_snapshot, state.producers_from = self.next_snapshot

    def request_ended(self) -> None:
        """One of those that were counted in ``under_way``."""
        self.under_way -= 1
        self._ended.set()
        self._ended = trio.Event()

    async def one_ended(self) -> None:
        """Wait until one of the uploads and deletes that are under way has ended."""
        await self._ended.wait()

    async def quiet(self) -> None:
        """Wait until no upload or delete of this owner is under way."""
        while self.under_way:
            await self.one_ended()

    def may_land(self, settle_seconds: float) -> bool:
        """Whether anything that this owner or an unclean former one sent may still reach the object store."""
        latest = max(self.last_unknown_request, self.taken_at if self.unclean else -math.inf)
        return self.under_way > 0 or trio.current_time() < latest + settle_seconds

    def standing(self, *, lost: bool = False) -> Committed:
        """What commit streams are told; ``lost``: what is above the high watermark is not kept."""
        return Committed(
            partition=self.ref,
            epoch=self.epoch,
            high_watermark=self.log.high_watermark,
            log_start=self.log.log_start,
            lost=lost,
        )

    @property
    def has_leftovers(self) -> bool:
        """Whether there may be objects that are not the log's any more: deletions of a former owner go on with this."""
        return self.log.log_start > self.deleted_below or bool(self.leftovers)

    @property
    def key(self) -> tuple[bytes, int]:
        return self.topic.id, self.ref.partition

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.ref.partition}"


def history_of(value: EpochHistory) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.first_offset) for entry in value.entries]


def is_earlier_topics(epoch: int, floor: int) -> bool:
    """Whether an object of ``epoch`` is an earlier topic's of the name, or of a copy that was given up before it.

    ``floor``: the topic's. What is imported has epoch 0, as the floor of a topic that had none before it.
    """
    return epoch <= floor and not epoch == floor == IMPORTED


def settled(history: list[tuple[int, int]], *, epoch: int, first_offset: int, log_start: int) -> list[tuple[int, int]]:
    """The history once ``epoch`` begins at ``first_offset``; epochs that wrote nothing or lie below the log go."""
    kept = [entry for entry in history if entry[1] < first_offset]
    oldest_needed = max(bisect_right(kept, log_start, key=lambda entry: entry[1]) - 1, 0)
    return [*kept[oldest_needed:], (epoch, first_offset)]
