"""Small samples of catalog pages and a topic object."""

from pathlib import Path

from kafscale.catalog.page import describe
from kafscale.catalog.topic_object import TopicObject
from kafscale.segment.reader import parse_segment
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from tests.support.samples.segments import KAFSCALE_1_SEGMENT

GOLDEN = Path(__file__).parents[2] / "golden" / "catalog"
PAGE = GOLDEN / "00000000000000000000-3"
TOPIC_OBJECT = GOLDEN / "orders.json"

REF = PartitionRef(topic="orders", topic_id=bytes(range(16)), partition=2)
TOPIC = TopicObject(
    name="orders",
    id=bytes(range(16)),
    configs={"retention.ms": "3600000", "compression.type": "zstd"},
    epoch_floor=7,
    created_ms=1_700_000_000_000,
    log_starts=(0, 1200, 0),
    metadata_revision=17,
)


def segment(base: int, end: int, *, epoch: int = 3, newest: int = 1_000) -> CatalogSegment:
    return CatalogSegment(
        base_offset=base,
        next_offset=end,
        size=500,
        records=end - base,
        min_timestamp=min(newest, 900),
        max_timestamp=newest,
        created_ms=5_000,
        epoch=epoch,
    )


def golden_segments() -> list[CatalogSegment]:
    """Return a segment that KafScale 1 wrote, one without timestamps, and one with all fields set."""
    parsed = parse_segment(KAFSCALE_1_SEGMENT.read_bytes())
    return [
        describe(parsed.data, parsed.positions, parsed.next_offset),
        segment(752, 800, newest=-1),
        segment(800, 2**31, epoch=4, newest=1_700_000_000_123),
    ]
