"""The settings of the indexer, except for those of the object store."""

from dataclasses import dataclass

from kafscale.config.settings import MIB, integer, setting, size, within
from kafscale.segment.index import DEFAULT_INTERVAL


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerSettings:
    """Sizes are in bytes."""

    interval: int = setting(
        "KAFSCALE_INDEX_INTERVAL",
        default=DEFAULT_INTERVAL,
        parse=integer(1, 1_000_000_000),
        doc="The number of messages between two entries of an index. A smaller value makes indexes larger and scans "
        "shorter.",
    )
    reads: int = setting(
        "KAFSCALE_INDEXER_READS",
        default=4,
        parse=integer(1, 256),
        doc="The maximum number of segments that timestamp lookups, verification and rebuilds hold in memory at the "
        "same time, in total.",
    )
    decode_bytes: int = setting(
        "KAFSCALE_INDEXER_DECODE_BYTES",
        default=64 * MIB,
        parse=within(size, 1 * MIB),
        doc="The maximum decompressed size of a batch that a timestamp lookup decodes. For larger batches, it uses the "
        "timestamps in the batch header.",
    )
    rewrites: int = setting(
        "KAFSCALE_REWRITES",
        default=1,
        parse=integer(1, 64),
        doc="The maximum number of logs that an indexer merges or compacts at the same time. Each of them takes a "
        "process with a lower priority, and its memory (KAFSCALE_REWRITE_BYTES, KAFSCALE_COMPACTION_MEMORY). Further "
        "ones wait.",
    )
    rewrite_io_bytes_per_second: int = setting(
        "KAFSCALE_REWRITE_IO_BYTES_PER_SECOND",
        default=0,
        parse=within(size, 0, 1024 * 1024 * MIB),
        doc="Kafka's log.cleaner.io.max.bytes.per.second: how many bytes per second the merges and compactions of an "
        "indexer read and store at most, so that they leave CPU time and bandwidth to others. 0: no limit. Set at "
        "least 1 MB, because a merge or compaction that takes an hour is abandoned.",
    )
    rewrite_read_ahead_bytes: int = setting(
        "KAFSCALE_REWRITE_READ_AHEAD_BYTES",
        default=8 * MIB,
        parse=within(size, 0, 1024 * MIB),
        doc="The maximum size of the objects that each merge or compaction reads before it needs them, at most 16 at "
        "the same time, so that small objects do not wait for one request after the other. 0: none. In any case, "
        "a process that is busy begins fewer reads.",
    )
