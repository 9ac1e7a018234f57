"""Health checks and metrics of the coordinator."""

from collections import Counter
from collections.abc import Callable

from kafscale.process.operations import Operations
from kafscale.telemetry import HEALTHY, Family, Finding, State, Values, by_label, counter, gauge
from services.coordinator import table
from services.coordinator.counters import CoordinatorCounters
from services.coordinator.run import Run
from services.coordinator.service import CoordinatorService
from services.coordinator.settings import CoordinatorSettings

_GRACE_SECONDS = 5.0
"""Shorter loads are not reported, because every start and stop of a coordinator moves groups."""


def show(coordinator: CoordinatorService, counters: CoordinatorCounters, operations: Operations) -> None:
    """Add the coordinator's checks and metrics to those of the process. ``counters`` must be the coordinator's."""
    operations.health.add("groups", lambda: _groups(coordinator.current))
    operations.metrics.add(families(counters, lambda: coordinator.current, coordinator.settings))


def _groups(run: Run | None) -> Finding:
    """Check whether all groups of this instance can be served."""
    damaged = sorted(group for shard in run.shards.values() for group in shard.damaged) if run else []
    if damaged:
        return Finding(State.DEGRADED, f"{len(damaged)} groups are damaged: {', '.join(damaged[:5])}")
    awaited = run.awaited(_GRACE_SECONDS) if run else 0
    if awaited:
        return Finding(State.DEGRADED, f"{awaited} of 64 group shards are not loaded yet")
    return HEALTHY


def _states(run: Run | None) -> Counter[str]:
    return Counter(s.groups[g].state.value for s in run.shards.values() for g in s.groups) if run else Counter()


def _lags(run: Run | None) -> Values:
    return {labels: lag for labels, lag in run.lag().items()} if run else {}  # noqa: C416 - its type widens


_Total = Callable[[Callable[[Run], float]], Callable[[], float]]


def families(
    counters: CoordinatorCounters, current: Callable[[], Run | None], settings: CoordinatorSettings
) -> list[Family]:
    """Return all metric families. ``current`` returns the current run, or None if there is none."""

    def total(read: Callable[[Run], float]) -> Callable[[], float]:
        def value() -> float:
            run = current()
            return 0 if run is None else read(run)

        return value

    return [
        *_ownership_families(counters, total),
        *_group_families(counters, current, total),
        *_work_families(counters, total, settings),
    ]


def _ownership_families(counters: CoordinatorCounters, total: _Total) -> list[Family]:
    return [
        gauge(
            "kafscale_coordinator_shards_owned",
            "The number of group shards, of 64 in total, that this instance serves.",
            total(lambda run: len(run.shards)),
        ),
        gauge(
            "kafscale_coordinator_shards_awaited",
            "The number of group shards that are assigned to this instance and that it does not serve yet.",
            total(lambda run: run.awaited()),
        ),
        counter(
            "kafscale_coordinator_take_overs_total",
            "The number of group shards taken over.",
            lambda: counters.take_overs,
        ),
        Family(
            "kafscale_coordinator_load_seconds",
            "histogram",
            "The time to take over one group shard and load its groups.",
            lambda: {(): counters.load_seconds},
        ),
        counter(
            "kafscale_coordinator_hand_overs_total",
            "The number of group shards handed over in an orderly way.",
            lambda: counters.hand_overs,
        ),
        counter(
            "kafscale_coordinator_fenced_total",
            "The number of group shards lost to another coordinator.",
            lambda: counters.fenced,
        ),
        counter(
            "kafscale_coordinator_leases_lost_total", "The number of leases that expired.", lambda: counters.leases_lost
        ),
    ]


def _group_families(counters: CoordinatorCounters, current: Callable[[], Run | None], total: _Total) -> list[Family]:
    return [
        Family(
            "kafscale_coordinator_groups",
            "gauge",
            "The number of groups that this instance serves, by state.",
            lambda: by_label(_states(current()), [state.value for state in table.State]),
            ("state",),
        ),
        gauge(
            "kafscale_coordinator_members",
            "The number of members of these groups.",
            total(lambda run: sum(len(s.groups[g].members) for s in run.shards.values() for g in s.groups)),
        ),
        gauge(
            "kafscale_coordinator_groups_damaged",
            "The number of groups whose requests are refused because their data in the metadata store is damaged.",
            total(lambda run: sum(len(shard.damaged) for shard in run.shards.values())),
        ),
        counter(
            "kafscale_coordinator_rebalances_total",
            "The number of rebalances that created a new generation.",
            lambda: counters.generations,
        ),
        counter(
            "kafscale_coordinator_expired_timers_total",
            "The number of sessions and rebalance phases that timed out.",
            lambda: counters.expired_timers,
        ),
        gauge(
            "kafscale_coordinator_committed_offsets",
            "The number of partitions for which these groups have committed offsets.",
            total(lambda run: sum(len(s.groups[g].offsets) for s in run.shards.values() for g in s.groups)),
        ),
        Family(
            "kafscale_coordinator_group_lag",
            "gauge",
            "The consumer lag: the number of records between a group's committed offsets and the high watermarks of a "
            "topic's partitions. It is updated every KAFSCALE_GROUP_LAG_INTERVAL_MS and keeps its last value while "
            "etcd does not answer. Each coordinator reports the KAFSCALE_GROUP_LAG_SERIES largest values.",
            lambda: _lags(current()),
            ("group", "topic"),
        ),
        gauge(
            "kafscale_coordinator_group_lags_left_out",
            "The number of group and topic pairs whose lag is not reported because others are larger.",
            total(lambda run: run.lags.left_out),
        ),
    ]


def _work_families(counters: CoordinatorCounters, total: _Total, settings: CoordinatorSettings) -> list[Family]:
    return [
        gauge(
            "kafscale_coordinator_waiting_requests",
            "The number of requests that wait for other members, or for a write to be stored.",
            total(lambda run: len(run.tickets)),
        ),
        gauge(
            "kafscale_coordinator_queued_bytes",
            "The size of the pending writes, including the responses that wait for them.",
            lambda: counters.queued_bytes,
        ),
        gauge(
            "kafscale_coordinator_queue_limit_bytes",
            "The value of KAFSCALE_GROUP_QUEUE_BYTES.",
            lambda: settings.group_queue_bytes,
        ),
        Family(
            "kafscale_coordinator_writes_total",
            "counter",
            "The number of transactions for groups, by outcome: stored, refused or unknown.",
            lambda: by_label(counters.writes, ("stored", "refused", "unknown")),
            ("outcome",),
        ),
        counter(
            "kafscale_coordinator_delayed_writes_total",
            "The number of writes that were delayed because their group exceeds KAFSCALE_GROUP_WRITE_BYTES_PER_SECOND.",
            lambda: counters.delayed_writes,
        ),
        Family(
            "kafscale_coordinator_write_seconds",
            "histogram",
            "The duration of transactions for groups.",
            lambda: {(): counters.write_seconds},
        ),
        Family(
            "kafscale_coordinator_requests_refused_total",
            "counter",
            "The number of requests that this instance could not serve, by error.",
            lambda: by_label(counters.refused, ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")),
            ("error",),
        ),
    ]
