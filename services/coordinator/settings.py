"""What the coordinator reads from its environment."""

from dataclasses import dataclass

from kafscale.service.groups import GroupSettings
from kafscale.service.network import LeaseSettings
from kafscale.service.settings import GIB, KIB, MIB, integer, setting, size, within
from services.coordinator.limits import GroupLimits

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings(LeaseSettings, GroupSettings):
    """Sizes in bytes, times in milliseconds unless the name says otherwise."""

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
    group_topic_check_ms: int = setting(
        "KAFSCALE_GROUP_TOPIC_CHECK_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="How long a coordinator believes that a topic exists before a commit makes it look again: commits by a "
        "gateway that has not seen a topic's deletion are refused when this time is over.",
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
        "requests are refused retriably. A group that is slowed down by KAFSCALE_GROUP_WRITE_BYTES_PER_SECOND may have "
        "an eighth of it.",
    )
    group_write_bytes_per_second: int = setting(
        "KAFSCALE_GROUP_WRITE_BYTES_PER_SECOND",
        default=1 * MIB,
        parse=within(size, 64 * KIB, 1 * GIB),
        doc="How much a group may write to the metadata store in the long run. What it writes beyond that waits, its "
        "requests with it. Commits that wait share transactions, in which each partition's last offset is written.",
    )
    group_write_burst_bytes: int = setting(
        "KAFSCALE_GROUP_WRITE_BURST_BYTES",
        default=16 * MIB,
        parse=within(size, 1 * MIB, 1 * GIB),
        doc="How much a group may write at once before KAFSCALE_GROUP_WRITE_BYTES_PER_SECOND applies.",
    )

    group_offset_metadata_total_bytes: int = setting(
        "KAFSCALE_GROUP_OFFSET_METADATA_TOTAL_BYTES",
        default=16 * MIB,
        parse=within(size, 0, 1 * GIB),
        doc="What a group may keep beside its committed offsets, of all partitions together. A commit beyond it is "
        "refused with OFFSET_METADATA_TOO_LARGE, for the partitions that do not fit any more; Kafka has no such bound.",
    )

    group_lag_interval_ms: int = setting(
        "KAFSCALE_GROUP_LAG_INTERVAL_MS",
        default=30_000,
        parse=integer(100, 3_600_000),
        doc="How often a coordinator compares what its groups committed with the ends of the logs, for the metric "
        "`kafscale_coordinator_group_lag`; one transaction of the metadata store for each 100 partitions.",
    )
    group_lag_series: int = setting(
        "KAFSCALE_GROUP_LAG_SERIES",
        default=1_000,
        parse=integer(0, 100_000),
        doc="Of how many groups and topics a coordinator shows it, those with the largest lags; 0: of none, and "
        "nothing is read for it.",
    )

    def limits(self) -> GroupLimits:
        return GroupLimits(
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            max_size=self.group_max_size,
            offset_metadata_max_bytes=self.group_offset_metadata_max_bytes,
            metadata_total_bytes=self.group_offset_metadata_total_bytes,
            offsets_retention_ms=self.group_offsets_retention_minutes * _MINUTE_MS,
        )
