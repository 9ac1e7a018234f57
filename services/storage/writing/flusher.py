"""Turn a sealed buffer into a stored segment: compress, build, and put, retrying until done."""

from collections.abc import Callable

import structlog
import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.outage import Outage
from kafscale.objects.interface import Object, ObjectStore, PreconditionFailed
from kafscale.objects.puts import put_own
from kafscale.records.codecs import Codec
from kafscale.records.record import compress_batch
from kafscale.segment.format import SegmentHeader
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment, build_segment
from kafscale.threads import RunSync
from kafscale.tracing import Span, Tracer, within
from services.storage.counters import StorageCounters
from services.storage.log.buffer import Buffer
from services.storage.log.partition import Partition
from services.storage.writing.indexes import IndexWriter

log = structlog.get_logger()

_INLINE_BYTES = 128 * 1024  # building less than this costs less than a thread
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Fenced(KafscaleError):
    """Another run owns the partition now."""


class WentOffline(KafscaleError):
    """A different object has our segment's key, and neither metadata nor epoch explains it."""


class Flusher:
    """Uploads sealed buffers, a bounded number per partition at a time.

    A buffer is retried until it is stored or its epoch has ended, because its offsets are assigned and cannot be reused
    in this epoch.
    """

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        objects: ObjectStore,
        metadata: MetadataStore,
        indexes: IndexWriter,
        namespace: str,
        in_flight: int,
        now_ms: Callable[[], int],
        run_sync: RunSync,
        stored: Callable[[Partition], None],
        abandoned: Callable[[Partition, str, bool], None],
        counters: StorageCounters,
        tracer: Tracer | None,
    ) -> None:
        self._nursery = nursery
        self._objects = objects
        self._metadata = metadata
        self._indexes = indexes
        self._namespace = namespace
        self._in_flight = in_flight
        self._now_ms = now_ms
        self._run_sync = run_sync
        self._stored = stored
        self._abandoned = abandoned
        self._counters = counters
        self._tracer = tracer

    def start(self, partition: Partition) -> None:
        """Start uploads of the partition's sealed buffers, up to the limit in flight."""
        if partition.closed or partition.offline:
            return
        for buffer in partition.buffer.to_start(self._in_flight):
            partition.last_flush = trio.current_time()
            partition.under_way += 1
            self._nursery.start_soon(self._store, partition, buffer)

    async def _store(self, partition: Partition, buffer: Buffer) -> None:
        began = trio.current_time()
        self._counters.flushes[buffer.trigger] += 1
        try:
            await self._indexes.room()
            with within(self._span(partition, buffer)):
                segment = await self._build(partition, buffer)
                await self._put(partition, segment)
        except Fenced as error:
            self._abandoned(partition, str(error), False)
        except WentOffline as error:
            self._abandoned(partition, str(error), True)
        else:
            self._counters.flush_seconds.observe(trio.current_time() - began)
            if not partition.closed:
                buffer.segment = segment
                self._stored(partition)
        finally:
            partition.request_ended()
            self.start(partition)

    def _span(self, partition: Partition, buffer: Buffer) -> Span | None:
        """Return the flush span for the traced batches of the buffer: a child of the first, linked to the others."""
        if self._tracer is None or not buffer.traces:
            return None
        first, *others = buffer.traces
        name, size = partition.name, buffer.size
        return self._tracer.go_on(
            "flush",
            first,
            links=others,
            partition=name,
            base_offset=buffer.base_offset,
            bytes=size,
            trigger=buffer.trigger,
        )

    async def _build(self, partition: Partition, buffer: Buffer) -> BuiltSegment:
        codec, epoch, created = partition.config.compression, partition.epoch, self._now_ms()

        def build() -> BuiltSegment:
            pieces = [_compressed(piece, codec) for piece in buffer.pieces] if codec else buffer.pieces
            applied = any(piece is not original for piece, original in zip(pieces, buffer.pieces, strict=True))
            return build_segment(pieces, epoch=epoch, created_ms=created, flags=codec if applied else Codec.NONE)

        return build() if buffer.size < _INLINE_BYTES else await self._run_sync(build)

    async def _put(self, partition: Partition, segment: BuiltSegment) -> None:
        """Put the segment until it is stored or the partition is closed. Raises Fenced, WentOffline."""
        key = paths.segment_key(self._namespace, partition.ref.topic, partition.ref.partition, segment.base_offset)
        outage = Outage("put failed, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while not partition.closed:
            try:
                there = await put_own(self._objects, key, segment.data)
                if there is not None:
                    await self._replace(partition, key, segment.data, there)
                return
            except (Fenced, WentOffline):
                raise
            except KafscaleError as error:
                # This includes Refused: a full disk or a revoked key can be fixed while the buffer waits.
                partition.last_unknown_request = trio.current_time()
                await outage.pause(error, key=key)

    async def _replace(self, partition: Partition, key: str, data: bytes, there: Object) -> None:
        """Replace the leftover of a dead owner. Raises Fenced or WentOffline for the object of a later owner."""
        try:
            epoch = SegmentHeader.parse(there.body).epoch
        except CorruptData:
            epoch = -1
        if (await self._objects.get(key)).body != there.body:
            # A header has no checksum, and one bad read must neither replace an object nor stop the partition.
            raise PreconditionFailed(f"two reads of {key} differ")
        if epoch < partition.epoch:
            await self._objects.replace_if_match(key, data, there.etag)
            return
        state_key = paths.partition_state_key(self._namespace, partition.ref.topic, partition.ref.partition)
        now = await self._metadata.get(state_key)
        if now is None or now.mod_revision != partition.state_revision:
            raise Fenced(f"object {key} has epoch {epoch}, ours is {partition.epoch}")
        raise WentOffline(f"object {key} has epoch {epoch} and different content, but we own epoch {partition.epoch}")


def _compressed(original: tuple[bytes, memoryview], codec: Codec) -> tuple[bytes, memoryview]:
    """Return the batch compressed, or ``original`` itself if it is already compressed or would not get smaller."""
    batch = b"".join(original)
    packed = compress_batch(batch, codec)
    if packed is batch:
        return original
    return packed[:PREFIX_SIZE], memoryview(packed)[PREFIX_SIZE:]
