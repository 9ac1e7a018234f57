"""Puts the records of all partitions of a run into its chain of intake objects, from where they are durable.

Records wait until a put may begin: at most a few objects are on their way, and the pace allows one. An object has
all batches that wait by then, up to a size. When all objects up to one are stored, its records are durable: the high
watermarks of their partitions move, without a write to the metadata store. Segments are made of the same records later.
Of a partition whose buffer fills up before its records are in an object, they are put once, as a segment, and its later
records wait for that. If it takes long, they are put into objects nevertheless.
Each object names a checkpoint, the first object that is needed because its records are not in segments. The run deletes
what is below a checkpoint that a stored object names.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import structlog
import trio

from kafscale import paths
from kafscale.attempts import Attempts
from kafscale.clock import run_clock
from kafscale.errors import KafscaleError
from kafscale.intake.format import Entry, encode
from kafscale.metadata.interface import LeaseNotFound
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.objects.interface import MAX_KEYS, Body, ObjectStore, Pieces
from kafscale.objects.puts import put_own
from kafscale.signals import Signal
from kafscale.threads import RunSync
from kafscale.tracing import Span, Tracer
from kafscale.v1.metadata_pb2 import SinkProgress
from services.storage.counters import StorageCounters
from services.storage.intake.pace import Pace
from services.storage.log.commit import Commit
from services.storage.log.partition import Kept, Partition

log = structlog.get_logger()

_INLINE_BYTES = 2 << 20  # encoding less than this takes less time than waiting for a thread
_LARGE_PIECE = 4 << 10
"""The average size in bytes from which writing pieces takes less time than joining them."""
_REPEAT_AFTER = 1.0
"""Seconds without an answer after which a put is repeated beside the first one."""
_WATCH_SECONDS = 0.25
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_CARRIED_AFTER = 60.0
"""Seconds after which records that keep the checkpoint back are put again."""
_DELETED_AT_A_TIME = 100
_TIDY_SECONDS = 10.0
_TIDY_LONG_SECONDS = 1.0
"""The same while the chain is too long."""
_LARGE_PART = 64
"""The time between batches of at least 1/_LARGE_PART of a buffer is observed."""
_SEGMENT_PATIENCE = 1.0
"""Seconds after which records that wait for a segment of their partition are put."""


@dataclass(slots=True, eq=False)
class _Object:
    """An object of the chain from the first one that is needed.

    ``entries``: what it has of each partition, until it counts. ``needed``: what is needed of that from then on.
    ``since``: when the oldest of its records were first put. ``appends``: how many it has. Times are Trio's.
    """

    number: int
    checkpoint: int
    begun: float
    since: float
    entries: list[tuple[Partition, Entry]]
    # Older objects whose entries this one repeats.
    carries: list["_Object"] = field(default_factory=list)
    size: int = 0
    appends: int = 0
    needed: list[tuple[Partition, Kept]] = field(default_factory=list)
    body: Body = b""
    span: Span | None = None
    stored: bool = False
    stored_at: float = 0.0
    repeated: bool = False
    error: str = ""


class IntakeWriter:
    """The intake of one run. Requires that `run` is running.

    ``objects`` need not retry. At most ``window`` objects are on their way at the same time, no more than WINDOW.
    An object of ``put_bytes`` needs no token of the pace. It has about ``object_bytes`` at most.
    ``durable`` is called with each partition whose records became durable; its buffer then has the new
    ``durable_end``. ``segments_end`` reads where the segments of a partition end that this run no longer owns.
    ``too_long`` is called with the partitions whose records must become segments, because the chain exceeds
    ``chain_bytes``.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        nursery: trio.Nursery,
        namespace: str,
        run_id: str,
        pace: Pace,
        window: int,
        put_bytes: int,
        object_bytes: int,
        chain_bytes: int,
        now_ms: Callable[[], int],
        run_sync: RunSync,
        durable: Callable[[Partition], None],
        too_long: Callable[[Partition], None],
        segments_end: Callable[[Partition], Awaitable[int]],
        counters: StorageCounters,
        tracer: Tracer | None,
    ) -> None:
        self._objects = objects
        self._nursery = nursery
        self._namespace = namespace
        self._run_id = run_id
        self._pace = pace
        self._window = window
        self._put_bytes = put_bytes
        self._object_bytes = object_bytes
        self._chain_bytes = chain_bytes
        self._now_ms = now_ms
        self._now = run_clock()
        self._run_sync = run_sync
        self._durable = durable
        self._too_long = too_long
        self._segments_end = segments_end
        self._counters = counters
        self._tracer = tracer
        # Partitions with records that wait, and by when they must be put although the pace does not allow it.
        self._waiting: dict[Partition, float] = {}
        self._waiting_bytes = 0
        self._waiting_appends = 0
        # Partitions whose open buffer is waited for, because it may become full soon.
        self._filling: dict[Partition, None] = {}
        self._fillings = Attempts(factor=2, most=63)
        # Partitions whose records wait for a segment, and until when.
        self._bulk: dict[Partition, float] = {}
        # A partition with an end of its log and when it was reached: the wait of one record at a time is observed.
        self._observed: tuple[Partition, int, float] | None = None
        self._next = 1
        self._counted = 0
        # Objects from the first one that is needed, and those of them that do not count yet.
        self._chain: deque[_Object] = deque()
        self._under_way: deque[_Object] = deque()
        self._chain_size = 0
        self._carrying: list[_Object] = []
        self._named_checkpoint = 1
        self._deleted_below = 1
        self._wake = trio.Event()
        self._counting = Signal()

    @property
    def waiting(self) -> int:
        """The number of bytes that wait for an object."""
        return self._waiting_bytes

    @property
    def objects(self) -> int:
        """The number of objects that are needed or on their way."""
        return len(self._chain)

    @property
    def size(self) -> int:
        """The size of these objects in bytes."""
        return self._chain_size

    @property
    def oldest_seconds(self) -> float:
        """The time since the oldest records in these objects were first put; 0 if there are none."""
        now = self._now()
        return now - min((one.since for one in self._chain), default=now)

    @property
    def late(self) -> tuple[float, str]:
        """For how many seconds the oldest object on its way is not stored, and its last error; (0, "") if none is."""
        if not self._under_way:
            return 0.0, ""
        return self._now() - self._under_way[0].begun, self._under_way[0].error

    @property
    def tokens(self) -> float:
        """How many objects may be put at once. Negative if one was put although the pace did not allow it."""
        return self._pace.tokens(self._now())

    def accept(self, partition: Partition, size: int) -> None:
        """Called when ``size`` bytes were appended to the partition's buffer."""
        if _LARGE_PART * size >= partition.buffer.segment_bytes or partition in self._filling:
            partition.filling.arrived(self._now(), may_go_on=_may_go_on(partition, size))
        if partition in self._filling:
            if partition.buffer.is_bulk:
                self._end_filling(partition)
                self._bulk[partition] = self._now() + _SEGMENT_PATIENCE
        elif partition in self._waiting:
            self._waiting_bytes += size
            self._waiting_appends += 1
            is_large = self._waiting_bytes - size < self._put_bytes <= self._waiting_bytes
            if is_large or self._waiting_appends == self._pace.expected:
                self._wake.set()
        elif partition not in self._bulk:
            self._waiting_appends += 1
            self._wait(partition)
        if self._observed is None:
            self._observed = partition, partition.buffer.next_offset, self._now()

    def _end_filling(self, partition: Partition) -> None:
        del self._filling[partition]
        partition.filling.end(partition.buffer, self._fillings)

    def _end_late_fillings(self, now: float) -> float:
        """Put the records of buffers that are not full in time. Return when the next one must be full."""
        for partition in [one for one in self._filling if one.filling.until <= now]:
            self._end_filling(partition)
            self._wait(partition)
        return min((partition.filling.until for partition in self._filling), default=math.inf)

    def _wait(self, partition: Partition) -> None:
        self._waiting[partition] = self._now() + partition.config.flush_ms / 1000
        self._waiting_bytes += partition.buffer.unchained_bytes
        self._wake.set()

    def committed(self, commit: Commit) -> None:
        """Forget records that are in segments now, and let records enter the intake that have waited for a segment.

        Committed buffers must be dropped before.
        """
        partition = commit.partition
        _forget_what_is_in_segments(partition)
        if partition in self._bulk and partition.buffer.is_bulk:
            self._bulk[partition] = self._now() + _SEGMENT_PATIENCE
        elif partition in self._bulk:
            del self._bulk[partition]
            if partition.buffer.unchained_bytes and partition not in self._waiting:
                self._wait(partition)

    async def quiet(self, key: tuple[bytes, int]) -> None:
        """Wait until no object with records of the partition is on its way."""
        while any(partition.key == key for one in self._under_way for partition, _ in one.entries):
            await self._counting.wait()

    async def run(self) -> None:
        """Begin objects until cancelled. Raises LeaseNotFound in the nursery if the chain is sealed."""
        self._nursery.start_soon(self._watch)
        self._nursery.start_soon(self._tidy)
        while True:
            await self._may_put()
            begun = self._begin()
            if begun is None:
                continue
            if self._window == 1:
                await self._put(begun)
            else:
                self._nursery.start_soon(self._put, begun)

    async def _may_put(self) -> None:
        """Wait until there are records and an object with them may be put."""
        while True:
            now = self._now()
            wake_at = self._end_late_fillings(now) if self._filling else math.inf
            due = math.inf
            if self._waiting and self._next - self._counted <= self._window:
                large = self._waiting_bytes >= self._put_bytes
                delay = self._pace.delay(now, others=bool(self._under_way), large=large, gathered=self._gathered)
                if not delay:
                    return
                due = min(now + delay, *self._waiting.values())
            elif self._carrying and self._next - self._counted <= self._window:
                return
            if due <= now:
                return
            self._wake = trio.Event()
            wake_at = min(wake_at, due)
            if wake_at == math.inf:
                await self._wake.wait()
                continue
            with trio.move_on_at(wake_at):
                await self._wake.wait()

    @property
    def _gathered(self) -> bool:
        """Whether the next object need not wait for more appends: as many wait as are expected, or it is full."""
        return self._waiting_appends >= self._pace.expected or self._waiting_bytes >= self._object_bytes

    def _begin(self) -> _Object | None:
        """Take the batches of the next object; None if there are none."""
        gathered = self._gathered or not self._waiting
        entries, traces = list(self._carried()), list[str]()
        carries, self._carrying = self._carrying, []
        size = sum(entry.size for _, entry in entries)
        now = self._now()
        for partition in list(self._waiting):
            if partition.closed or partition.offline:
                del self._waiting[partition]
                self._bulk.pop(partition, None)
                continue
            if partition.buffer.is_bulk and self._bulk.setdefault(partition, now + _SEGMENT_PATIENCE) > now:
                del self._waiting[partition]
                continue
            fills = partition.filling.is_due(partition.buffer, self._fillings)
            taken = partition.buffer.to_chain(self._object_bytes - size, only_sealed=fills)
            if taken is not None:
                size += taken.size
                traces += taken.traces
                sinks = [
                    SinkProgress(sink=epoch.sink, epoch=epoch.epoch, batches=batches, committed_ms=epoch.committed_ms)
                    for epoch, batches in taken.sinks.items()
                ]
                pieces = [part for piece in taken.pieces for part in piece]
                entry = Entry(partition.ref, partition.epoch, taken.base_offset, taken.next_offset, pieces, sinks)
                entries.append((partition, entry))
            if fills and partition.buffer.chained_end >= partition.buffer.open_offset:
                del self._waiting[partition]
                self._filling[partition] = None
                partition.filling.begin(now, partition.buffer, partition.config.flush_ms / 1000)
            elif partition.buffer.chained_end >= partition.buffer.next_offset:
                del self._waiting[partition]
            if not partition.buffer.is_bulk:
                self._bulk.pop(partition, None)
            if size >= self._object_bytes:
                break
        self._waiting_bytes = sum(partition.buffer.unchained_bytes for partition in self._waiting)
        self._observe_wait(now)
        appends, self._waiting_appends = self._waiting_appends, 0
        if not entries:
            return None
        self._pace.began(now, large=size >= self._put_bytes, gathered=gathered)
        since = min((one.since for one in carries), default=now)
        begun = _Object(self._next, self._checkpoint(), now, since, entries, carries, size, appends)
        begun.span = self._span(begun, traces)
        self._next += 1
        self._chain.append(begun)
        self._under_way.append(begun)
        self._chain_size += size
        for partition, _ in entries:
            partition.in_chain += 1
        return begun

    def _span(self, one: _Object, traces: list[str]) -> Span | None:
        """Return the span of the object for its traced batches: a child of the first, linked to the others."""
        if self._tracer is None or not traces:
            return None
        first, *others = traces
        return self._tracer.go_on("intake", first, links=others, object=one.number, bytes=one.size)

    def _observe_wait(self, now: float) -> None:
        if self._observed is None:
            return
        partition, end, arrived = self._observed
        if partition.closed or partition.offline:
            self._observed = None
        elif partition.buffer.chained_end >= end:
            self._counters.intake_wait_seconds.observe(now - arrived)
            self._observed = None

    def _carried(self) -> Iterable[tuple[Partition, Entry]]:
        for one in self._carrying:
            for partition, kept in one.needed:
                if kept.entry is not None and _is_needed(partition, kept):
                    yield partition, kept.entry

    def _checkpoint(self) -> int:
        """Return the number of the first object that is needed, which the next object names."""
        while self._chain and self._chain[0].number <= self._counted:
            first = self._chain[0]
            first.needed = [each for each in first.needed if _is_needed(*each)]
            if first.needed:
                break
            self._chain_size -= self._chain.popleft().size
        return self._chain[0].number if self._chain else self._next

    async def _put(self, one: _Object) -> None:
        """Put the object until it is stored. Raises LeaseNotFound if its place is taken by a seal."""
        if not (one.body or one.stored):
            build = partial(self._encoded, one, self._now_ms(), [entry for _, entry in one.entries])
            one.body = build() if one.size < _INLINE_BYTES else await self._run_sync(build)
            # It would keep the batches in memory until this put ends, although another one may have stored them.
            del build
        key = paths.intake_key(self._namespace, self._run_id, one.number)
        outage = Outage("intake object not stored, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while not one.stored:
            try:
                there = await put_own(self._objects, key, one.body)
            except KafscaleError as error:
                if not one.stored:
                    one.error = str(error)
                    await outage.pause(error, key=key)
                continue
            if one.stored:
                return
            if there is not None:
                raise LeaseNotFound(f"another run has sealed the intake at {key}")
            self._stored(one)

    def _encoded(self, one: _Object, created_ms: int, entries: list[Entry]) -> Body:
        pieces = encode(
            self._namespace,
            self._run_id,
            number=one.number,
            checkpoint=one.checkpoint,
            created_ms=created_ms,
            entries=entries,
        )
        # A directory writes large pieces without a copy, while S3 needs one buffer for each try.
        if self._window == 1 and one.size >= _LARGE_PIECE * len(pieces):
            return Pieces(pieces)
        return b"".join(pieces)

    def _stored(self, one: _Object) -> None:
        one.stored, one.stored_at = True, self._now()
        self._counters.intake_put_seconds.observe(one.stored_at - one.begun)
        self._pace.ended(one.stored_at - one.begun)
        counted: dict[Partition, None] = {}
        appends = 0
        while self._under_way and self._under_way[0].stored:
            appends += self._under_way[0].appends
            self._count(self._under_way.popleft(), counted)
        for partition in counted:
            self._durable(partition)
        if counted:
            seconds = one.stored_at - one.begun
            self._pace.acknowledged(one.stored_at, appends, waiting=self._waiting_appends, seconds=seconds)
            self._wake.set()
            self._counting.notify()

    def _count(self, one: _Object, counted: dict[Partition, None]) -> None:
        """Apply an object that counts: all objects before it are stored."""
        self._counted = one.number
        self._named_checkpoint = one.checkpoint
        one.body = b""
        if one.span is not None:
            one.span.end()
        self._counters.intake_objects += 1
        self._counters.intake_bytes += one.size
        self._counters.intake_count_seconds.observe(self._now() - one.stored_at)
        for carried in one.carries:
            for _, kept in carried.needed:
                kept.entry = None
            carried.needed = []
        one.carries = []
        for partition, entry in one.entries:
            kept = Kept(entry)
            one.needed.append((partition, kept))
            partition.in_intake.append(kept)
            partition.in_chain -= 1
            partition.buffer.durable_end = max(partition.buffer.durable_end, entry.next_offset)
            _forget_what_is_in_segments(partition)
            counted[partition] = None
        one.entries = []

    async def _watch(self) -> None:
        """Repeat puts that are not answered, and have records put or flushed that waited for too long."""
        while True:
            await trio.sleep(_WATCH_SECONDS)
            now = self._now()
            for one in self._under_way:
                if not one.stored and one.body and not one.repeated and one.begun <= now - _REPEAT_AFTER:
                    one.repeated = True
                    self._nursery.start_soon(self._put, one)
            for partition, until in self._bulk.items():
                if until <= now and partition not in self._waiting:
                    self._wait(partition)
            if self._chain_size > self._chain_bytes:
                for partition, _ in self._chain[0].needed:
                    self._too_long(partition)

    async def _tidy(self) -> None:
        """Delete objects that are no longer needed, and put the records again that keep others from being deleted."""
        tidied = self._now()
        while True:
            await trio.sleep(_WATCH_SECONDS)
            pause = _TIDY_LONG_SECONDS if self._chain_size > self._chain_bytes else _TIDY_SECONDS
            is_due = self._now() >= tidied + pause
            if is_due or self._named_checkpoint - self._deleted_below >= _DELETED_AT_A_TIME:
                await self._settle_released()
                self._carry_old(self._now())
                await self._delete()
                tidied = self._now()

    async def _settle_released(self) -> None:
        """Learn which records that keep the checkpoint back new owners have put into segments."""
        self._checkpoint()
        first = self._chain[0].needed if self._chain else ()
        for partition in {partition: None for partition, _ in first if partition.closed}:
            try:
                partition.log.segments_end = await self._segments_end(partition)
            except STORE_FAILURES as error:
                log.warning("intake not tidied, the metadata store does not answer", error=str(error))
                return
            _forget_what_is_in_segments(partition)

    def _carry_old(self, now: float) -> None:
        """Put the records again that keep the checkpoint back for long, if newer objects could then be deleted."""
        self._checkpoint()
        if self._carrying or len(self._chain) < 2:
            return
        first = self._chain[0]
        if first.number <= self._counted and first.begun <= now - _CARRIED_AFTER:
            self._carrying = [first]
            self._wake.set()

    async def _delete(self) -> None:
        """Delete the objects below the last checkpoint that a stored object names."""
        start, end = self._deleted_below, min(self._named_checkpoint, self._deleted_below + MAX_KEYS)
        if start >= end:
            return
        keys = [paths.intake_key(self._namespace, self._run_id, number) for number in range(start, end)]
        try:
            await self._objects.delete_many(keys, unused=True)
        except KafscaleError as error:
            log.warning("intake objects not deleted, retrying later", error=str(error))
            return
        self._deleted_below = end


def _may_go_on(partition: Partition, size: int) -> bool:
    """Whether producers may send more before the last ``size`` bytes are acknowledged: they have done so before, or are
    not idempotent, because idempotent ones have few requests in flight."""
    buffer = partition.buffer
    return partition.in_chain > 0 or buffer.unchained_bytes > size or not buffer.ends_with_sequence


def _forget_what_is_in_segments(partition: Partition) -> None:
    """Free the memory of batches in stored objects that need not be put again. Mostly, later ones are needed longer."""
    while partition.in_intake and not _is_needed(partition, partition.in_intake[0]):
        partition.in_intake.popleft().entry = None


def _is_needed(partition: Partition, kept: Kept) -> bool:
    return kept.entry is not None and kept.entry.next_offset > partition.log.segments_end
