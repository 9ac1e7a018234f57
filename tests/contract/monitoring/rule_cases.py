"""Samples with which each alert of monitoring/alerts.yaml fires, and samples with which it does not."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.gateway.owners.errors import MAY_BE_KEPT, TIMED_OUT

INSTANCE = {"instance": "a:1"}
SCRAPE = {**INSTANCE, "job": "kafscale"}
"""Labels of every series, except those that name a job."""


@dataclass(frozen=True, slots=True)
class Case:
    """``fires`` and ``calm``: series with a sample each minute, in promtool's notation.

    With ``fires`` the alert fires after ``at`` minutes, with ``labels`` in addition to its severity and with
    ``summary``. With ``calm``, which has the same metrics, it does not fire.
    """

    alert: str
    fires: Mapping[str, str]
    calm: Mapping[str, str]
    at: int
    summary: str
    labels: Mapping[str, str] = field(default_factory=lambda: SCRAPE)


def _alone(series: str, fires: str, calm: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    return {series: fires}, {series: calm}


def _beside(series: str, limit: str, fires: str, calm: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return series next to a limit of 1000."""
    return {series: fires, limit: "1000x15"}, {series: calm, limit: "1000x15"}


def _of_members(series: str, fires: str, calm: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return series of one member of etcd with a quota of 1000."""
    named, quota = f'{series}{{member="etcd:2379"}}', 'kafscale_etcd_quota_bytes{member="etcd:2379"}'
    return {named: fires, quota: "1000x20"}, {named: calm, quota: "1000x20"}


def _quantile(name: str, labels: str, low: str, high: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """200 observations a minute, all up to ``high``: six of them (or one, if calm) above ``low``."""
    fires, calm = (
        {
            f'{name}_bucket{{{labels}le="{bound}"}}': f"0+{count}x20"
            for bound, count in ((low, below), (high, 200), ("+Inf", 200))
        }
        for below in (194, 199)
    )
    return fires, calm


def _services(*services: str) -> Mapping[str, str]:
    return {f'kafscale_build_info{{service="{service}"}}': "1x5" for service in services}


CASES = [
    Case(
        "KafscaleInstanceDown",
        {"up": "0x5"},
        {"up": "0 1 0 1 0 1", 'up{job="node"}': "0x5"},
        1,
        "a:1 of kafscale cannot be scraped",
    ),
    Case(
        "KafscaleServiceMissing",
        _services("gateway", "storage", "coordinator"),
        _services("gateway", "storage", "coordinator", "indexer"),
        2,
        "No indexer is running",
        {"service": "indexer"},
    ),
    Case(
        "KafscaleServiceMissing",
        _services("gateway", "storage", "indexer"),
        _services("all"),
        2,
        "No coordinator is running",
        {"service": "coordinator"},
    ),
    Case(
        "KafscaleCheckUnavailable",
        *_alone('kafscale_health_state{check="s3"}', "2x3", "1x3"),
        1,
        "s3 is unavailable on a:1",
        {**SCRAPE, "check": "s3"},
    ),
    Case("KafscaleNotReady", *_alone("kafscale_ready", "0x6", "0x3 1x3"), 5, "a:1 is not ready"),
    Case(
        "KafscaleEventLoopLate",
        *_quantile("kafscale_event_loop_lag_seconds", "", "0.5", "1"),
        6,
        "The event loop of a:1 is 833.3ms late",
    ),
    Case(
        "KafscaleFilesRunningOut",
        {"process_open_fds": "810x6", "process_max_fds": "1000x6", **_services("storage")},
        {"process_open_fds": "800x6", "process_max_fds": "1000x6", **_services("storage")},
        5,
        "storage a:1 uses 81% of its file descriptors",
        {**SCRAPE, "service": "storage"},
    ),
    Case(
        "KafscaleS3Failing",
        *_alone("kafscale_s3_failed_ratio", "0.1x6", "0.05x6"),
        5,
        "10% of the S3 requests of a:1 fail",
    ),
    Case(
        "KafscaleS3Refused",
        *_alone('kafscale_s3_requests_total{operation="get", outcome="refused"}', "0+1x7", "3x7"),
        6,
        "S3 denies get to a:1",
        {**INSTANCE, "operation": "get"},
    ),
    Case(
        "KafscaleLifecycleRule",
        {'kafscale_health_state{check="lifecycle"}': "1x3"},
        {'kafscale_health_state{check="lifecycle"}': "0x3", 'kafscale_health_state{check="s3"}': "1x3"},
        1,
        "A lifecycle rule of the bucket deletes KafScale's objects (reported by a:1)",
        {**SCRAPE, "check": "lifecycle"},
    ),
    Case(
        "KafscaleEtcdUnanswered",
        {'kafscale_etcd_operations_total{operation="txn", outcome="unavailable"}': "0+1x7"},
        {
            'kafscale_etcd_operations_total{operation="txn", outcome="unavailable"}': "0 0 0 0 5 5 5",
            'kafscale_etcd_operations_total{operation="txn", outcome="ok"}': "0+1x7",
        },
        6,
        "etcd does not answer operations of a:1",
        INSTANCE,
    ),
    Case(
        "KafscaleEtcdFillingUp",
        *_of_members("kafscale_etcd_database_in_use_bytes", "610x6", "590x6"),
        5,
        "Keys use 61% of the quota of etcd member etcd:2379",
        {"member": "etcd:2379"},
    ),
    Case(
        "KafscaleEtcdFileNearQuota",
        *_of_members("kafscale_etcd_database_bytes", "900x16", "840x16"),
        15,
        "The database file of etcd member etcd:2379 is at 90% of its quota",
        {"member": "etcd:2379"},
    ),
    Case(
        "KafscaleEtcdAlarm",
        *_alone('kafscale_etcd_alarms{alarm="NOSPACE"}', "1x3", "0x3"),
        1,
        "etcd has raised the alarm NOSPACE",
        {"alarm": "NOSPACE"},
    ),
    Case(
        "KafscalePartitionsOffline",
        *_alone("kafscale_storage_partitions_offline", "2", "0"),
        0,
        "2 partitions of a:1 are offline",
    ),
    Case(
        "KafscaleBuffersHalfFull",
        *_beside("kafscale_storage_buffered_bytes", "kafscale_storage_buffer_limit_bytes", "600x2", "500x2"),
        1,
        "The write buffers of a:1 are 60% full",
    ),
    Case(
        "KafscaleProducersRefused",
        {'kafscale_storage_appends_refused_total{reason="BUFFER_FULL"}': "0+1x5"},
        {
            'kafscale_storage_appends_refused_total{reason="BUFFER_FULL"}': "7x5",
            'kafscale_storage_appends_refused_total{reason="NOT_OWNER"}': "0+1x5",
        },
        2,
        "a:1 refuses records of producers",
        {**SCRAPE, "reason": "BUFFER_FULL"},
    ),
    Case(
        "KafscaleIndexesBuiltByStorage",
        {'kafscale_storage_index_builds_total{by="storage"}': "0+1x7"},
        {
            'kafscale_storage_index_builds_total{by="storage"}': "7x7",
            'kafscale_storage_index_builds_total{by="indexer"}': "0+1x7",
        },
        6,
        "a:1 stores indexes itself",
        {**SCRAPE, "by": "storage"},
    ),
    Case(
        "KafscaleRewritesFail",
        *_alone("kafscale_storage_rewrite_failures_total", "0+1x70", "0x35 3x35"),
        65,
        "a:1 cannot compact logs",
    ),
    Case(
        "KafscaleTakeOverStuck",
        *_alone("kafscale_storage_partitions_loading", "3x3", "3 0 3 3"),
        2,
        "The take-over of 3 partitions by a:1 is stuck",
    ),
    Case(
        "KafscalePartitionsFenced",
        *_alone("kafscale_storage_fenced_total", "0+1x40", "0x20 1x20"),
        31,
        "a:1 repeatedly loses partitions",
    ),
    Case("KafscaleLeasesLost", *_alone("kafscale_storage_leases_lost_total", "0 1", "1 1"), 1, "a:1 lost its lease"),
    Case(
        "KafscaleLeasesLost",
        *_alone("kafscale_coordinator_leases_lost_total", "0 1", "1 1"),
        1,
        "a:1 lost its lease",
    ),
    Case(
        "KafscaleSinkWaits",
        *_alone("kafscale_storage_sink_oldest_pending_seconds", "90x2", "59 61 59"),
        1,
        "A sink's committed epoch has waited for 1m 30s",
    ),
    Case(
        "KafscaleTooManySinks",
        *_beside("kafscale_storage_sinks", "kafscale_storage_sinks_limit", "950x6", "900x6"),
        5,
        "The number of sinks is at 95% of its limit",
    ),
    Case(
        "KafscaleIntakeUnknown",
        *_alone("kafscale_storage_intake_unknown", "1", "0"),
        0,
        "a:1 takes over no partitions because the metadata was rolled back",
    ),
    Case(
        "KafscaleIntakeSlow",
        *_quantile("kafscale_storage_intake_seconds", 'stage="put", ', "1", "2.5"),
        11,
        "The 99th percentile of the intake stage put of a:1 is 2s",
        {**INSTANCE, "stage": "put"},
    ),
    Case(
        "KafscaleIntakeOld",
        *_alone("kafscale_storage_intake_oldest_seconds", "100+60x8", "130x4 10x4"),
        6,
        "Records in the intake of a:1 have not been in a segment for 7m 40s",
    ),
    Case(
        "KafscaleRequestsBroken",
        *_alone('kafscale_gateway_broken_requests_total{api="Fetch"}', "0 1", "1 1"),
        1,
        "Fetch requests fail because of a bug in a:1",
        {**SCRAPE, "api": "Fetch"},
    ),
    Case(
        "KafscaleProducesFailing",
        {'kafscale_gateway_errors_total{api="Produce", error="KAFKA_STORAGE_ERROR"}': "0+1x7"},
        {
            'kafscale_gateway_errors_total{api="Produce", error="NOT_LEADER_OR_FOLLOWER"}': "0+1x7",
            'kafscale_gateway_errors_total{api="Fetch", error="KAFKA_STORAGE_ERROR"}': "0+1x7",
        },
        6,
        "Producers at a:1 receive KAFKA_STORAGE_ERROR",
        {**INSTANCE, "error": "KAFKA_STORAGE_ERROR"},
    ),
    *(
        Case(
            "KafscaleProducesFailing",
            {f'kafscale_gateway_errors_total{{api="Produce", error="{error}"}}': "0+1x7"},
            {f'kafscale_gateway_errors_total{{api="CreateTopics", error="{error}"}}': "0+1x7"},
            6,
            f"Producers at a:1 receive {error}",
            {**INSTANCE, "error": error},
        )
        for error in (MAY_BE_KEPT.name.upper(), TIMED_OUT.name.upper())
    ),
    Case(
        "KafscaleProduceSlow",
        *_quantile("kafscale_gateway_request_seconds", 'api="Produce", ', "5", "10"),
        11,
        "The 99th percentile of Produce requests at a:1 is 8.333s",
        INSTANCE,
    ),
    Case(
        "KafscaleConnectionsRunningOut",
        *_beside("kafscale_gateway_connections", "kafscale_gateway_connections_limit", "900x6", "800x6"),
        5,
        "a:1 is at 90% of its connection limit",
    ),
    Case(
        "KafscaleGroupsDamaged",
        *_alone("kafscale_coordinator_groups_damaged", "1", "0"),
        0,
        "1 groups of a:1 are damaged",
    ),
    Case(
        "KafscaleGroupsNotServed",
        *_alone("kafscale_coordinator_shards_awaited", "5x2", "5 0 5"),
        1,
        "5 of 64 group shards are not served",
    ),
    Case(
        "KafscaleGroupWritesUnknown",
        {'kafscale_coordinator_writes_total{outcome="unknown"}': "0+1x5"},
        {
            'kafscale_coordinator_writes_total{outcome="unknown"}': "7x5",
            'kafscale_coordinator_writes_total{outcome="stored"}': "0+1x5",
        },
        2,
        "The outcome of group writes of a:1 to etcd is unknown",
        {**SCRAPE, "outcome": "unknown"},
    ),
    Case(
        "KafscaleGroupQueueFull",
        *_beside("kafscale_coordinator_queued_bytes", "kafscale_coordinator_queue_limit_bytes", "900x2", "800x2"),
        1,
        "The queue of group writes of a:1 is 90% full",
    ),
    Case(
        "KafscaleGroupLagGrows",
        {'kafscale_coordinator_group_lag{group="readers", topic="orders"}': "190000+1000x32"},
        {
            'kafscale_coordinator_group_lag{group="readers", topic="orders"}': "250000-1000x32",
            'kafscale_coordinator_group_lag{group="small", topic="orders"}': "50000+1000x32",
        },
        31,
        "readers is 221k records behind on orders, and the lag grows",
        {**SCRAPE, "group": "readers", "topic": "orders"},
    ),
    Case(
        "KafscaleOperatorDown",
        {"kafscale_operator_leading": "0x5"},
        {"kafscale_operator_leading": "0x5", 'kafscale_operator_leading{instance="b:1"}': "1x5"},
        3,
        "No operator of kafscale is the leader",
        {"job": "kafscale"},
    ),
    Case(
        "KafscaleOperatorDown",
        {"kafscale_operator_leading": "1x3 _x80"},
        {"kafscale_operator_leading": "1x84"},
        70,
        "No operator of kafscale is the leader",
        {"job": "kafscale"},
    ),
    Case(
        "KafscaleOperatorDown",
        {'kafscale_operator_leading{namespace="a"}': "0x5", 'kafscale_operator_leading{namespace="b"}': "1x5"},
        {'kafscale_operator_leading{namespace="a"}': "1x5", 'kafscale_operator_leading{namespace="b"}': "1x5"},
        3,
        "No operator of kafscale is the leader",
        {"job": "kafscale", "namespace": "a"},
    ),
    Case(
        "KafscaleOperatorFailing",
        {'kafscale_operator_reconciles_total{kind="KafscaleCluster",outcome="failed"}': "0+1x40"},
        {'kafscale_operator_reconciles_total{kind="KafscaleCluster",outcome="failed"}': "0+1x12 12x30"},
        35,
        "kafscale cannot reconcile a KafscaleCluster",
        {"job": "kafscale", "kind": "KafscaleCluster"},
    ),
]
