"""What one partition has taken in and not committed yet, in one epoch: pure bookkeeping, no IO."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from kafscale.records.batch import placed_prefix, walk, with_log_append_time
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment
from services.storage.log.producers import Sequenced
from services.storage.log.sink_progress import SinkEpoch

_MOST_TRACES = 32

Trigger = Literal["size", "interval", "quiet", "request", "hand_over"]
"""Why a buffer is sealed: it is full; flush.ms is over; no more comes; somebody asks for it; its partition leaves."""


@dataclass(slots=True, eq=False)
class Buffer:
    """Placed batches, each as its 16-byte prefix and the rest. Sealed, it never changes; ``segment``: once stored."""

    base_offset: int
    next_offset: int
    size: int = 0
    pieces: list[tuple[bytes, memoryview]] = field(default_factory=list)
    sequenced: list[Sequenced] = field(default_factory=list)
    # How far it has the epochs of sinks, and how many of its bytes are theirs.
    sinks: dict[SinkEpoch, int] = field(default_factory=dict)
    staged: int = 0
    # The places of those of its batches that are traced.
    traces: list[str] = field(default_factory=list)
    trigger: Trigger = "size"
    started: bool = False
    segment: BuiltSegment | None = None


class WriteBuffer:
    """Assigns offsets and collects batches; buffers go from open to sealed to committed in offset order.

    Within an epoch an offset is given once: a refused append takes none, a sealed buffer is kept until it is committed.
    """

    def __init__(self, *, epoch: int, next_offset: int, segment_bytes: int) -> None:
        self._epoch = epoch
        # Looked at by each append.
        self.segment_bytes = segment_bytes
        self._open = Buffer(next_offset, next_offset)
        self._sealed: deque[Buffer] = deque()
        self.uncommitted_bytes = 0
        self.staged_bytes = 0  # of these, what sinks have staged

    @property
    def next_offset(self) -> int:
        """The log end offset: what the next record gets."""
        return self._open.next_offset

    @property
    def open_bytes(self) -> int:
        return self._open.size

    def end_of_first(self, size: int) -> int:
        """The high watermark at which the oldest ``size`` bytes, one commit's at least, will have been committed."""
        for buffer in self._sealed:
            size -= buffer.size
            if size <= 0:
                return buffer.next_offset
        return self._open.next_offset

    def append(self, records: bytes | memoryview, *, log_append_time_ms: int | None = None) -> int:
        """Place the whole batches of ``records`` at the log's end and give the first one's base offset.

        Raises CorruptData where ``records`` is no chain of whole batches; nothing is kept then.
        """
        placed: list[tuple[bytes, memoryview]] = []
        base = following = self._open.next_offset
        for position, header in walk(records):
            rest = memoryview(records)[position + PREFIX_SIZE : position + header.size]
            if log_append_time_ms is not None:
                stamped = with_log_append_time(records[position : position + header.size], log_append_time_ms)
                rest = memoryview(stamped)[PREFIX_SIZE:]
            placed.append((placed_prefix(header, following, self._epoch), rest))
            following += header.last_offset_delta + 1
        self._open.pieces += placed
        self._open.next_offset = following
        self._open.size += len(records)
        self.uncommitted_bytes += len(records)
        if self._open.size >= self.segment_bytes:
            self.seal("size")
        return base

    def note(self, batch: Sequenced) -> None:
        """The batch that was appended last is an idempotent producer's."""
        self._last.sequenced.append(batch)

    def note_trace(self, place: str) -> None:
        """The batch that was appended last is traced; a buffer remembers so many at most."""
        if len(self._last.traces) < _MOST_TRACES:
            self._last.traces.append(place)

    def note_staged(self, epoch: SinkEpoch, batches: int, size: int) -> None:
        """What was appended last, ``size`` bytes, is a sink's: with it the log has so many batches of that epoch."""
        self._last.sinks[epoch] = batches
        self._last.staged += size
        self.staged_bytes += size

    @property
    def _last(self) -> Buffer:
        """Where the batch is that was appended last."""
        return self._open if self._open.pieces else self._sealed[-1]

    def seal(self, trigger: Trigger) -> bool:
        """Close the open buffer, if there is anything in it."""
        if not self._open.pieces:
            return False
        self._open.trigger = trigger
        self._sealed.append(self._open)
        self._open = Buffer(self._open.next_offset, self._open.next_offset)
        return True

    def to_start(self, limit: int) -> Iterator[Buffer]:
        """Sealed buffers whose upload may begin now, oldest first; marks them started.

        At most ``limit`` are started and not committed: a successor may find no more than that of a dead owner.
        """
        for buffer in islice(self._sealed, limit):
            if not buffer.started:
                buffer.started = True
                yield buffer

    def stored(self) -> list[Buffer]:
        """The oldest sealed buffers that are stored, up to the first one that is not: what may be committed."""
        ready = []
        for buffer in self._sealed:
            if buffer.segment is None:
                break
            ready.append(buffer)
        return ready

    def discard(self) -> int:
        """Let go of everything: this epoch commits nothing more. Gives how many bytes that was."""
        self._sealed.clear()
        self._open = Buffer(self._open.next_offset, self._open.next_offset)
        discarded, self.uncommitted_bytes, self.staged_bytes = self.uncommitted_bytes, 0, 0
        return discarded

    def committed(self, buffers: list[Buffer]) -> int:
        """Let go of these, the oldest sealed ones, where they were not discarded. Gives how many bytes that was."""
        freed = 0
        for buffer in buffers:
            if self._sealed and self._sealed[0] is buffer:
                freed += self._sealed.popleft().size
                self.staged_bytes -= buffer.staged
        self.uncommitted_bytes -= freed
        return freed
