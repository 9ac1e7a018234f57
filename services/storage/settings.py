"""What the storage service reads from its environment."""

from dataclasses import dataclass, replace

from kafscale.segment.index import DEFAULT_INTERVAL
from kafscale.service.network import LeaseSettings
from kafscale.service.settings import GIB, KIB, MIB, choice, integer, setting, size, within
from kafscale.topics.definitions import CLEANUP_POLICIES, COMPRESSION_TYPES, DELETE, LONGEST_FLUSH_MS

MOST_FLUSHES_IN_FLIGHT = 8
"""Of one partition. A successor that finds more segments of one dead owner takes the metadata for rolled back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings(LeaseSettings):
    """Sizes in bytes, times in milliseconds unless the name says otherwise."""

    segment_bytes: int = setting(
        "KAFSCALE_SEGMENT_BYTES",
        default=4 * MIB,
        parse=within(size, 1 * KIB, 1 * GIB),
        doc="The topic config segment.bytes where a topic does not set it: a partition's buffer is sealed and flushed "
        "when it holds this much, or a quarter of KAFSCALE_PARTITION_BUFFER_BYTES where that is less.",
    )
    flush_interval_ms: int = setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        default=500,
        parse=integer(1, LONGEST_FLUSH_MS),
        doc="The topic config flush.ms where a topic does not set it: a buffer that is not full is sealed when this "
        "much time has passed since the last flush began.",
    )
    early_flush_bytes: int = setting(
        "KAFSCALE_EARLY_FLUSH_BYTES",
        default=0,
        parse=within(size, 0),
        doc="A buffer with this much is sealed before its interval is over when nothing more has come for "
        "KAFSCALE_EARLY_FLUSH_QUIET_MS: its producers wait for their acks. 0: by the store, 64 KB on a directory, "
        "where an object costs nothing, and 1 MB on S3.",
    )
    early_flush_quiet_ms: int = setting(
        "KAFSCALE_EARLY_FLUSH_QUIET_MS",
        default=50,
        parse=integer(1, 3_600_000),
        doc="How long nothing must have come for that. Below the pauses of producers that do not wait, every pause "
        "would make a segment.",
    )
    cache_size: int = setting(
        "KAFSCALE_CACHE_SIZE",
        default=1 * GIB,
        parse=within(size, 0),
        doc="Whole segments kept in memory for readers, least recently used out first.",
    )
    index_cache_size: int = setting(
        "KAFSCALE_INDEX_CACHE_SIZE",
        default=256 * MIB,
        parse=within(size, 0),
        doc="Sparse indexes kept in memory, least recently used out first.",
    )
    readahead_segments: int = setting(
        "KAFSCALE_READAHEAD_SEGMENTS",
        default=2,
        parse=integer(0, 64),
        doc="Segments fetched ahead of a reader that reads in order.",
    )
    cleanup_policy: str = setting(
        "KAFSCALE_CLEANUP_POLICY",
        default=DELETE,
        parse=choice(*CLEANUP_POLICIES),
        doc="The topic config cleanup.policy where a topic does not set it: without delete, retention by time and size "
        "removes nothing. Gateways need the same value.",
    )
    compression_codec: str = setting(
        "KAFSCALE_COMPRESSION_CODEC",
        default="snappy",
        parse=choice(*COMPRESSION_TYPES),
        doc="The topic config compression.type where a topic does not set it. It applies to uncompressed batches only; "
        "`producer` stores what came.",
    )
    partition_buffer_bytes: int = setting(
        "KAFSCALE_PARTITION_BUFFER_BYTES",
        default=64 * MIB,
        parse=within(size, 64 * KIB),
        doc="What one partition may hold that is not committed yet. Producers with acks=0 and 1 are slowed at half of "
        "it; beyond it batches are refused retriably.",
    )
    buffer_bytes: int = setting(
        "KAFSCALE_BUFFER_BYTES",
        default=512 * MIB,
        parse=within(size, 64 * KIB),
        doc="The same bound for all partitions together.",
    )
    flushes_in_flight: int = setting(
        "KAFSCALE_FLUSHES_IN_FLIGHT",
        default=MOST_FLUSHES_IN_FLIGHT,
        parse=integer(1, MOST_FLUSHES_IN_FLIGHT),
        doc="Sealed buffers of one partition that are uploaded or stored and not committed yet; they commit in order.",
    )
    reads_in_flight: int = setting(
        "KAFSCALE_READS_IN_FLIGHT",
        default=32,
        parse=integer(1, 1024),
        doc="Reads from the object store at the same time, read-ahead included. At most 32 times as many fetches wait "
        "for theirs; beyond it they are answered retriably.",
    )
    fetch_read_timeout_ms: int = setting(
        "KAFSCALE_FETCH_READ_TIMEOUT_MS",
        default=1_500,
        parse=integer(1, 60_000),
        doc="How long one Fetch waits for reads from the object store in all; then partitions that are not read yet "
        "are answered retriably beside the records of the others, and their reads go on. Below the gateways' "
        "KAFSCALE_OWNER_GRACE_MS.",
    )
    partition_load_timeout_ms: int = setting(
        "KAFSCALE_PARTITION_LOAD_TIMEOUT_MS",
        default=5_000,
        parse=integer(1, 60_000),
        doc="How long the first request for a partition waits for its take-over before it is answered retriably.",
    )
    append_load_wait_ms: int = setting(
        "KAFSCALE_APPEND_LOAD_WAIT_MS",
        default=500,
        parse=integer(1, 60_000),
        doc="How long records wait for the take-over of their partition, and with them all that their gateway sends "
        "behind them; then those for this partition are refused retriably until it is taken over. Other requests wait "
        "for KAFSCALE_PARTITION_LOAD_TIMEOUT_MS.",
    )
    offline_retry_ms: int = setting(
        "KAFSCALE_OFFLINE_RETRY_MS",
        default=60_000,
        parse=integer(1_000, 3_600_000),
        doc="The longest pause before an instance reads again what it could not read when it took a partition over, "
        "and because of which the partition is offline. The first pause is one second, and each is twice the one "
        "before.",
    )
    handover_wait_ms: int = setting(
        "KAFSCALE_HANDOVER_WAIT_MS",
        default=1_000,
        parse=integer(0, 60_000),
        doc="How long a request for a partition waits for the instance that has it to hand it over to this one, before "
        "it is answered retriably. It counts within KAFSCALE_PARTITION_LOAD_TIMEOUT_MS.",
    )
    handover_timeout_ms: int = setting(
        "KAFSCALE_HANDOVER_TIMEOUT_MS",
        default=25_000,
        parse=integer(0, 600_000),
        doc="How long a partition rejects records while it is handed over to another instance and its buffered "
        "records are stored. After that it is released without them, and the waiting producers get an error. More "
        "than the 20 seconds for which a delete on S3 may land.",
    )
    moves_in_flight: int = setting(
        "KAFSCALE_MOVES_IN_FLIGHT",
        default=8,
        parse=integer(1, 1_000),
        doc="Partitions that an instance hands over at the same time, and those that it takes over unasked.",
    )
    scanned_partitions: int = setting(
        "KAFSCALE_SCANNED_PARTITIONS",
        default=256,
        parse=integer(1, 100_000),
        doc="Partitions of other instances whose state is kept for scans, least recently used out first.",
    )
    scan_streams: int = setting(
        "KAFSCALE_SCAN_STREAMS",
        default=64,
        parse=integer(1, 10_000),
        doc="Scans that an instance serves at the same time. Each holds a segment of KAFSCALE_SCAN_READ_BYTES at most, "
        "or a piece of a larger one, and up to six pieces of at most KAFSCALE_SCAN_PIECE_BYTES that are on their way. "
        "Of an imported segment in which offsets are missing it holds all, however large that is.",
    )
    scan_wait_ms: int = setting(
        "KAFSCALE_SCAN_WAIT_MS",
        default=10_000,
        parse=integer(0, 600_000),
        doc="How long one scan more waits for its turn before it is refused retriably.",
    )
    scan_piece_bytes: int = setting(
        "KAFSCALE_SCAN_PIECE_BYTES",
        default=4 * MIB,
        parse=within(size, 64 * KIB, 16 * MIB),
        doc="The largest pieces that a scan gives, whatever its reader asks for; a single batch may be larger.",
    )
    scan_read_bytes: int = setting(
        "KAFSCALE_SCAN_READ_BYTES",
        default=8 * MIB,
        parse=within(size, 64 * KIB, 256 * MIB),
        doc="Segments up to this size are read whole by scans, larger ones piece by piece, unless they were imported "
        "and offsets are missing in them. Neither is kept in the cache of KAFSCALE_CACHE_SIZE, whose segments scans "
        "use; indexes of the larger ones are kept in that of KAFSCALE_INDEX_CACHE_SIZE.",
    )
    plans_in_flight: int = setting(
        "KAFSCALE_PLANS_IN_FLIGHT",
        default=16,
        parse=integer(1, 1_000),
        doc="Partitions whose scans are planned at the same time, of all calls together.",
    )
    index_timeout_ms: int = setting(
        "KAFSCALE_INDEX_TIMEOUT_MS",
        default=1_000,
        parse=integer(1, 60_000),
        doc="How long a flush waits for the indexer before it builds the index itself.",
    )
    commit_heartbeat_ms: int = setting(
        "KAFSCALE_COMMIT_HEARTBEAT_MS",
        default=2_000,
        parse=integer(100, 60_000),
        doc="A commit stream without news sends a sign of life this often.",
    )
    retention_ms: int = setting(
        "KAFSCALE_RETENTION_MS",
        default=604_800_000,
        parse=integer(-1, 2**63 - 1),
        doc="The topic config retention.ms where a topic does not set it: the oldest segments go when all their "
        "records are older. -1: at no age.",
    )
    retention_bytes: int = setting(
        "KAFSCALE_RETENTION_BYTES",
        default=-1,
        parse=integer(-1, 2**63 - 1),
        doc="The topic config retention.bytes where a topic does not set it, for each partition. -1: for no size.",
    )
    retention_check_ms: int = setting(
        "KAFSCALE_RETENTION_CHECK_MS",
        default=300_000,
        parse=integer(1_000, 86_400_000),
        doc="How often partitions are looked at for what retention lets go; Kafka's log.retention.check.interval.ms.",
    )
    producer_expiry_ms: int = setting(
        "KAFSCALE_PRODUCER_EXPIRY_MS",
        default=86_400_000,
        parse=integer(600_000, 2**53),
        doc="An idempotent producer that sent a partition nothing for this long is forgotten there; Kafka's "
        "producer.id.expiration.ms. Longer than any producer's delivery timeout.",
    )
    max_producers_per_partition: int = setting(
        "KAFSCALE_MAX_PRODUCERS_PER_PARTITION",
        default=10_000,
        parse=integer(1, 1_000_000),
        doc="Idempotent producers that a partition remembers; beyond it the batches of new ones are refused retriably.",
    )
    stage_bytes: int = setting(
        "KAFSCALE_STAGE_BYTES",
        default=16 * MIB,
        parse=within(size, 64 * KIB, 64 * MIB),
        doc="The largest object that a sink may stage.",
    )
    staging_bytes: int = setting(
        "KAFSCALE_STAGING_BYTES",
        default=256 * MIB,
        parse=within(size, 64 * KIB),
        doc="What sinks stage, while it is checked and stored. As much again waits for room, up to 10 seconds; what "
        "is more, or has waited so long, is refused retriably.",
    )
    max_stages_per_commit: int = setting(
        "KAFSCALE_MAX_STAGES_PER_COMMIT",
        default=10_000,
        parse=integer(1, 100_000),
        doc="Staged objects that one epoch of a sink may consist of.",
    )
    stage_expiry_ms: int = setting(
        "KAFSCALE_STAGE_EXPIRY_MS",
        default=86_400_000,
        parse=integer(600_000, 2**53),
        doc="Staged objects that are this old and of no committed epoch are deleted. Those that are half as old are "
        "not committed any more.",
    )
    stage_check_ms: int = setting(
        "KAFSCALE_STAGE_CHECK_MS",
        default=3_600_000,
        parse=integer(1_000, 86_400_000),
        doc="How often one instance looks for such objects, and each for sinks that nobody uses.",
    )
    max_sinks: int = setting(
        "KAFSCALE_MAX_SINKS",
        default=10_000,
        parse=integer(1, 100_000),
        doc="Sinks that are remembered; beyond it new ones are refused. A batch write from Spark without `sinkId` is a "
        "sink of its own, which is remembered for KAFSCALE_STAGE_EXPIRY_MS.",
    )
    sink_expiry_ms: int = setting(
        "KAFSCALE_SINK_EXPIRY_MS",
        default=2_592_000_000,
        parse=integer(86_400_000, 2**53),
        doc="A sink that commits nothing for this long is forgotten. An epoch that it repeats after that is taken for "
        "a new one. One that never committed, or is of one write only, is forgotten after KAFSCALE_STAGE_EXPIRY_MS.",
    )
    index_interval: int = setting(
        "KAFSCALE_INDEX_INTERVAL",
        default=DEFAULT_INTERVAL,
        parse=integer(1, 1_000_000_000),
        doc="Messages between two entries of an index that storage builds itself, when no indexer answers.",
    )
    drain_timeout_ms: int = setting(
        "KAFSCALE_DRAIN_TIMEOUT_MS",
        default=25_000,
        parse=integer(0, 600_000),
        doc="How long a stopping instance tries to flush and commit what is buffered. A storage process "
        "ends at the latest 5 seconds after this and KAFSCALE_RPC_DRAIN_TIMEOUT_MS, the one-process mode after this "
        "and KAFSCALE_GATEWAY_SHUTDOWN_GRACE_MS; Kubernetes allows 45 seconds in all.",
    )

    def resolved(self, *, directory: bool) -> "StorageSettings":
        """With what the store decides where it is not set; ``directory``: objects are files of this machine."""
        if self.early_flush_bytes:
            return self
        return replace(self, early_flush_bytes=64 * KIB if directory else 1 * MIB)
