"""The settings of the gateway."""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from kafscale.config.admin_access import AdminTokenSettings
from kafscale.config.group_limits import GroupSettings
from kafscale.config.oauthbearer import OauthbearerSettings
from kafscale.config.settings import KIB, MIB, Parser, boolean, choice, integer, optional, setting, size, within
from kafscale.rpc.limits import LARGEST_PAYLOAD
from kafscale.topics.definitions import CLEANUP_POLICIES, COMPRESSION_TYPES, DELETE, LONGEST_FLUSH_MS

_PER_IP = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<four>[0-9.]+)):(?P<number>[0-9]{1,9})")


def _parse_per_ip(text_: str) -> tuple[tuple[str, int], ...]:
    limits = {}
    for part in text_.split(","):
        found = _PER_IP.fullmatch(part.strip())
        if found is None:
            raise ValueError(text_)
        limits[str(ip_address(found["six"] or found["four"]))] = int(found["number"])
    return tuple(limits.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(OauthbearerSettings, GroupSettings, AdminTokenSettings):
    """Sizes are in bytes, times in milliseconds."""

    broker_id: int | None = setting(
        "KAFSCALE_BROKER_ID",
        default=None,
        parse=optional(integer(0, 2**31 - 1)),
        doc="The node id of this gateway. If not set, the gateway takes the lowest free id. The id is stored with the "
        "address of the first listener, so the gateway keeps it after a restart.",
    )
    auto_create_topics: bool = setting(
        "KAFSCALE_AUTO_CREATE_TOPICS",
        default=True,
        parse=boolean,
        doc="Whether a Metadata request for a topic that does not exist creates the topic, if the client allows it "
        "too.",
    )
    auto_create_partitions: int = setting(
        "KAFSCALE_AUTO_CREATE_PARTITIONS",
        default=1,
        parse=integer(1, 100_000),
        doc="The number of partitions of a topic that is created automatically, or by a CreateTopics request that does "
        "not specify it.",
    )
    cleanup_policy: str = setting(
        "KAFSCALE_CLEANUP_POLICY",
        default=DELETE,
        parse=choice(*CLEANUP_POLICIES),
        doc="The default for the topic config cleanup.policy. With compact, records without a key are refused. Storage "
        "must have the same value.",
    )
    compression_codec: str = setting(
        "KAFSCALE_COMPRESSION_CODEC",
        default="snappy",
        parse=choice(*COMPRESSION_TYPES),
        doc="The default for the topic config compression.type, as reported to clients. Storage applies it.",
    )
    retention_ms: int = setting(
        "KAFSCALE_RETENTION_MS",
        default=604_800_000,
        parse=integer(-1, 2**63 - 1),
        doc="The default for the topic config retention.ms, as reported to clients. Storage applies it.",
    )
    merge: str = setting(
        "KAFSCALE_MERGE",
        default="off",
        parse=choice("off", "on"),
        doc="The default for the topic config kafscale.merge.enable, as reported to clients. Storage applies it.",
    )
    retention_bytes: int = setting(
        "KAFSCALE_RETENTION_BYTES",
        default=-1,
        parse=integer(-1, 2**63 - 1),
        doc="The default for the topic config retention.bytes, as reported to clients. Storage applies it.",
    )
    segment_bytes: int = setting(
        "KAFSCALE_SEGMENT_BYTES",
        default=4 * MIB,
        parse=within(size, 1 * KIB, 1024 * MIB),
        doc="The default for the topic config segment.bytes, as reported to clients. Storage applies it.",
    )
    flush_interval_ms: int = setting(
        "KAFSCALE_FLUSH_INTERVAL_MS",
        default=500,
        parse=integer(1, LONGEST_FLUSH_MS),
        doc="The default for the topic config flush.ms, as reported to clients. Storage applies it.",
    )
    max_fetch_sessions: int = setting(
        "KAFSCALE_MAX_FETCH_SESSIONS",
        default=1000,
        parse=integer(0, 1_000_000),
        doc="The maximum number of fetch sessions that a gateway keeps; Kafka's "
        "max.incremental.fetch.session.cache.slots. In a fetch session, requests and responses contain only the "
        "partitions that changed. Consumers without a session send full requests. 0: no fetch sessions.",
    )
    max_fetch_session_partitions: int = setting(
        "KAFSCALE_MAX_FETCH_SESSION_PARTITIONS",
        default=200_000,
        parse=integer(0, 100_000_000),
        doc="The maximum number of partitions in all fetch sessions of a gateway. Consumers whose partitions exceed it "
        "send full requests.",
    )
    max_partitions_per_topic: int = setting(
        "KAFSCALE_MAX_PARTITIONS_PER_TOPIC",
        default=10_000,
        parse=integer(1, 100_000),
        doc="The maximum number of partitions of a topic. CreateTopics and CreatePartitions refuse more.",
    )
    max_request_bytes: int = setting(
        "KAFSCALE_MAX_REQUEST_BYTES",
        default=100 * MIB,
        parse=within(size, 1 * KIB, 2**31 - 1),
        doc="The maximum size of a request. If a larger request is announced, the connection is closed before the "
        "request is read.",
    )
    max_fetch_bytes: int = setting(
        "KAFSCALE_MAX_FETCH_BYTES",
        default=55 * MIB,
        parse=within(size, 1 * KIB, 1024 * MIB),
        doc="The maximum number of record bytes in one Fetch response, regardless of what the client asks for. At "
        "least one complete batch is always returned.",
    )
    max_control_request_bytes: int = setting(
        "KAFSCALE_MAX_CONTROL_REQUEST_BYTES",
        default=1 * MIB,
        parse=within(size, 1 * KIB, 2**31 - 1),
        doc="The maximum size of requests other than Produce, and of a Produce request without its records. For "
        "example, a request with a million names would block all clients for many seconds. If a request is larger, its "
        "connection is closed.",
    )
    max_group_request_bytes: int = setting(
        "KAFSCALE_MAX_GROUP_REQUEST_BYTES",
        default=8 * MIB,
        parse=within(size, 1 * KIB, LARGEST_PAYLOAD),
        doc="The maximum size of JoinGroup and SyncGroup requests. It must be large enough for the assignments of all "
        "members, which the group leader sends in one request. If a request is larger, its connection is closed.",
    )
    request_memory_bytes: int = setting(
        "KAFSCALE_REQUEST_MEMORY_BYTES",
        default=256 * MIB,
        parse=within(size, 1 * MIB),
        doc="The memory for partially received requests above 64 KB, over all connections. When it is full, only one "
        "request at a time is read beyond it, so up to KAFSCALE_MAX_REQUEST_BYTES more can be in use.",
    )
    request_stall_ms: int = setting(
        "KAFSCALE_REQUEST_STALL_MS",
        default=30_000,
        parse=integer(1_000, 86_400_000),
        doc="A connection is closed if it has sent part of a request above 64 KB and then nothing for this long. It is "
        "also closed if the request takes longer than this and arrives at less than 512 KB/s. While other requests "
        "wait for memory, the request that is read beyond KAFSCALE_REQUEST_MEMORY_BYTES must arrive within 5 seconds.",
    )
    reply_memory_bytes: int = setting(
        "KAFSCALE_REPLY_MEMORY_BYTES",
        default=512 * MIB,
        parse=within(size, 1 * MIB),
        doc="The limit for record bytes in Fetch responses that are not sent yet, over all connections. Beyond it, a "
        "Fetch returns at most one batch.",
    )
    upconvert_bytes: int = setting(
        "KAFSCALE_UPCONVERT_BYTES",
        default=64 * MIB,
        parse=within(size, 1 * MIB),
        doc="The maximum decompressed size of the messages of magic 0 and 1 that a request contains for one partition. "
        "It also limits each batch for a topic whose cleanup.policy includes compact, because every record must be "
        "checked for a key. Larger ones are refused. At most two requests are converted or checked at the same time.",
    )
    max_connections: int = setting(
        "KAFSCALE_MAX_CONNECTIONS",
        default=10_000,
        parse=integer(1, 1_000_000),
        doc="The maximum number of client connections. Further connections are closed immediately.",
    )
    max_connections_per_ip: int = setting(
        "KAFSCALE_MAX_CONNECTIONS_PER_IP",
        default=2**31 - 1,
        parse=integer(0, 2**31 - 1),
        doc="Kafka's max.connections.per.ip: the maximum number of client connections from one address, on all "
        "listeners. Further connections from it are closed immediately. By default, only KAFSCALE_MAX_CONNECTIONS "
        "applies. Behind a proxy or address translation, many clients have the same address. 0: only the addresses in "
        "KAFSCALE_MAX_CONNECTIONS_PER_IP_OVERRIDES may connect.",
    )
    max_connections_of_ips: tuple[tuple[str, int], ...] | None = setting(
        "KAFSCALE_MAX_CONNECTIONS_PER_IP_OVERRIDES",
        default=None,
        parse=optional(Parser("a list of address:number, as in `10.0.0.7:500,[fd00::7]:20`", _parse_per_ip)),
        doc="Kafka's max.connections.per.ip.overrides: other limits for single IP addresses, which replace "
        "KAFSCALE_MAX_CONNECTIONS_PER_IP for them. Host names are not accepted.",
    )
    max_in_flight: int = setting(
        "KAFSCALE_MAX_IN_FLIGHT_PER_CONNECTION",
        default=1024,
        parse=integer(1, 100_000),
        doc="The maximum number of unanswered requests on one connection. Beyond it, the gateway stops reading from "
        "the connection.",
    )
    max_in_flight_bytes: int = setting(
        "KAFSCALE_MAX_IN_FLIGHT_BYTES_PER_CONNECTION",
        default=32 * MIB,
        parse=within(size, 1),
        doc="The maximum size of all unanswered requests on one connection. Beyond it, the gateway stops reading from "
        "the connection, so one producer fills at most this much of KAFSCALE_PARTITION_BUFFER_BYTES.",
    )
    idle_timeout_ms: int = setting(
        "KAFSCALE_CONNECTION_IDLE_MS",
        default=600_000,
        parse=integer(1_000, 86_400_000),
        doc="A connection without traffic for this long is closed.",
    )
    log_hex_bytes: int = setting(
        "KAFSCALE_LOG_HEX_BYTES",
        default=0,
        parse=within(size, 0, 64 * KIB),
        doc="With KAFSCALE_LOG_LEVEL=debug, the number of bytes of each Kafka request and response that are logged in "
        "hexadecimal. These bytes contain records. 0: none.",
    )
    pause_limit_ms: int = setting(
        "KAFSCALE_GATEWAY_PAUSE_LIMIT_MS",
        default=5_000,
        parse=integer(1_000, 86_400_000),
        doc="A gateway that was paused for longer than this (SIGSTOP, a suspended machine, a stalled event loop) "
        "closes its connections and drops the requests that it received on them, because clients may have timed out or "
        "retried elsewhere. Keep it below the request timeout of all clients, which is 10 seconds or more by default.",
    )
    append_queue_bytes: int = setting(
        "KAFSCALE_APPEND_QUEUE_BYTES",
        default=64 * MIB,
        parse=within(size, 64 * KIB),
        doc="The maximum number of record bytes that are on their way to one storage instance. Beyond it, the gateway "
        "stops reading from connections that produce. Requests that still wait when the producer's timeout expires "
        "fail with a retriable error.",
    )
    append_room_wait_ms: int = setting(
        "KAFSCALE_APPEND_ROOM_WAIT_MS",
        default=5_000,
        parse=integer(100, 600_000),
        doc="How long producers wait for space in KAFSCALE_APPEND_QUEUE_BYTES while the storage instance has no commit "
        "stream. After that, their requests fail with a retriable error, so that they do not hold memory that others "
        "need.",
    )
    append_message_bytes: int = setting(
        "KAFSCALE_APPEND_MESSAGE_BYTES",
        default=4 * MIB,
        parse=within(size, 16 * KIB, LARGEST_PAYLOAD),
        doc="The maximum number of record bytes in one message to a storage instance. A larger single append is sent "
        "alone, up to 64 MiB.",
    )
    append_messages: int = setting(
        "KAFSCALE_APPEND_MESSAGES",
        default=8,
        parse=integer(1, 64),
        doc="The maximum number of messages with records that are in flight to a storage instance. All but the last "
        "two are in flight until their records are stored, which saves CPU time. Meanwhile, storage keeps the records "
        "of each twice in memory, up to KAFSCALE_APPEND_MESSAGE_BYTES. In the one-process mode, one message is in "
        "flight, and only while a partition is taken over.",
    )
    append_gather_ms: int = setting(
        "KAFSCALE_APPEND_GATHER_MS",
        default=3,
        parse=integer(0, 1000),
        doc="How long a message to a storage instance waits for the records of producers that were just answered, so "
        "that they share the message. If more are answered meanwhile, it waits for up to twice as long. 0: it does not "
        "wait. In the one-process mode, it never waits.",
    )
    storage_timeout_ms: int = setting(
        "KAFSCALE_STORAGE_TIMEOUT_MS",
        default=30_000,
        parse=integer(100, 600_000),
        doc="The timeout of one call to a storage instance.",
    )
    owner_grace_ms: int = setting(
        "KAFSCALE_OWNER_GRACE_MS",
        default=2_000,
        parse=integer(10, 600_000),
        doc="How long a request waits for the other storage instances that it needs after one of them has answered. "
        "After that, the partitions of the others get a retriable error.",
    )
    coordinator_timeout_ms: int = setting(
        "KAFSCALE_COORDINATOR_TIMEOUT_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="The timeout of one request about consumer groups, including a second attempt. After that, the request "
        "fails with a retriable error. JoinGroup and SyncGroup have no such timeout and wait as long as their group "
        "does.",
    )
    commit_silence_ms: int = setting(
        "KAFSCALE_COMMIT_SILENCE_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="A commit stream on which nothing arrives for this long, not even a heartbeat, is considered broken.",
    )
    admin_watchers: int = setting(
        "KAFSCALE_ADMIN_WATCHERS",
        default=16,
        parse=integer(0, 1_000),
        doc="The maximum number of administrators who watch the cluster through this gateway at the same time.",
    )
    admin_watch_changes: int = setting(
        "KAFSCALE_ADMIN_WATCH_CHANGES",
        default=10_000,
        parse=integer(1, 1_000_000),
        doc="The maximum number of changes that are queued for a slow watcher. With one more change, the watch ends "
        "with an error.",
    )
    admin_watch_health_ms: int = setting(
        "KAFSCALE_ADMIN_WATCH_HEALTH_MS",
        default=5_000,
        parse=integer(100, 600_000),
        doc="How often the gateway polls the health of the cluster's processes while somebody watches the cluster.",
    )
    shutdown_grace_ms: int = setting(
        "KAFSCALE_GATEWAY_SHUTDOWN_GRACE_MS",
        default=5_000,
        parse=integer(0, 600_000),
        doc="How long busy connections may take to finish their responses when the gateway stops. Idle connections are "
        "closed immediately.",
    )
