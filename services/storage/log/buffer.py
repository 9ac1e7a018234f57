"""The write buffer of one partition in one epoch: records accepted and not committed yet. Bookkeeping only, no I/O."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

from kafscale.intake.tail import Tail
from kafscale.records.batch import BatchHeader, placed_prefix, with_log_append_time
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment
from services.storage.log.producers import Sequenced
from services.storage.log.sink_progress import SinkEpoch

_MAX_TRACES = 32
_LARGE_PART = 16
"""A buffer may become full soon if 1/_LARGE_PART of it arrived at once."""

Trigger = Literal["size", "interval", "quiet", "request", "hand_over", "take_over", "memory"]
"""Why a buffer is sealed: it is full, its interval elapsed, appends paused, a request, a hand-over of the partition, a
take-over with records that the former owner had only in its intake, or much is buffered on this instance."""


@dataclass(slots=True, eq=False)
class Buffer:
    """Batches with offsets, each as its 16-byte prefix and the rest. Immutable once sealed.

    ``segment`` is set once it is stored.
    """

    base_offset: int
    next_offset: int
    size: int = 0
    pieces: list[tuple[bytes, memoryview]] = field(default_factory=list)
    # The base offset of each batch in ``pieces``.
    offsets: list[int] = field(default_factory=list)
    sequenced: list[Sequenced] = field(default_factory=list)
    # After each batch of a sink: the next offset, and how many batches of the sink epoch the log then has.
    sinks: list[tuple[int, SinkEpoch, int]] = field(default_factory=list)
    # How many of the bytes are from sinks.
    staged: int = 0
    # The trace contexts of traced batches.
    traces: list[str] = field(default_factory=list)
    trigger: Trigger = "size"
    started: bool = False
    segment: BuiltSegment | None = None

    def size_from(self, offset: int) -> int:
        """Return the size of the batches from ``offset`` on, where one begins."""
        first = bisect_left(self.offsets, offset)
        return sum(len(prefix) + len(rest) for prefix, rest in self.pieces[first:]) if first else self.size


class Chained(NamedTuple):
    """Consecutive batches for the intake. ``sinks``: how many batches of each sink epoch the log has with them.

    ``traces``: the trace contexts of some of them.
    """

    base_offset: int
    next_offset: int
    size: int
    pieces: list[tuple[bytes, memoryview]]
    sinks: dict[SinkEpoch, int]
    traces: list[str]


class WriteBuffer:
    """Assigns offsets and collects batches. Buffers go from open to sealed to committed in offset order.

    An offset is assigned once per epoch: a refused append uses none, and a sealed buffer is kept until it is committed.
    """

    def __init__(self, *, epoch: int, next_offset: int, segment_bytes: int) -> None:
        self._epoch = epoch
        # Checked on each append, so a change takes effect immediately.
        self.segment_bytes = segment_bytes
        self._open = Buffer(next_offset, next_offset)
        self._sealed: deque[Buffer] = deque()
        # Records below this offset survive the loss of this process. It never falls.
        self.durable_end = next_offset
        # Records below this offset were handed to the intake, or are in segments. The size of those from it on.
        self.chained_end = next_offset
        self.unchained_bytes = 0
        # Where traced batches end that were not handed to the intake yet, and their trace contexts.
        self._unchained_traces: deque[tuple[int, str]] = deque()
        self.uncommitted_bytes = 0
        self.staged_bytes = 0  # the part of uncommitted_bytes that is from sinks

    @property
    def next_offset(self) -> int:
        """The log end offset: the offset of the next record."""
        return self._open.next_offset

    @property
    def open_bytes(self) -> int:
        return self._open.size

    @property
    def open_offset(self) -> int:
        """Where the open buffer begins."""
        return self._open.base_offset

    @property
    def has_sealed(self) -> bool:
        return bool(self._sealed)

    def end_of_first(self, size: int) -> int:
        """Return the high watermark at which the oldest ``size`` bytes, but at least one buffer, are committed."""
        for buffer in self._sealed:
            size -= buffer.size
            if size <= 0:
                return buffer.next_offset
        return self._open.next_offset

    def append(
        self,
        records: bytes | bytearray | memoryview,
        batches: Iterable[tuple[int, BatchHeader]],
        *,
        log_append_time_ms: int | None = None,
    ) -> int:
        """Append the ``batches`` of ``records``, with their positions, and return the base offset of the first."""
        last, view = self._open, memoryview(records)
        base = following = last.next_offset
        for position, header in batches:
            rest = view[position + PREFIX_SIZE : position + header.size]
            if log_append_time_ms is not None:
                stamped = with_log_append_time(records[position : position + header.size], log_append_time_ms)
                rest = memoryview(stamped)[PREFIX_SIZE:]
            last.pieces.append((placed_prefix(header, following, self._epoch), rest))
            last.offsets.append(following)
            following += header.last_offset_delta + 1
        size = len(records)
        last.next_offset = following
        last.size += size
        self.uncommitted_bytes += size
        self.unchained_bytes += size
        if last.size >= self.segment_bytes:
            self.seal("size")
        return base

    def recover(self, tail: Tail) -> None:
        """Take over the durable records of a former owner, in this epoch, and seal them. The buffer must be empty."""
        sinks = deque(tail.sinks)
        for header, batch in tail.batches:
            last = self._open
            last.pieces.append((placed_prefix(header, header.base_offset, self._epoch), batch[PREFIX_SIZE:]))
            last.offsets.append(header.base_offset)
            last.next_offset = header.next_offset
            last.size += header.size
            if header.producer_id >= 0:
                last.sequenced.append(Sequenced.of(header, header.base_offset))
            while sinks and sinks[0][0] <= header.next_offset:
                following, progress = sinks.popleft()
                last.sinks.append((following, SinkEpoch.of(progress), progress.batches))
            self.uncommitted_bytes += header.size
            if last.size >= self.segment_bytes:
                self.seal("take_over")
        self.seal("take_over")
        self.durable_end = self.chained_end = tail.end

    @property
    def recovered(self) -> Iterator[Buffer]:
        """The buffers with records of a former owner."""
        return (buffer for buffer in self._sealed if buffer.trigger == "take_over")

    def note(self, batch: Sequenced) -> None:
        """Record that the last appended batch is from an idempotent producer."""
        self._last.sequenced.append(batch)

    def note_trace(self, place: str) -> None:
        """Record the trace context of the last appended batch, up to _MAX_TRACES per buffer and intake object."""
        if len(self._last.traces) < _MAX_TRACES:
            self._last.traces.append(place)
        if len(self._unchained_traces) < _MAX_TRACES:
            self._unchained_traces.append((self.next_offset, place))

    def note_staged(self, epoch: SinkEpoch, batches: int, size: int) -> None:
        """Record that the last ``size`` bytes are from a sink, and that the log now has ``batches`` of its epoch."""
        self._last.sinks.append((self.next_offset, epoch, batches))
        self._last.staged += size
        self.staged_bytes += size

    @property
    def _last(self) -> Buffer:
        """The buffer with the last appended batch."""
        return self._open if self._open.pieces else self._sealed[-1]

    def seal(self, trigger: Trigger) -> bool:
        """Close the open buffer. Return False if it is empty."""
        if not self._open.pieces:
            return False
        self._open.trigger = trigger
        self._sealed.append(self._open)
        self._open = Buffer(self._open.next_offset, self._open.next_offset)
        return True

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return durable batches from the one that holds ``offset``: about ``max_bytes``, but at least one batch.

        ``offset`` must be in a buffer and below ``durable_end``.
        """
        found: list[bytes | memoryview] = []
        size = 0
        for buffer in (*self._sealed, self._open):
            if buffer.next_offset <= offset:
                continue
            first = bisect_right(buffer.offsets, offset) - 1 if not found else 0
            for (prefix, rest), base in zip(buffer.pieces[first:], buffer.offsets[first:], strict=True):
                size += len(prefix) + len(rest)
                if base >= self.durable_end or (found and size > max_bytes):
                    return b"".join(found)
                found += (prefix, rest)
        return b"".join(found)

    def durable(self) -> list[tuple[bytes, memoryview]]:
        """Return all durable batches in buffers."""
        return self._before(self.durable_end)[0]

    @property
    def volatile_bytes(self) -> int:
        """The size of the batches that are not durable."""
        return sum(
            len(prefix) + len(rest)
            for buffer in (*self._sealed, self._open)
            for (prefix, rest), base in zip(buffer.pieces, buffer.offsets, strict=True)
            if base >= self.durable_end
        )

    @property
    def ends_with_sequence(self) -> bool:
        """Whether the last batch is from an idempotent producer."""
        sequenced = self._last.sequenced
        return bool(sequenced) and sequenced[-1].sent.last_offset + 1 == self.next_offset

    @property
    def may_be_bulk(self) -> bool:
        """Whether the open buffer may become full before any of it is handed to the intake, because much arrived."""
        return self.chained_end <= self._open.base_offset and _LARGE_PART * self._open.size >= self.segment_bytes

    @property
    def is_bulk(self) -> bool:
        """Whether most of a full buffer was not handed to the intake. Its segment makes it durable, with one put."""
        first = next((buffer for buffer in self._sealed if buffer.next_offset > self.chained_end), None)
        return (
            first is not None
            and first.trigger == "size"
            and 2 * first.size_from(self.chained_end) >= self.segment_bytes
        )

    def to_chain(self, limit: int, *, only_sealed: bool = False) -> Chained | None:
        """Return the batches that were not handed to the intake yet, in order, or None if there are none.

        About ``limit`` bytes, but at least one batch. They count as handed over afterwards. ``only_sealed``: without
        those of the open buffer.
        """
        found, size, base = list[tuple[bytes, memoryview]](), 0, self.chained_end
        for buffer in self._sealed if only_sealed else (*self._sealed, self._open):
            if buffer.next_offset <= self.chained_end or (found and size >= limit):
                continue
            first = bisect_left(buffer.offsets, self.chained_end)
            last = first
            while last < len(buffer.pieces) and (not found or size < limit):
                prefix, rest = buffer.pieces[last]
                found.append((prefix, rest))
                size += len(prefix) + len(rest)
                last += 1
            self.chained_end = buffer.offsets[last] if last < len(buffer.pieces) else buffer.next_offset
        if not found:
            return None
        self.unchained_bytes -= size
        sinks = self._sinks_between(base, self.chained_end)
        return Chained(base, self.chained_end, size, found, sinks, self._take_traces())

    def _take_traces(self) -> list[str]:
        """Remove and return the trace contexts of batches that were handed to the intake."""
        taken = []
        while self._unchained_traces and self._unchained_traces[0][0] <= self.chained_end:
            taken.append(self._unchained_traces.popleft()[1])
        return taken

    def durable_batches(self, epoch: SinkEpoch) -> int:
        """Return how many batches of the epoch the log durably has, according to batches in buffers; 0 if none are."""
        return max(
            (
                batches
                for buffer in (*self._sealed, self._open)
                for following, of, batches in buffer.sinks
                if of == epoch and following <= self.durable_end
            ),
            default=0,
        )

    @property
    def sink_epochs(self) -> set[SinkEpoch]:
        """The epochs with batches in buffers."""
        return {epoch for buffer in (*self._sealed, self._open) for _, epoch, _ in buffer.sinks}

    def _sinks_between(self, start: int, end: int) -> dict[SinkEpoch, int]:
        """Return for each sink epoch with batches between the offsets how many of its batches the log then has."""
        return {
            epoch: batches
            for buffer in (*self._sealed, self._open)
            for following, epoch, batches in buffer.sinks
            if start < following <= end
        }

    def to_start(self, limit: int) -> Iterator[Buffer]:
        """Yield the sealed buffers whose upload may begin now, oldest first, and mark them started.

        At most ``limit`` are started and not committed, so the next owner finds at most that many leftover segments.
        """
        for buffer in islice(self._sealed, limit):
            if not buffer.started:
                buffer.started = True
                yield buffer

    def stored(self) -> list[Buffer]:
        """Return the sealed buffers that may be committed: from the oldest up to the first that is not stored."""
        ready = []
        for buffer in self._sealed:
            if buffer.segment is None:
                break
            ready.append(buffer)
        return ready

    def discard(self, *, keep_durable: bool = False) -> int:
        """Drop everything, because this epoch commits nothing more. Return the number of bytes dropped.

        ``keep_durable``: keep the records that are durable, or become so when their intake object is stored, for
        readers. They are not counted any more.
        """
        kept = Buffer(self._open.next_offset, self._open.next_offset)
        if keep_durable:
            kept.pieces, kept.offsets = self._before(self.chained_end)
            kept.base_offset = kept.offsets[0] if kept.offsets else kept.next_offset
        self._sealed.clear()
        self._open = kept
        discarded, self.uncommitted_bytes, self.staged_bytes, self.unchained_bytes = self.uncommitted_bytes, 0, 0, 0
        return discarded

    def _before(self, end: int) -> tuple[list[tuple[bytes, memoryview]], list[int]]:
        """Return the batches in buffers below the offset ``end``, and their base offsets."""
        found = [
            (piece, base)
            for buffer in (*self._sealed, self._open)
            for piece, base in zip(buffer.pieces, buffer.offsets, strict=True)
            if base < end
        ]
        return [piece for piece, _ in found], [base for _, base in found]

    def committed(self, buffers: list[Buffer]) -> int:
        """Drop the committed ``buffers``, the oldest sealed ones, unless already discarded. Return the bytes freed."""
        freed = 0
        for buffer in buffers:
            if self._sealed and self._sealed[0] is buffer:
                freed += self._sealed.popleft().size
                self.durable_end = max(self.durable_end, buffer.next_offset)
                if buffer.next_offset > self.chained_end:
                    self.unchained_bytes -= buffer.size_from(self.chained_end)
                    self.chained_end = buffer.next_offset
                    self._take_traces()
                self.staged_bytes -= buffer.staged
        self.uncommitted_bytes -= freed
        return freed
