"""The settings of the storage service."""

from dataclasses import dataclass, replace

from kafscale.config.network import LeaseSettings
from kafscale.config.settings import GIB, KIB, MIB, choice, integer, setting, size, within
from kafscale.segment.index import DEFAULT_INTERVAL
from kafscale.topics.definitions import CLEANUP_POLICIES, COMPRESSION_TYPES, DELETE, LONGEST_FLUSH_MS

MOST_FLUSHES_IN_FLIGHT = 8
"""Per partition. A new owner that finds more segments of one dead owner concludes that the metadata was rolled back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings(LeaseSettings):
    """Sizes in bytes, times in milliseconds unless the name says otherwise."""

    segment_bytes: int = setting(
        "KAFSCALE_SEGMENT_BYTES",
        default=4 * MIB,
        parse=within(size, 1 * KIB, 1 * GIB),
        doc="The default for the topic config segment.bytes. A partition's buffer is sealed and flushed when it "
        "reaches this size, or a quarter of KAFSCALE_PARTITION_BUFFER_BYTES if that is smaller.",
    )
    flush_interval_ms: int = setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        default=500,
        parse=integer(1, LONGEST_FLUSH_MS),
        doc="The default for the topic config flush.ms. It is the longest time that records wait for an object of the "
        "intake. It is also the shortest time between flushes of a buffer that is not full, unless "
        "KAFSCALE_SEGMENT_INTERVAL_MS is longer. Without intakes (state format 1), acknowledgements with acks=all wait "
        "for these flushes.",
    )
    early_flush_bytes: int = setting(
        "KAFSCALE_EARLY_FLUSH_BYTES",
        default=0,
        parse=within(size, 0),
        doc="Only without intakes (state format 1): a buffer of at least this size is sealed before its flush interval "
        "ends if nothing arrives for KAFSCALE_EARLY_FLUSH_QUIET_MS, because its producers are then waiting for acks. "
        "0: the value depends on the store. It is 64 KB for a local directory, where objects cost nothing, and 1 MB "
        "for S3.",
    )
    early_flush_quiet_ms: int = setting(
        "KAFSCALE_EARLY_FLUSH_QUIET_MS",
        default=50,
        parse=integer(1, 3_600_000),
        doc="Only without intakes (state format 1): how long nothing must arrive before a buffer is sealed early. If "
        "this is shorter than the pauses of producers that do not wait for acks, every pause creates a segment.",
    )
    segment_interval_ms: int = setting(
        "KAFSCALE_SEGMENT_INTERVAL_MS",
        default=500,
        parse=integer(1, LONGEST_FLUSH_MS),
        doc="Only with intakes (state format 2): how long after the last flush a buffer that is not full becomes a "
        "segment, unless the topic's flush.ms is longer. Acknowledgements and consumers do not wait for it. A longer "
        "interval makes fewer and larger segments, and fewer writes to the metadata store. It also keeps more records "
        "in memory, and a new owner reads more of the intake after a crash. In the first five seconds after a "
        "take-over, it can take longer, if more partitions are taken over than KAFSCALE_TAKE_OVERS_IN_FLIGHT.",
    )
    intake_puts_per_second: int = setting(
        "KAFSCALE_INTAKE_PUTS_PER_SECOND",
        default=0,
        parse=integer(0, 10_000),
        doc="Only with intakes (state format 2): how many objects per second that are smaller than "
        "KAFSCALE_INTAKE_PUT_BYTES an intake writes at most, unless their first record has waited for the topic's "
        "flush.ms. 0: the value depends on the store. There is no limit for a local directory, and it is 10 for S3, "
        "which charges for each PUT.",
    )
    intake_put_burst: int = setting(
        "KAFSCALE_INTAKE_PUT_BURST",
        default=3_000,
        parse=integer(1, 1_000_000),
        doc="Only with intakes (state format 2): how many objects an intake writes without regard to "
        "KAFSCALE_INTAKE_PUTS_PER_SECOND after a pause. It saves up the puts that it did not need, so this does not "
        "raise the number of puts per day.",
    )
    intake_gather_ms: int = setting(
        "KAFSCALE_INTAKE_GATHER_MS",
        default=20,
        parse=integer(0, 1_000),
        doc="Only with intakes (state format 2) and a limit of puts per second: after an object is stored, the next "
        "one waits for producers that send their next records when the last ones are acknowledged, so that these share "
        "one object. It waits at most this long, no longer than the last put took, and not at all for a while if they "
        "do not come. 0: it never waits.",
    )
    intake_put_bytes: int = setting(
        "KAFSCALE_INTAKE_PUT_BYTES",
        default=64 * KIB,
        parse=within(size, 1 * KIB, 64 * MIB),
        doc="Only with intakes (state format 2): an intake writes an object without regard to "
        "KAFSCALE_INTAKE_PUTS_PER_SECOND if so many bytes are waiting. A higher value makes fewer and larger objects, "
        "but a producer that waits for acknowledgements after fewer bytes is slowed down.",
    )
    intake_object_bytes: int = setting(
        "KAFSCALE_INTAKE_OBJECT_BYTES",
        default=8 * MIB,
        parse=within(size, 64 * KIB, 64 * MIB),
        doc="Only with intakes (state format 2): the size of an intake object at which it is full. The last batch may "
        "exceed it.",
    )
    intake_chain_bytes: int = setting(
        "KAFSCALE_INTAKE_CHAIN_BYTES",
        default=256 * MIB,
        parse=within(size, 1 * MIB),
        doc="Only with intakes (state format 2): if the objects of an intake that are needed exceed this size, the "
        "records in the oldest one become segments before their interval ends. A new owner reads at most about this "
        "much.",
    )
    cache_size: int = setting(
        "KAFSCALE_CACHE_SIZE",
        default=1 * GIB,
        parse=within(size, 0),
        doc="The size of the in-memory cache of complete segments for readers. The least recently used segments are "
        "evicted first.",
    )
    index_cache_size: int = setting(
        "KAFSCALE_INDEX_CACHE_SIZE",
        default=256 * MIB,
        parse=within(size, 0),
        doc="The size of the in-memory cache of sparse indexes. The least recently used indexes are evicted first.",
    )
    readahead_segments: int = setting(
        "KAFSCALE_READAHEAD_SEGMENTS",
        default=2,
        parse=integer(0, 64),
        doc="The number of segments that are fetched ahead of a sequential reader.",
    )
    cleanup_policy: str = setting(
        "KAFSCALE_CLEANUP_POLICY",
        default=DELETE,
        parse=choice(*CLEANUP_POLICIES),
        doc="The default for the topic config cleanup.policy. Without delete, retention by time and size removes "
        "nothing. Gateways must have the same value.",
    )
    compression_codec: str = setting(
        "KAFSCALE_COMPRESSION_CODEC",
        default="snappy",
        parse=choice(*COMPRESSION_TYPES),
        doc="The default for the topic config compression.type. It applies only to batches that arrive uncompressed. "
        "`producer` stores batches as they arrive.",
    )
    partition_buffer_bytes: int = setting(
        "KAFSCALE_PARTITION_BUFFER_BYTES",
        default=64 * MIB,
        parse=within(size, 64 * KIB),
        doc="The maximum size of the records of one partition that are not in committed segments. At half of it, "
        "replies to producers wait until some of them are. Beyond it, batches are refused with a retriable error.",
    )
    buffer_bytes: int = setting(
        "KAFSCALE_BUFFER_BYTES",
        default=512 * MIB,
        parse=within(size, 64 * KIB),
        doc="The same limit for all partitions together.",
    )
    flushes_in_flight: int = setting(
        "KAFSCALE_FLUSHES_IN_FLIGHT",
        default=MOST_FLUSHES_IN_FLIGHT,
        parse=integer(1, MOST_FLUSHES_IN_FLIGHT),
        doc="The maximum number of sealed buffers of one partition that are being uploaded, or are stored but not "
        "committed yet. They are committed in order.",
    )
    reads_in_flight: int = setting(
        "KAFSCALE_READS_IN_FLIGHT",
        default=32,
        parse=integer(1, 1024),
        doc="The maximum number of concurrent reads from the object store, including read-ahead. At most 32 times as "
        "many fetches wait for a read. Further fetches get a retriable error.",
    )
    fetch_read_timeout_ms: int = setting(
        "KAFSCALE_FETCH_READ_TIMEOUT_MS",
        default=1_500,
        parse=integer(1, 60_000),
        doc="How long one Fetch waits for reads from the object store, in total. After that, partitions that have not "
        "been read get a retriable error, while the response contains the records of the others. The reads continue. "
        "Keep it below the gateways' KAFSCALE_OWNER_GRACE_MS.",
    )
    partition_load_timeout_ms: int = setting(
        "KAFSCALE_PARTITION_LOAD_TIMEOUT_MS",
        default=5_000,
        parse=integer(1, 60_000),
        doc="How long the first request for a partition waits until this instance has taken the partition over. After "
        "that, the request fails with a retriable error.",
    )
    append_load_wait_ms: int = setting(
        "KAFSCALE_APPEND_LOAD_WAIT_MS",
        default=500,
        parse=integer(1, 60_000),
        doc="How long records wait until their partition has been taken over. Everything that their gateway sends "
        "after them waits too. After that, records for this partition are refused with a retriable error until the "
        "takeover is complete. Other requests wait for KAFSCALE_PARTITION_LOAD_TIMEOUT_MS.",
    )
    offline_retry_ms: int = setting(
        "KAFSCALE_OFFLINE_RETRY_MS",
        default=60_000,
        parse=integer(1_000, 3_600_000),
        doc="The maximum pause between attempts to read data that could not be read when the partition was taken over, "
        "so that the partition is offline. The first pause is one second, and each pause is twice the previous one.",
    )
    handover_wait_ms: int = setting(
        "KAFSCALE_HANDOVER_WAIT_MS",
        default=1_000,
        parse=integer(0, 60_000),
        doc="How long a request for a partition waits until the current owner hands the partition over to this "
        "instance. After that, the request fails with a retriable error. This time is part of "
        "KAFSCALE_PARTITION_LOAD_TIMEOUT_MS.",
    )
    handover_timeout_ms: int = setting(
        "KAFSCALE_HANDOVER_TIMEOUT_MS",
        default=25_000,
        parse=integer(0, 600_000),
        doc="How long a partition rejects records while it is handed over to another instance and its buffered records "
        "are stored in segments. After that, it is released. The next owner reads durable records from the intake; the "
        "others are discarded, and the producers that wait for them get an error. Keep it above 20 seconds, because a "
        "delete on S3 may take effect that late.",
    )
    moves_in_flight: int = setting(
        "KAFSCALE_MOVES_IN_FLIGHT",
        default=8,
        parse=integer(1, 1_000),
        doc="The maximum number of partitions that an instance hands over at the same time. It is also the maximum "
        "number that it takes over at the same time before a request needs them.",
    )
    take_overs_in_flight: int = setting(
        "KAFSCALE_TAKE_OVERS_IN_FLIGHT",
        default=32,
        parse=integer(1, 1_000),
        doc="The maximum number of partitions that an instance takes over at the same time. Each needs two listings of "
        "the object store and a few writes to the metadata store. Others wait; requests for them are refused after "
        "KAFSCALE_APPEND_LOAD_WAIT_MS, and clients repeat them. Reading the state of producers, which follows, is "
        "not limited by it.",
    )
    scanned_partitions: int = setting(
        "KAFSCALE_SCANNED_PARTITIONS",
        default=256,
        parse=integer(1, 100_000),
        doc="The number of partitions of other instances whose state is cached for scans. The least recently used ones "
        "are evicted first.",
    )
    scan_streams: int = setting(
        "KAFSCALE_SCAN_STREAMS",
        default=64,
        parse=integer(1, 10_000),
        doc="The maximum number of concurrent scans of an instance. Each scan holds one segment of at most "
        "KAFSCALE_SCAN_READ_BYTES, or a piece of a larger one, in memory. It also holds up to six pieces of at most "
        "KAFSCALE_SCAN_PIECE_BYTES that are being sent. An imported segment with missing offsets is held completely, "
        "regardless of its size.",
    )
    scan_wait_ms: int = setting(
        "KAFSCALE_SCAN_WAIT_MS",
        default=10_000,
        parse=integer(0, 600_000),
        doc="How long a scan beyond KAFSCALE_SCAN_STREAMS waits before it is refused with a retriable error.",
    )
    scan_piece_bytes: int = setting(
        "KAFSCALE_SCAN_PIECE_BYTES",
        default=4 * MIB,
        parse=within(size, 64 * KIB, 16 * MIB),
        doc="The maximum size of the pieces that a scan returns, regardless of what its reader asks for. A single "
        "batch may be larger.",
    )
    scan_read_bytes: int = setting(
        "KAFSCALE_SCAN_READ_BYTES",
        default=8 * MIB,
        parse=within(size, 64 * KIB, 256 * MIB),
        doc="Scans read segments up to this size completely and larger segments in pieces. Imported segments with "
        "missing offsets are always read completely. Scans use the segment cache (KAFSCALE_CACHE_SIZE) but do not add "
        "segments to it. Indexes of larger segments are added to the index cache (KAFSCALE_INDEX_CACHE_SIZE).",
    )
    plans_in_flight: int = setting(
        "KAFSCALE_PLANS_IN_FLIGHT",
        default=16,
        parse=integer(1, 1_000),
        doc="The maximum number of partitions whose scans are planned at the same time, over all calls.",
    )
    index_timeout_ms: int = setting(
        "KAFSCALE_INDEX_TIMEOUT_MS",
        default=10_000,
        parse=integer(1, 60_000),
        doc="How long storage waits for an indexer to store the indexes of new segments. After that, storage stores "
        "them itself. Keep it above 6 seconds: an indexer answers after 3 seconds at the latest, and storage calls two "
        "of them.",
    )
    pending_indexes: int = setting(
        "KAFSCALE_PENDING_INDEXES",
        default=1_000,
        parse=integer(1, 100_000),
        doc="The number of segments whose indexes are being stored from which on new flushes wait.",
    )
    commit_heartbeat_ms: int = setting(
        "KAFSCALE_COMMIT_HEARTBEAT_MS",
        default=2_000,
        parse=integer(100, 60_000),
        doc="How often a heartbeat is sent on each commit stream.",
    )
    retention_ms: int = setting(
        "KAFSCALE_RETENTION_MS",
        default=604_800_000,
        parse=integer(-1, 2**63 - 1),
        doc="The default for the topic config retention.ms. The oldest segments are deleted when all their records are "
        "older than this. -1: no limit.",
    )
    retention_bytes: int = setting(
        "KAFSCALE_RETENTION_BYTES",
        default=-1,
        parse=integer(-1, 2**63 - 1),
        doc="The default for the topic config retention.bytes, which applies to each partition. -1: no limit.",
    )
    retention_check_ms: int = setting(
        "KAFSCALE_RETENTION_CHECK_MS",
        default=300_000,
        parse=integer(1_000, 86_400_000),
        doc="How often partitions are checked for segments that exceed retention; Kafka's "
        "log.retention.check.interval.ms.",
    )
    producer_expiry_ms: int = setting(
        "KAFSCALE_PRODUCER_EXPIRY_MS",
        default=86_400_000,
        parse=integer(600_000, 2**53),
        doc="A partition forgets an idempotent producer that has sent it nothing for this long; Kafka's "
        "producer.id.expiration.ms. Keep it longer than the delivery timeout of every producer.",
    )
    max_producers_per_partition: int = setting(
        "KAFSCALE_MAX_PRODUCERS_PER_PARTITION",
        default=10_000,
        parse=integer(1, 1_000_000),
        doc="The maximum number of idempotent producers that a partition remembers. Beyond it, batches of new "
        "producers are refused with a retriable error.",
    )
    stage_bytes: int = setting(
        "KAFSCALE_STAGE_BYTES",
        default=16 * MIB,
        parse=within(size, 64 * KIB, 64 * MIB),
        doc="The maximum size of an object that a sink stages.",
    )
    staging_bytes: int = setting(
        "KAFSCALE_STAGING_BYTES",
        default=256 * MIB,
        parse=within(size, 64 * KIB),
        doc="The maximum size of all staged objects that are being checked and stored. Objects of the same total size "
        "may wait for space for up to 10 seconds. Beyond that size or time, they are refused with a retriable error.",
    )
    max_stages_per_commit: int = setting(
        "KAFSCALE_MAX_STAGES_PER_COMMIT",
        default=10_000,
        parse=integer(1, 100_000),
        doc="The maximum number of staged objects in one epoch of a sink.",
    )
    stage_expiry_ms: int = setting(
        "KAFSCALE_STAGE_EXPIRY_MS",
        default=86_400_000,
        parse=integer(600_000, 2**53),
        doc="Staged objects that are older than this and belong to no committed epoch are deleted. Staged objects "
        "older than half of this can no longer be committed.",
    )
    stage_check_ms: int = setting(
        "KAFSCALE_STAGE_CHECK_MS",
        default=3_600_000,
        parse=integer(1_000, 86_400_000),
        doc="How often expired staged objects and unused sinks are removed. One instance checks the staged objects, "
        "and every instance checks the sinks that are assigned to it.",
    )
    max_sinks: int = setting(
        "KAFSCALE_MAX_SINKS",
        default=10_000,
        parse=integer(1, 100_000),
        doc="The maximum number of sinks that are remembered. Beyond it, new sinks are refused. A batch write from "
        "Spark without `sinkId` is a sink of its own, which is remembered for KAFSCALE_STAGE_EXPIRY_MS.",
    )
    sink_expiry_ms: int = setting(
        "KAFSCALE_SINK_EXPIRY_MS",
        default=2_592_000_000,
        parse=integer(86_400_000, 2**53),
        doc="A sink that commits nothing for this long is forgotten. If it then repeats an epoch, the epoch is treated "
        "as a new one. A sink that never committed, or that was used for a single write, is forgotten after "
        "KAFSCALE_STAGE_EXPIRY_MS.",
    )
    rewrite_check_ms: int = setting(
        "KAFSCALE_REWRITE_CHECK_MS",
        default=15_000,
        parse=integer(100, 86_400_000),
        doc="How often an instance checks whether logs are to be compacted or merged; Kafka's log.cleaner.backoff.ms.",
    )
    merge: str = setting(
        "KAFSCALE_MERGE",
        default="off",
        parse=choice("off", "on"),
        doc="The default for the topic config kafscale.merge.enable. `on`: segments of topics that are not compacted "
        "are merged into objects of up to KAFSCALE_MERGE_BYTES, as soon as there are as many bytes, or 16 segments and "
        "the first is older than an hour. Reads from the start of a log then need fewer GET requests, and each byte is "
        "written once more. `off`: all of a log is in its segments, as KafScale 1 and a listing of the bucket see it. "
        "What was merged before stays merged. Gateways must have the same value.",
    )
    merge_bytes: int = setting(
        "KAFSCALE_MERGE_BYTES",
        default=64 * MIB,
        parse=within(size, 64 * KIB, 1024 * MIB),
        doc="The largest size of merged objects, unless KAFSCALE_REWRITE_BYTES is smaller. An object also has at most "
        "an eighth of the topic's retention.bytes, and the records of at most segment.ms and an eighth of "
        "retention.ms.",
    )
    merge_io_bytes_per_second: int = setting(
        "KAFSCALE_MERGE_IO_BYTES_PER_SECOND",
        default=1 * MIB,
        parse=within(size, 0, 1024 * 1024 * MIB),
        doc="How many bytes per second the merges of an instance read and store, so that producers wait less while old "
        "segments are merged. To keep up with producers, a merge may read and store six times as many bytes as the "
        "topics with merging receive, and more while other merges or compactions wait for the indexer. If merges "
        "need no more than this, what they replaced is also deleted slowly. 0: no limit. Set at least "
        "1 MB for each 256 MB of KAFSCALE_MERGE_BYTES, because a merge that takes an hour is abandoned.",
    )
    rewrites_in_flight: int = setting(
        "KAFSCALE_REWRITES_IN_FLIGHT",
        default=2,
        parse=integer(1, 64),
        doc="The maximum number of partitions whose logs an instance has rewritten at the same time. Each of these "
        "rewrites takes a call to an indexer, which has a limit of its own (KAFSCALE_REWRITES). Logs are merged one "
        "at a time, besides these, unless KAFSCALE_MERGE_IO_BYTES_PER_SECOND is 0.",
    )
    rewrite_bytes: int = setting(
        "KAFSCALE_REWRITE_BYTES",
        default=128 * MIB,
        parse=within(size, 1 * MIB, 1024 * MIB),
        doc="The largest size of a rewritten object. An indexer needs this much memory for each rewrite, and as much "
        "again for the objects that it reads.",
    )
    rewrite_grace_ms: int = setting(
        "KAFSCALE_REWRITE_GRACE_MS",
        default=600_000,
        parse=integer(1_000, 86_400_000),
        doc="How long objects that were replaced by rewritten ones are kept for readers that have begun to read them. "
        "It must be the same in all storage instances.",
    )
    compaction_memory: int = setting(
        "KAFSCALE_COMPACTION_MEMORY",
        default=128 * MIB,
        parse=within(size, 1 * MIB, 16 * GIB),
        doc="The memory for the keys of one compaction, at 27 bytes a key; Kafka's log.cleaner.dedupe.buffer.size. If "
        "the keys do not fit, the log is compacted in several passes.",
    )
    compaction_batch_bytes: int = setting(
        "KAFSCALE_COMPACTION_BATCH_BYTES",
        default=64 * MIB,
        parse=within(size, 1 * MIB, 1024 * MIB),
        doc="The largest decompressed size of a batch that is compacted. A log with a larger one is not compacted.",
    )
    index_interval: int = setting(
        "KAFSCALE_INDEX_INTERVAL",
        default=DEFAULT_INTERVAL,
        parse=integer(1, 1_000_000_000),
        doc="The number of messages between two entries of an index that storage stores itself because no indexer "
        "answers.",
    )
    drain_timeout_ms: int = setting(
        "KAFSCALE_DRAIN_TIMEOUT_MS",
        default=25_000,
        parse=integer(0, 600_000),
        doc="How long an instance that is stopping tries to flush and commit its buffered records. A storage process "
        "exits at most 5 seconds after this time plus KAFSCALE_RPC_DRAIN_TIMEOUT_MS, and the one-process mode at most "
        "5 seconds after this time plus KAFSCALE_GATEWAY_SHUTDOWN_GRACE_MS. Kubernetes allows 45 seconds in total.",
    )

    def resolved(self, *, directory: bool) -> "StorageSettings":
        """Return the settings with defaults that depend on the store. ``directory``: objects are local files."""
        return replace(
            self,
            early_flush_bytes=self.early_flush_bytes or (64 * KIB if directory else 1 * MIB),
            intake_puts_per_second=self.intake_puts_per_second or (0 if directory else 10),
        )
