"""What the operator shows of itself: its metrics, and whether the Kubernetes API answers."""

from collections.abc import Callable

from kafscale.service.operations import Operations
from kafscale.vitals import HEALTHY, Family, Finding, State, by_label, counter, gauge
from services.operator.figures import OperatorFigures
from services.operator.resources import CLUSTER, TOPIC


def families(figures: OperatorFigures, waiting: Callable[[], float]) -> list[Family]:
    """``waiting``: resources that somebody has to look at now."""
    return [
        gauge("kafscale_operator_leading", "1 while this operator is the one that acts.", lambda: figures.leading),
        Family(
            "kafscale_operator_reconciles_total",
            "counter",
            "Times that a resource was compared with what is, by kind and outcome: done, or failed and tried again.",
            lambda: {
                (kind.name, outcome): figures.reconciled[kind.name, outcome]
                for kind in (CLUSTER, TOPIC)
                for outcome in ("done", "failed")
            },
            ("kind", "outcome"),
        ),
        Family(
            "kafscale_operator_reconcile_seconds", "histogram", "What each of them took.", lambda: {(): figures.seconds}
        ),
        Family(
            "kafscale_operator_actions_total",
            "counter",
            "What the operator changed of topics.",
            lambda: by_label(figures.actions, ("create", "grow", "configure", "delete")),
            ("action",),
        ),
        gauge("kafscale_operator_waiting", "Resources that wait until a worker looks at them.", waiting),
        Family(
            "kafscale_operator_kubernetes_requests_total",
            "counter",
            "Requests to the Kubernetes API server, by method and status code; 0: no answer.",
            lambda: dict(figures.requests),
            ("method", "code"),
        ),
        Family(
            "kafscale_operator_watches_total",
            "counter",
            "Watches that were begun at the Kubernetes API server; each ends after a minute, and is begun anew.",
            lambda: by_label(figures.watches, (CLUSTER.name, TOPIC.name)),
            ("kind",),
        ),
        counter(
            "kafscale_operator_events_lost_total",
            "Events that the Kubernetes API server did not take; they are in the log.",
            lambda: figures.events_lost,
        ),
    ]


def show(figures: OperatorFigures, waiting: Callable[[], float], operations: Operations) -> None:
    operations.metrics.add(families(figures, waiting))
    operations.health.add("kubernetes", lambda: _kubernetes(figures), unready_from=State.UNAVAILABLE)


def _kubernetes(figures: OperatorFigures) -> Finding:
    return Finding(State.UNAVAILABLE, figures.failing) if figures.failing else HEALTHY
