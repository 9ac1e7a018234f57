"""What groups are held to: coordinators apply it, gateways tell clients of it. Names after Kafka's broker configs."""

from dataclasses import dataclass

from kafscale.service.settings import integer, setting


# Without slots: a class has one base with slots at most, and those that inherit this have another.
@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Sizes in bytes, times in milliseconds unless the name says otherwise."""

    group_min_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS",
        default=6_000,
        parse=integer(1, 2**31 - 1),
        doc="The shortest session timeout that a member may ask for; Kafka's group.min.session.timeout.ms.",
    )
    group_max_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS",
        default=1_800_000,
        parse=integer(1, 2**31 - 1),
        doc="The longest session timeout that a member may ask for; Kafka's group.max.session.timeout.ms.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS",
        default=3_000,
        parse=integer(0, 2**31 - 1),
        doc="How long the first member of an empty group waits for others before partitions are assigned; Kafka's "
        "group.initial.rebalance.delay.ms.",
    )
    group_max_size: int = setting(
        "KAFSCALE_GROUP_MAX_SIZE",
        default=10_000,
        parse=integer(1, 10_000),
        doc="Members of one group; Kafka's group.max.size. Also the ids that are kept of clients that were given one "
        "and have not joined with it. A group's header, one value of the metadata store, names all members: who would "
        "make it larger than 1.2 MB, as 10,000 members with ids of more than 80 characters each, is refused with "
        "GROUP_MAX_SIZE_REACHED too. An id is the client's id, or group.instance.id, and 37 characters.",
    )
    group_offset_metadata_max_bytes: int = setting(
        "KAFSCALE_GROUP_OFFSET_METADATA_MAX_BYTES",
        default=4_096,
        parse=integer(0, 100_000),
        doc="What a client may say beside a committed offset, in characters as Kafka counts them; Kafka's "
        "offset.metadata.max.bytes.",
    )
    group_offsets_retention_minutes: int = setting(
        "KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES",
        default=7 * 24 * 60,
        parse=integer(1, 2**31 - 1),
        doc="How long committed offsets are kept once their group is empty, or for a group without members since they "
        "were committed; Kafka's offsets.retention.minutes.",
    )
    group_offsets_retention_check_interval_ms: int = setting(
        "KAFSCALE_GROUP_OFFSETS_RETENTION_CHECK_INTERVAL_MS",
        default=600_000,
        parse=integer(100, 86_400_000),
        doc="How often groups are looked at for offsets whose retention is over; Kafka's "
        "offsets.retention.check.interval.ms.",
    )
