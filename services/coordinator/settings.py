"""What the coordinator reads from its environment."""

from dataclasses import dataclass

from kafscale.service.groups import GroupSettings
from kafscale.service.network import LeaseSettings
from kafscale.service.settings import GIB, MIB, integer, setting, size, within
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
            offsets_retention_ms=self.group_offsets_retention_minutes * _MINUTE_MS,
        )
