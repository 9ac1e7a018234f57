"""Small batches and segments for the tests of segments, the indexer and `kafscale inspect`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from kafscale.records.batch import peek_one, placed_prefix
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment, build_segment

GOLDEN = Path(__file__).parents[2] / "golden" / "segment"
KAFSCALE_1 = GOLDEN / "kafscale-1.6" / "production" / "golden" / "0"
KAFSCALE_1_SEGMENT = KAFSCALE_1 / "segment-00000000000000000000.kfs"
KAFSCALE_1_INDEX = KAFSCALE_1 / "segment-00000000000000000000.index"

EPOCH = 3
CREATED_MS = 1_700_000_000_000


def make_batch(timestamps: Sequence[int], *, codec: Codec = Codec.NONE, value: bytes = b"v") -> bytes:
    """Return a batch like a producer sends it, with one record per timestamp."""
    records = [Record(number, timestamp, b"k", value) for number, timestamp in enumerate(timestamps)]
    return build_batch(records, base_offset=0, codec=codec)


def placed(batches: Iterable[bytes], *, base_offset: int, epoch: int = EPOCH) -> list[tuple[bytes, memoryview]]:
    """Return the batches with consecutive offsets, each in the two parts that the writer takes."""
    pieces = []
    for batch in batches:
        header = peek_one(batch)
        pieces.append((placed_prefix(header, base_offset, epoch), memoryview(batch)[PREFIX_SIZE:]))
        base_offset += header.last_offset_delta + 1
    return pieces


def make_segment(batches: Iterable[bytes], *, base_offset: int = 0, epoch: int = EPOCH) -> BuiltSegment:
    return build_segment(placed(batches, base_offset=base_offset, epoch=epoch), epoch=epoch, created_ms=CREATED_MS)


def small_segment(*, base_offset: int = 1000, batches: int = 3, records: int = 2, epoch: int = EPOCH) -> BuiltSegment:
    """Return a segment whose record i has timestamp 10 * i."""
    return make_segment(
        [make_batch([10 * (number * records + i) for i in range(records)]) for number in range(batches)],
        base_offset=base_offset,
        epoch=epoch,
    )
