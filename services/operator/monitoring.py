"""Metrics of the operator, and the health check of the Kubernetes API."""

from collections.abc import Callable

from kafscale.process.operations import Operations
from kafscale.telemetry import HEALTHY, Family, Finding, State, by_label, counter, gauge
from services.operator.counters import OperatorCounters
from services.operator.resources import CLUSTER, TOPIC, USER

_ACTIONS = (
    *("create", "grow", "configure", "delete"),
    *("set_credentials", "delete_credentials", "create_acls", "delete_acls"),
)


def families(counters: OperatorCounters, waiting: Callable[[], float]) -> list[Family]:
    """Return all metric families. ``waiting`` returns the number of resources that wait for a worker."""
    return [
        gauge("kafscale_operator_leading", "1 while this operator is the leader.", lambda: counters.leading),
        Family(
            "kafscale_operator_reconciles_total",
            "counter",
            "The number of reconciliations, by kind of resource and outcome: done, or failed and retried.",
            lambda: {
                (kind.name, outcome): counters.reconciled[kind.name, outcome]
                for kind in (CLUSTER, TOPIC, USER)
                for outcome in ("done", "failed")
            },
            ("kind", "outcome"),
        ),
        Family(
            "kafscale_operator_reconcile_seconds",
            "histogram",
            "The duration of reconciliations.",
            lambda: {(): counters.seconds},
        ),
        Family(
            "kafscale_operator_actions_total",
            "counter",
            "The number of changes that the operator made to topics and users, by action.",
            lambda: by_label(counters.actions, _ACTIONS),
            ("action",),
        ),
        gauge("kafscale_operator_waiting", "The number of resources that wait for a worker.", waiting),
        Family(
            "kafscale_operator_kubernetes_requests_total",
            "counter",
            "The number of requests to the Kubernetes API server, by method and status code. The code is 0 if there "
            "was no response.",
            lambda: dict(counters.requests),
            ("method", "code"),
        ),
        Family(
            "kafscale_operator_watches_total",
            "counter",
            "The number of watches started on the Kubernetes API server. Each watch ends after a minute and is started "
            "again.",
            lambda: by_label(counters.watches, (CLUSTER.name, TOPIC.name, USER.name)),
            ("kind",),
        ),
        counter(
            "kafscale_operator_events_lost_total",
            "The number of events that the Kubernetes API server did not accept. They are logged.",
            lambda: counters.events_lost,
        ),
    ]


def show(counters: OperatorCounters, waiting: Callable[[], float], operations: Operations) -> None:
    operations.metrics.add(families(counters, waiting))
    operations.health.add("kubernetes", lambda: _kubernetes(counters), unready_from=State.UNAVAILABLE)


def _kubernetes(counters: OperatorCounters) -> Finding:
    return Finding(State.UNAVAILABLE, counters.failing) if counters.failing else HEALTHY
