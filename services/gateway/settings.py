"""What the gateway reads from its environment."""

from dataclasses import dataclass

from kafscale.rpc.limits import LARGEST_PAYLOAD
from kafscale.service.admin import AdminTokenSettings
from kafscale.service.groups import GroupSettings
from kafscale.service.listeners import ListenerSettings
from kafscale.service.settings import KIB, MIB, boolean, choice, integer, optional, setting, size, within
from kafscale.topics.definitions import CLEANUP_POLICIES, COMPRESSION_TYPES, DELETE, LONGEST_FLUSH_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(ListenerSettings, GroupSettings, AdminTokenSettings):
    """Sizes in bytes, times in milliseconds."""

    broker_id: int | None = setting(
        "KAFSCALE_BROKER_ID",
        default=None,
        parse=optional(integer(0, 2**31 - 1)),
        doc="The node id under which clients know this gateway. Unset: the lowest that is free is taken, and kept with "
        "the address of the first listener, so that a restarted gateway has the same one.",
    )
    auto_create_topics: bool = setting(
        "KAFSCALE_AUTO_CREATE_TOPICS",
        default=True,
        parse=boolean,
        doc="A Metadata request for a topic that does not exist creates it, where the client allows that too.",
    )
    auto_create_partitions: int = setting(
        "KAFSCALE_AUTO_CREATE_PARTITIONS",
        default=1,
        parse=integer(1, 100_000),
        doc="Partitions of a topic that is made automatically, or by CreateTopics without a number.",
    )
    cleanup_policy: str = setting(
        "KAFSCALE_CLEANUP_POLICY",
        default=DELETE,
        parse=choice(*CLEANUP_POLICIES),
        doc="The topic config cleanup.policy where a topic does not set it: with compact, records without a key are "
        "refused. Storage needs the same value.",
    )
    compression_codec: str = setting(
        "KAFSCALE_COMPRESSION_CODEC",
        default="snappy",
        parse=choice(*COMPRESSION_TYPES),
        doc="What clients are told of compression.type where a topic does not set it; storage applies it.",
    )
    retention_ms: int = setting(
        "KAFSCALE_RETENTION_MS",
        default=604_800_000,
        parse=integer(-1, 2**63 - 1),
        doc="What clients are told of retention.ms where a topic does not set it; storage applies it.",
    )
    retention_bytes: int = setting(
        "KAFSCALE_RETENTION_BYTES",
        default=-1,
        parse=integer(-1, 2**63 - 1),
        doc="What clients are told of retention.bytes where a topic does not set it; storage applies it.",
    )
    segment_bytes: int = setting(
        "KAFSCALE_SEGMENT_BYTES",
        default=4 * MIB,
        parse=within(size, 1 * KIB, 1024 * MIB),
        doc="What clients are told of segment.bytes where a topic does not set it; storage applies it.",
    )
    flush_interval_ms: int = setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        default=500,
        parse=integer(1, LONGEST_FLUSH_MS),
        doc="What clients are told of flush.ms where a topic does not set it; storage applies it.",
    )
    max_fetch_sessions: int = setting(
        "KAFSCALE_MAX_FETCH_SESSIONS",
        default=1000,
        parse=integer(0, 1_000_000),
        doc="Readers whose partitions a gateway keeps between their Fetch requests, so that they send and are sent "
        "only what changed; Kafka's max.incremental.fetch.session.cache.slots. Others send full requests. 0: all do.",
    )
    max_fetch_session_partitions: int = setting(
        "KAFSCALE_MAX_FETCH_SESSION_PARTITIONS",
        default=200_000,
        parse=integer(0, 100_000_000),
        doc="Partitions in all fetch sessions of a gateway together; what does not fit is asked for by full requests.",
    )
    max_partitions_per_topic: int = setting(
        "KAFSCALE_MAX_PARTITIONS_PER_TOPIC",
        default=10_000,
        parse=integer(1, 100_000),
        doc="CreateTopics and CreatePartitions refuse more than this.",
    )
    max_request_bytes: int = setting(
        "KAFSCALE_MAX_REQUEST_BYTES",
        default=100 * MIB,
        parse=within(size, 1 * KIB, 2**31 - 1),
        doc="The largest request; a connection that announces a larger one is closed before it is read.",
    )
    max_fetch_bytes: int = setting(
        "KAFSCALE_MAX_FETCH_BYTES",
        default=55 * MIB,
        parse=within(size, 1 * KIB, 1024 * MIB),
        doc="Record bytes in one Fetch reply, whatever the client asks for; one whole batch is always given.",
    )
    max_control_request_bytes: int = setting(
        "KAFSCALE_MAX_CONTROL_REQUEST_BYTES",
        default=1 * MIB,
        parse=within(size, 1 * KIB, 2**31 - 1),
        doc="The largest request other than Produce: a list of a million names would hold up everybody for many "
        "seconds. A larger one closes its connection.",
    )
    max_group_request_bytes: int = setting(
        "KAFSCALE_MAX_GROUP_REQUEST_BYTES",
        default=8 * MIB,
        parse=within(size, 1 * KIB, LARGEST_PAYLOAD),
        doc="The largest JoinGroup and SyncGroup request: a leader sends what it assigns to all members. A larger one "
        "closes its connection.",
    )
    request_memory_bytes: int = setting(
        "KAFSCALE_REQUEST_MEMORY_BYTES",
        default=256 * MIB,
        parse=within(size, 1 * MIB),
        doc="Room for what has arrived of requests above 64 KB, over all connections. While it is full, one request "
        "at a time is read beyond it, so up to KAFSCALE_MAX_REQUEST_BYTES are held besides.",
    )
    request_stall_ms: int = setting(
        "KAFSCALE_REQUEST_STALL_MS",
        default=30_000,
        parse=integer(1_000, 86_400_000),
        doc="A connection that has sent a part of a request above 64 KB, and then nothing for this long, is closed; so "
        "is one that takes this long and longer than 512 KB/s would. While others wait for room, the request that is "
        "read beyond KAFSCALE_REQUEST_MEMORY_BYTES has 5 seconds.",
    )
    reply_memory_bytes: int = setting(
        "KAFSCALE_REPLY_MEMORY_BYTES",
        default=512 * MIB,
        parse=within(size, 1 * MIB),
        doc="Record bytes of Fetch replies that are not sent yet, over all connections; beyond it a Fetch gets no more "
        "than one batch.",
    )
    upconvert_bytes: int = setting(
        "KAFSCALE_UPCONVERT_BYTES",
        default=64 * MIB,
        parse=within(size, 1 * MIB),
        doc="What the messages of magic 0 and 1 that a request has for one partition may decompress to, and each batch "
        "for a topic whose cleanup.policy has compact, where every record must have a key; more is refused. Two "
        "requests are converted or looked through at a time.",
    )
    max_connections: int = setting(
        "KAFSCALE_MAX_CONNECTIONS",
        default=10_000,
        parse=integer(1, 1_000_000),
        doc="Client connections at the same time; more are closed as they come.",
    )
    max_in_flight: int = setting(
        "KAFSCALE_MAX_IN_FLIGHT_PER_CONNECTION",
        default=1024,
        parse=integer(1, 100_000),
        doc="Requests of one connection that are not answered yet; beyond it the connection is not read.",
    )
    max_in_flight_bytes: int = setting(
        "KAFSCALE_MAX_IN_FLIGHT_BYTES_PER_CONNECTION",
        default=32 * MIB,
        parse=within(size, 1),
        doc="The same in bytes of requests: one producer fills at most this much of KAFSCALE_PARTITION_BUFFER_BYTES.",
    )
    idle_timeout_ms: int = setting(
        "KAFSCALE_CONNECTION_IDLE_MS",
        default=600_000,
        parse=integer(1_000, 86_400_000),
        doc="A connection on which nothing moved for this long is closed.",
    )
    log_hex_bytes: int = setting(
        "KAFSCALE_LOG_HEX_BYTES",
        default=0,
        parse=within(size, 0, 64 * KIB),
        doc="With KAFSCALE_LOG_LEVEL=debug, how many bytes of each Kafka request and reply are logged in hexadecimal. "
        "They contain records. 0: none.",
    )
    pause_limit_ms: int = setting(
        "KAFSCALE_GATEWAY_PAUSE_LIMIT_MS",
        default=5_000,
        parse=integer(1_000, 86_400_000),
        doc="A gateway that was stopped for longer (SIGSTOP, a suspended machine, a stalled event loop) closes the "
        "connections it had and drops what they sent: clients may have given it up or repeated it elsewhere. Keep it "
        "below the request timeout of all clients; theirs is 10 seconds or more by default.",
    )
    append_queue_bytes: int = setting(
        "KAFSCALE_APPEND_QUEUE_BYTES",
        default=64 * MIB,
        parse=within(size, 64 * KIB),
        doc="Record bytes on their way to one storage instance; beyond it connections that produce are not read, and "
        "what still waits at the producer's timeout is refused retriably.",
    )
    append_room_wait_ms: int = setting(
        "KAFSCALE_APPEND_ROOM_WAIT_MS",
        default=5_000,
        parse=integer(100, 600_000),
        doc="How long producers wait for room in KAFSCALE_APPEND_QUEUE_BYTES while the storage instance has no commit "
        "stream. Then they are refused retriably, so that what they sent keeps no room from others.",
    )
    append_message_bytes: int = setting(
        "KAFSCALE_APPEND_MESSAGE_BYTES",
        default=4 * MIB,
        parse=within(size, 16 * KIB, LARGEST_PAYLOAD),
        doc="Record bytes in one message to a storage instance; a larger single append goes alone, up to 64 MiB.",
    )
    storage_timeout_ms: int = setting(
        "KAFSCALE_STORAGE_TIMEOUT_MS",
        default=30_000,
        parse=integer(100, 600_000),
        doc="How long one call to a storage instance may take.",
    )
    owner_grace_ms: int = setting(
        "KAFSCALE_OWNER_GRACE_MS",
        default=2_000,
        parse=integer(10, 600_000),
        doc="How long a request that one storage instance has answered waits for the others that it concerns; their "
        "partitions are answered retriably then.",
    )
    coordinator_timeout_ms: int = setting(
        "KAFSCALE_COORDINATOR_TIMEOUT_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="How long coordinators may take for one request about consumer groups, a second try included; it is "
        "answered retriably then. JoinGroup and SyncGroup wait as long as their group does.",
    )
    commit_silence_ms: int = setting(
        "KAFSCALE_COMMIT_SILENCE_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="A commit stream without any sign of life for this long is taken for broken.",
    )
    admin_watchers: int = setting(
        "KAFSCALE_ADMIN_WATCHERS",
        default=16,
        parse=integer(0, 1_000),
        doc="Operators who may watch the cluster by this gateway at a time.",
    )
    admin_watch_changes: int = setting(
        "KAFSCALE_ADMIN_WATCH_CHANGES",
        default=10_000,
        parse=integer(1, 1_000_000),
        doc="Changes that wait for one of them who is slow to take them; with one more the watch ends, and says so.",
    )
    admin_watch_health_ms: int = setting(
        "KAFSCALE_ADMIN_WATCH_HEALTH_MS",
        default=5_000,
        parse=integer(100, 600_000),
        doc="How often the processes of the cluster are asked for their health while somebody watches.",
    )
    shutdown_grace_ms: int = setting(
        "KAFSCALE_GATEWAY_SHUTDOWN_GRACE_MS",
        default=5_000,
        parse=integer(0, 600_000),
        doc="How long busy connections may finish their replies when the gateway stops; idle ones leave at once.",
    )
