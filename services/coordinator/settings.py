"""Settings of the coordinator."""

from dataclasses import dataclass

from kafscale.config.group_limits import GroupSettings
from kafscale.config.network import LeaseSettings
from kafscale.config.settings import GIB, KIB, MIB, integer, setting, size, within
from services.coordinator.limits import GroupLimits

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings(LeaseSettings, GroupSettings):
    """Sizes in bytes, times in milliseconds unless the name says otherwise."""

    group_handover_wait_ms: int = setting(
        "KAFSCALE_GROUP_HANDOVER_WAIT_MS",
        default=3_000,
        parse=integer(0, 60_000),
        doc="How long a coordinator answers COORDINATOR_LOAD_IN_PROGRESS for groups that are assigned to it but are "
        "still owned by another live coordinator. After that, it names the other coordinator.",
    )
    group_handover_timeout_ms: int = setting(
        "KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS",
        default=5_000,
        parse=integer(0, 60_000),
        doc="How long a coordinator that stops, or hands groups over to another one, may take to store pending changes "
        "of these groups.",
    )
    group_topic_check_ms: int = setting(
        "KAFSCALE_GROUP_TOPIC_CHECK_MS",
        default=10_000,
        parse=integer(100, 600_000),
        doc="How long a coordinator caches that a topic exists. After this time, a commit makes it check again. "
        "Commits through a gateway that has not noticed a topic's deletion are refused from then on.",
    )
    group_loads_in_flight: int = setting(
        "KAFSCALE_GROUP_LOADS_IN_FLIGHT",
        default=8,
        parse=integer(1, 64),
        doc="The maximum number of group shards, of 64 in total, that a coordinator loads at the same time.",
    )
    group_writes_in_flight: int = setting(
        "KAFSCALE_GROUP_WRITES_IN_FLIGHT",
        default=64,
        parse=integer(1, 10_000),
        doc="The maximum number of concurrent metadata store transactions of a coordinator. Each group has at most "
        "one.",
    )
    group_queue_bytes: int = setting(
        "KAFSCALE_GROUP_QUEUE_BYTES",
        default=64 * MIB,
        parse=within(size, 1 * MIB, 1 * GIB),
        doc="The maximum size of the pending writes of all groups of a coordinator, including the responses that wait "
        "for them. Beyond it, requests fail with a retriable error. A group that is slowed down by "
        "KAFSCALE_GROUP_WRITE_BYTES_PER_SECOND can use an eighth of it.",
    )
    group_write_bytes_per_second: int = setting(
        "KAFSCALE_GROUP_WRITE_BYTES_PER_SECOND",
        default=1 * MIB,
        parse=within(size, 64 * KIB, 1 * GIB),
        doc="The sustained rate at which a group may write to the metadata store. Writes beyond it wait, and so do "
        "their requests. Commits that wait are combined into shared transactions, which contain only the last offset "
        "of each partition.",
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
        doc="The maximum total size of the metadata that a group stores with its committed offsets, over all "
        "partitions. A commit beyond it fails with OFFSET_METADATA_TOO_LARGE for the partitions that no longer fit. "
        "Kafka has no such limit.",
    )

    group_lag_interval_ms: int = setting(
        "KAFSCALE_GROUP_LAG_INTERVAL_MS",
        default=30_000,
        parse=integer(100, 3_600_000),
        doc="How often a coordinator computes the consumer lag of its groups for the metric "
        "`kafscale_coordinator_group_lag`. For every 100 partitions, this takes one metadata store transaction, and "
        "one call to each of their owners for the high watermarks.",
    )
    group_lag_series: int = setting(
        "KAFSCALE_GROUP_LAG_SERIES",
        default=1_000,
        parse=integer(0, 100_000),
        doc="The maximum number of group and topic pairs whose lag a coordinator reports in this metric. The pairs "
        "with the largest lag are reported. 0: no lag is computed or reported.",
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
