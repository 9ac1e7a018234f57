"""What the indexer reads from its environment, besides where objects are kept."""

from dataclasses import dataclass

from kafscale.segment.index import DEFAULT_INTERVAL
from kafscale.service.settings import MIB, integer, setting, size, within


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerSettings:
    """Sizes in bytes."""

    interval: int = setting(
        "KAFSCALE_INDEX_INTERVAL",
        default=DEFAULT_INTERVAL,
        parse=integer(1, 1_000_000_000),
        doc="Messages between two entries of an index. Smaller: larger indexes, shorter scans.",
    )
    reads: int = setting(
        "KAFSCALE_INDEXER_READS",
        default=4,
        parse=integer(1, 256),
        doc="Segments that look-ups by time, verifying and rebuilding hold in memory at the same time, in all.",
    )
    decode_bytes: int = setting(
        "KAFSCALE_INDEXER_DECODE_BYTES",
        default=64 * MIB,
        parse=within(size, 1 * MIB),
        doc="What one batch may decompress to when a look-up by time decodes it; for larger ones the header counts.",
    )
