"""A small rewritten object, its index and a root that names it, which are also golden files."""

from pathlib import Path

from kafscale.records.batch import HORIZON_BIT, pack_header, peek_one, seal
from kafscale.records.record import Record, build_batch
from kafscale.rewritten.keys import RewrittenKey
from kafscale.rewritten.object import BuiltObject, ObjectBuilder
from kafscale.rewritten.root import Entry, Root, build_root
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale.v1.rewritten_pb2 import CompactionPass

GOLDEN = Path(__file__).parents[2] / "golden" / "rewritten"
KEY = RewrittenKey("ns", "orders", 2, 1000, 1100, 7, 4)
OBJECT = GOLDEN / "00000000000000001000-00000000000000001100-7-4.kfs"
INDEX = GOLDEN / "00000000000000001000-00000000000000001100-7-4.index"
ROOT = GOLDEN / "00000000000000000009-7-4"
TOPIC_ID = bytes(range(16))
CREATED_MS = 1_700_000_000_000
_LARGE = 40_000


def _tombstone() -> bytes:
    """Return a batch whose tombstone has a delete horizon."""
    batch = bytearray(build_batch([Record(1030, CREATED_MS, b"k", None)], base_offset=1030, leader_epoch=5))
    header = peek_one(batch)
    header = header._replace(attributes=header.attributes | HORIZON_BIT, base_timestamp=CREATED_MS + 86_400_000)
    batch[: len(pack_header(header))] = pack_header(header)
    seal(batch)
    return bytes(batch)


def golden_object() -> BuiltObject:
    """Return an object with batches of two epochs and missing offsets. Its index has two entries."""
    builder = ObjectBuilder(1000, epoch=7, attempt=4, created_ms=CREATED_MS)
    for number in range(2):
        record = Record(1002 + 5 * number, 10 * number, b"k%d" % number, bytes([number]) * _LARGE)
        builder.add(build_batch([record], base_offset=1002 + 5 * number, leader_epoch=3))
    builder.add(_tombstone())
    built = builder.finish(1100)
    assert built is not None
    return built


def golden_root() -> bytes:
    """Return a root with a range without records, in the middle of a pass of compaction."""
    return build_root(
        Root(
            TOPIC_ID,
            9,
            [Entry(1010, 1100, golden_object().entry), Entry(1100, 1200, None)],
            [EpochHistory.Entry(epoch=3, first_offset=900), EpochHistory.Entry(epoch=5, first_offset=1020)],
            first_dirty=1050,
            compaction=CompactionPass(end=2000, next_offset=1200),
            obsolete=("ns/orders/2/segment-00000000000000001000.kfs",),
        )
    )
