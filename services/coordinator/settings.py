"""What the coordinator reads from its environment. Names after Apache Kafka's broker configs, where it has them."""

from dataclasses import dataclass

from kafscale.service.network import LeaseSettings
from kafscale.service.settings import GIB, MIB, integer, setting, size, within
from services.coordinator.limits import GroupLimits

_DEFAULT = GroupLimits()
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings(LeaseSettings):
    """Sizes in bytes, times in milliseconds unless the name says otherwise."""

    group_min_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS",
        default=_DEFAULT.min_session_timeout_ms,
        parse=integer(1, 2**31 - 1),
        doc="The shortest session timeout that a member may ask for; Kafka's group.min.session.timeout.ms.",
    )
    group_max_session_timeout_ms: int = setting(
        "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS",
        default=_DEFAULT.max_session_timeout_ms,
        parse=integer(1, 2**31 - 1),
        doc="The longest session timeout that a member may ask for; Kafka's group.max.session.timeout.ms.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS",
        default=_DEFAULT.initial_rebalance_delay_ms,
        parse=integer(0, 2**31 - 1),
        doc="How long the first member of an empty group waits for others before partitions are assigned; Kafka's "
        "group.initial.rebalance.delay.ms.",
    )
    group_max_size: int = setting(
        "KAFSCALE_GROUP_MAX_SIZE",
        default=10_000,
        parse=integer(1, 10_000),
        doc="Members of one group, and ids given to clients that have not joined with them yet; Kafka's "
        "group.max.size. A group's header, one value of the metadata store, names all: who would make it larger than "
        "1.2 MB, as 10,000 members with ids of more than 80 characters each, is refused with GROUP_MAX_SIZE_REACHED "
        "too. An id is the client's id, or group.instance.id, and 37 characters.",
    )
    group_offset_metadata_max_bytes: int = setting(
        "KAFSCALE_GROUP_OFFSET_METADATA_MAX_BYTES",
        default=_DEFAULT.offset_metadata_max_bytes,
        parse=integer(0, 100_000),
        doc="What a client may say beside a committed offset, in characters as Kafka counts them; Kafka's "
        "offset.metadata.max.bytes.",
    )
    group_offsets_retention_minutes: int = setting(
        "KAFSCALE_GROUP_OFFSETS_RETENTION_MINUTES",
        default=_DEFAULT.offsets_retention_ms // _MINUTE_MS,
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
    group_handover_wait_ms: int = setting(
        "KAFSCALE_GROUP_HANDOVER_WAIT_MS",
        default=3_000,
        parse=integer(0, 60_000),
        doc="How long a coordinator answers COORDINATOR_LOAD_IN_PROGRESS for groups that it is to have and another "
        "live one still has; then it names that one.",
    )
    group_handover_timeout_ms: int = setting(
        "KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS",
        default=5_000,
        parse=integer(0, 60_000),
        doc="How long a coordinator that gives groups to another one, or stops, finishes what it stores for them.",
    )
    group_loads_in_flight: int = setting(
        "KAFSCALE_GROUP_LOADS_IN_FLIGHT",
        default=8,
        parse=integer(1, 64),
        doc="Of the 64 parts that groups are divided into, how many a coordinator loads at the same time.",
    )
    group_writes_in_flight: int = setting(
        "KAFSCALE_GROUP_WRITES_IN_FLIGHT",
        default=64,
        parse=integer(1, 10_000),
        doc="Transactions of the metadata store that a coordinator has under way, at most one for each group.",
    )
    group_queue_bytes: int = setting(
        "KAFSCALE_GROUP_QUEUE_BYTES",
        default=64 * MIB,
        parse=within(size, 1 * MIB, 1 * GIB),
        doc="What may wait to be stored, of all groups of a coordinator, and the answers that wait for it; beyond it "
        "requests are refused retriably.",
    )

    def limits(self) -> GroupLimits:
        return GroupLimits(
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            max_size=self.group_max_size,
            offset_metadata_max_bytes=self.group_offset_metadata_max_bytes,
            offsets_retention_ms=self.group_offsets_retention_minutes * _MINUTE_MS,
        )
