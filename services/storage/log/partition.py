"""One partition that this instance owns, in one epoch."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from kafscale.intake.format import Entry
from kafscale.paths import SegmentKey
from kafscale.signals import Signal
from kafscale.topics.configs import TopicConfig
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState, Topic
from services.storage.log.buffer import WriteBuffer
from services.storage.log.filling import Filling
from services.storage.log.pages import KnownPages, UnfinishedPage
from services.storage.log.producers import ProducerTable
from services.storage.log.rewritten import RewrittenLog
from services.storage.log.segments import SegmentMap
from services.storage.log.sink_progress import SinkPositions

IMPORTED = 0
"""The epoch of segments written by KafScale 1. Offsets may be missing between them."""


@dataclass(slots=True, eq=False)
class CommittedLog:
    """The part of a partition's log that readers see: from ``log_start`` up to, not including, ``high_watermark``.

    Up to ``segments_end`` it is in segments. What follows is in memory, in ``tail``, which only the owner has.
    ``epochs`` is the epoch history as (epoch, first offset), ascending, read at the same revision as ``segments_end``.
    """

    topic: str
    topic_id: bytes
    partition: int
    epochs: list[tuple[int, int]]
    log_start: int
    segments_end: int
    segments: SegmentMap
    pages: KnownPages = field(default_factory=KnownPages)
    # By epoch, the first offset that its owner assigned, if it recovered records of its predecessor before that.
    leader_offsets: dict[int, int] = field(default_factory=dict)
    tail: WriteBuffer | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def high_watermark(self) -> int:
        """The offset up to which records are durable, in segments or otherwise."""
        return self.segments_end if self.tail is None else max(self.segments_end, self.tail.durable_end)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of the segment object at base ``offset`` if it belongs to the log; -1 if none can."""
        i = bisect_right(self.epochs, offset, key=lambda entry: entry[1]) - 1
        return self.epochs[i][0] if i >= 0 else -1

    def epoch_at(self, offset: int) -> tuple[int, float]:
        """Return the epoch of the batch at ``offset``, and the first offset of the next epoch, or infinity."""
        i = bisect_right(self.epochs, offset, key=lambda entry: entry[1])
        return self.epochs[i - 1][0], self.epochs[i][1] if i < len(self.epochs) else math.inf

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset, as Kafka's OffsetForLeaderEpoch defines it.

        (-1, -1) for a future epoch. An epoch before all known ones ends where the first of these begins. Clients that
        know no epoch send 0: unless records have it, it ends at the high watermark, so that no client concludes that
        its position was truncated.
        """
        i = bisect_right(self.epochs, epoch, key=lambda entry: entry[0])
        if epoch < 0 or (i == len(self.epochs) and self.epochs[-1][0] < epoch):
            return -1, -1
        unknown = i == 0 and epoch == IMPORTED
        end = self.high_watermark
        if i < len(self.epochs) and not unknown:
            following, first_offset = self.epochs[i]
            end = self.leader_offsets.get(following, first_offset)
        return (self.epochs[i - 1][0] if i else epoch), end


class CommitEvent(NamedTuple):
    """The fields of a `Committed`. Creating a message takes longer, and in one process nobody needs it."""

    partition: PartitionRef
    epoch: int
    high_watermark: int
    log_start: int
    lost: bool
    in_memory: int


class Measured(NamedTuple):
    """The bytes of a log's segments from the one that holds ``log_start`` up to base offset ``reached``, exclusive."""

    log_start: int = 0
    reached: int = 0
    bytes: int = 0


@dataclass(slots=True, eq=False)
class Kept:
    """Batches of an intake object. They stay in memory until they are in segments, because they may be put again."""

    entry: Entry | None


@dataclass(slots=True, eq=False)
class Partition:
    """An owned partition. ``state`` was last written at ``state_revision``, which the next write must compare."""

    topic: Topic
    ref: PartitionRef
    config: TopicConfig
    state: PartitionState
    state_revision: int
    log: CommittedLog
    buffer: WriteBuffer
    # When the last flush began (Trio time); flush.ms counts from here.
    last_flush: float = -math.inf
    # The number of the timer that will seal the open buffer; 0 if none is set.
    timer: int = 0
    # A plan waits for the segment of the open buffer.
    planned: bool = False
    filling: Filling = field(default_factory=Filling)
    # How many bytes of the open buffer are counted among those of all partitions.
    open_counted: int = 0
    # Records below this offset were recovered from a former owner's intake. They must be in segments before appends.
    recovered_end: int = 0
    # Why no writes are accepted (damaged or rolled-back metadata), as a message for operators.
    offline: str | None = None
    # Being handed over: readers are served, new appends and deletes are refused.
    moving: bool = False
    # This epoch has ended here (fenced, deleted or released). Uploads in progress finish on their own.
    closed: bool = False
    # Uploads and deletes in progress.
    under_way: int = 0
    # The bases of committed segments whose index is being stored.
    without_index: set[int] = field(default_factory=set)
    # Intake objects with records of this partition that are not known to be stored.
    in_chain: int = 0
    # Its records in objects that are stored and count, until they are in segments, in the order of the objects.
    in_intake: deque[Kept] = field(default_factory=deque)
    # Trio time of the last request with an unknown outcome; it may still take effect for a while.
    last_unknown_request: float = -math.inf
    last_unknown_delete: float = -math.inf
    # The former owner died or gave up with requests in progress, which may still take effect for a while.
    unclean: bool = False
    taken_at: float = 0.0  # Trio time
    # Idempotent producers up to the log end offset, and up to the high watermark.
    producers: ProducerTable = field(default_factory=lambda: ProducerTable(0))
    committed_producers: ProducerTable = field(default_factory=lambda: ProducerTable(0))
    sinks: SinkPositions = field(default_factory=SinkPositions)
    # The log start of the next state to be written.
    target_log_start: int = 0
    # The log start below which all objects are known to be deleted.
    deleted_below: int = 0
    # Objects above the high watermark when this owner began.
    leftovers: list[SegmentKey] = field(default_factory=list)
    # When retention last checked this partition (Trio time).
    looked_at: float = -math.inf
    # The oldest objects were removed externally; the log start must move past them.
    oldest_gone: bool = False
    # The size of a compacted topic's log at that time.
    measured: Measured = field(default_factory=Measured)
    segments_since_snapshot: int = 0
    snapshot_under_way: bool = False
    # Whether leftover snapshots of former owners are deleted.
    snapshots_tidied: bool = False
    # Key and high watermark of the snapshot that the next state refers to.
    next_snapshot: tuple[str, int] | None = None
    # The content of the next catalog page.
    unfinished: UnfinishedPage = field(default_factory=UnfinishedPage)
    # The root of the next state.
    next_root: RewrittenLog | None = None
    # The keys that the root lists as replaced, and since when it is known to be committed (Trio time).
    obsolete: dict[str, float] = field(default_factory=dict)
    # The number of rewrites and roots that this owner has begun, and the numbers of those that came to nothing.
    attempts: int = 0
    ended_attempts: set[int] = field(default_factory=set)
    # Keys that no root lists any more, and which are not known to be deleted.
    undeleted: dict[str, None] = field(default_factory=dict)
    # Whether objects of attempts that came to nothing may exist.
    unswept: bool = True
    # The rewrite in progress. It ends with the epoch, and when the partition is handed over.
    rewriting: trio.CancelScope | None = None
    # What compaction has not seen yet: its size, and the time of its oldest records in ms; None if there are none.
    dirty_bytes: int = 0
    dirty_since_ms: int | None = None
    _ended: Signal = field(default_factory=Signal)

    @property
    def is_recovering(self) -> bool:
        """Whether records of a former owner's intake are not in segments yet. Readers have them, but nothing may be
        appended."""
        return self.log.segments_end < self.recovered_end

    @property
    def unreported(self) -> bool:
        """Whether the state must be written even without new records."""
        to_refer = self.moving and self.next_snapshot is not None
        return self.target_log_start > self.state.log_start or to_refer or self.next_root is not None

    def refer(self, state: PartitionState) -> None:
        """Make ``state``, which is about to be written, refer to the last stored snapshot."""
        if self.next_snapshot is not None:
            state.producer_snapshot, state.producers_from = self.next_snapshot

    def follow_root(self) -> None:
        """Called when the state was written. If that has the next root, the log is as this root says."""
        following = self.next_root
        if following is not None and following.ref == self.state.root:
            self._keep(following)
            self.next_root = None

    def found_root(self, found: RewrittenLog) -> None:
        """Called with the state's root if it could not be read when this owner began."""
        self.log.epochs = whole_history(found, self.log.epochs)
        self.log.leader_offsets |= leader_offsets_of(found.epochs)
        self._keep(found)

    def _keep(self, rewritten: RewrittenLog) -> None:
        now, listed = trio.current_time(), rewritten.root.obsolete if rewritten.root is not None else ()
        self.obsolete = {key: self.obsolete.get(key, now) for key in listed}
        self.log.segments.rewrite(rewritten)

    def stop_rewriting(self) -> None:
        """Cancel the rewrite in progress, if any. Objects that it stored may still arrive."""
        if self.rewriting is not None:
            self.rewriting.cancel()
            self.last_unknown_request = trio.current_time()

    def request_ended(self) -> None:
        """Called when a request counted in ``under_way`` has ended."""
        self.under_way -= 1
        self._ended.notify()

    async def one_ended(self) -> None:
        """Wait until one of the uploads and deletes in progress has ended."""
        await self._ended.wait()

    async def indexed(self, end: int) -> None:
        """Wait until the indexes of all committed segments below ``end`` are stored, or the partition is closed."""
        while any(base < end for base in self.without_index) and not self.closed:
            await self.one_ended()

    async def quiet(self) -> None:
        """Wait until no upload or delete of this owner is in progress."""
        while self.under_way:
            await self.one_ended()

    def may_land(self, settle_seconds: float) -> bool:
        """Return whether a request of this owner, or of an unclean former one, may still reach the object store."""
        latest = max(self.last_unknown_request, self.taken_at if self.unclean else -math.inf)
        return self.under_way > 0 or trio.current_time() < latest + settle_seconds

    def committed_event(self, *, lost: bool = False) -> CommitEvent:
        """Return the event for commit streams. ``lost``: records above the high watermark are discarded."""
        log, high_watermark = self.log, self.log.high_watermark
        in_memory = high_watermark - log.segments_end
        return CommitEvent(self.ref, self.epoch, high_watermark, log.log_start, lost, in_memory)

    @property
    def has_leftovers(self) -> bool:
        """Whether objects outside the log may exist, so that deletions of a former owner are continued."""
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


def leader_offsets_of(entries: Iterable[EpochHistory.Entry]) -> dict[int, int]:
    return {entry.epoch: entry.leader_offset for entry in entries if entry.leader_offset}


def whole_history(rewritten: RewrittenLog | None, history: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the epoch history with the epochs that only the root has, because they ended in the rewritten log.

    A history that is not settled, which is empty, stays empty.
    """
    if rewritten is None or not history:
        return history
    return [*((one.epoch, one.first_offset) for one in rewritten.epochs if one.epoch < history[0][0]), *history]


def is_earlier_topics(epoch: int, floor: int) -> bool:
    """Return whether an object of ``epoch`` belongs to an earlier topic, or abandoned copy, of the same name.

    ``floor`` is the epoch floor of the topic. Imported segments and the floor of a first topic are both 0.
    """
    return epoch <= floor and not epoch == floor == IMPORTED


def settled(history: list[tuple[int, int]], *, epoch: int, first_offset: int, log_start: int) -> list[tuple[int, int]]:
    """Return the history with ``epoch`` from ``first_offset`` on, without empty epochs and those below the log."""
    kept = [entry for entry in history if entry[1] < first_offset]
    oldest_needed = max(bisect_right(kept, log_start, key=lambda entry: entry[1]) - 1, 0)
    return [*kept[oldest_needed:], (epoch, first_offset)]
