"""Limits of consumer groups, named after Kafka's broker configs. Coordinators apply them, gateways report them."""

from dataclasses import dataclass

from kafscale.config.settings import integer, setting


# Without slots: only one base of a class can have slots, and the classes that inherit this have another such base.
@dataclass(frozen=True, kw_only=True)
class GroupSettings:
    """Sizes in bytes, times in milliseconds unless the name says otherwise."""

    group_min_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS",
        default=6_000,
        parse=integer(1, 2**31 - 1),
        doc="The minimum session timeout that a member can request; Kafka's group.min.session.timeout.ms.",
    )
    group_max_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS",
        default=1_800_000,
        parse=integer(1, 2**31 - 1),
        doc="The maximum session timeout that a member can request; Kafka's group.max.session.timeout.ms.",
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
        doc="The maximum number of members of one group; Kafka's group.max.size. It also limits the member ids that "
        "are kept for clients that received one and have not joined with it yet. A group's header, a single value in "
        "the metadata store, lists all members. A member that would make it larger than 1.2 MB is also refused with "
        "GROUP_MAX_SIZE_REACHED. For example, 10,000 members exceed this size if their ids are longer than 80 "
        "characters. A member id is the client id, or group.instance.id, plus 37 characters.",
    )
    group_offset_metadata_max_bytes: int = setting(
        "KAFSCALE_GROUP_OFFSET_METADATA_MAX_BYTES",
        default=4_096,
        parse=integer(0, 100_000),
        doc="The maximum length of the metadata that a client sends with a committed offset, in characters as Kafka "
        "counts them; Kafka's offset.metadata.max.bytes.",
    )
    group_offsets_retention_minutes: int = setting(
        "KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES",
        default=7 * 24 * 60,
        parse=integer(1, 2**31 - 1),
        doc="How long committed offsets are kept after their group becomes empty or, in a group without members, after "
        "the commit; Kafka's offsets.retention.minutes.",
    )
    group_offsets_retention_check_interval_ms: int = setting(
        "KAFSCALE_GROUP_OFFSETS_RETENTION_CHECK_INTERVAL_MS",
        default=600_000,
        parse=integer(100, 86_400_000),
        doc="How often groups are checked for expired offsets; Kafka's offsets.retention.check.interval.ms.",
    )
