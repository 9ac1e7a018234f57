"""What there is to name in an alert or a dashboard, from the code; and what they name."""

import json
import re

from services.cli.docs import METRICS
from tests.unit.monitoring.alerts import ROOT, read_alerts

_OF_THE_SCRAPE = {"instance", "job", "namespace"}
"""Labels that Prometheus adds to every sample; the last one on Kubernetes."""
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
_LABELS: dict[str, set[str]] = {"up": set()}  # Prometheus' own
for _metric in (metric for group in METRICS for metric in group.metrics):
    for _suffix in _SUFFIXES.get(_metric.kind, ("",)):
        _LABELS[_metric.name + _suffix] = {*_metric.labels, *(["le"] if _suffix == "_bucket" else [])}
_METRIC = re.compile(r"\b(up|(?:kafscale|process|grpc_server|grpc_client)_\w+)\b(?:{([^}]*)})?")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')

MONITORING = ROOT / "monitoring"
ALERTS = read_alerts((MONITORING / "alerts.yaml").read_text())
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*"))


def expressions() -> list[str]:
    """All of alerts and dashboards."""
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    targets = [target for board in boards for panel in board["panels"] for target in panel.get("targets", ())]
    return [alert.expr for alert in ALERTS] + [target["expr"] for target in targets]


def named(expression: str) -> list[tuple[str, str]]:
    """The metrics of a PromQL expression as they are written, each with its label matchers."""
    return _METRIC.findall(expression)


def matched(expression: str) -> list[tuple[str, str, str]]:
    """Each label matcher of a PromQL expression: metric, label and value."""
    return [(metric, *found) for metric, matchers in named(expression) for found in _MATCHER.findall(matchers)]


def complaints(expression: str) -> list[str]:
    """What a PromQL expression names that does not exist. promtool is the judge of its syntax."""
    wrong = [f"there is no {metric}" for metric, _ in named(expression) if metric not in _LABELS]
    return wrong + [
        f"{metric} has no {label}"
        for metric, label, _ in matched(expression)
        if label not in _LABELS.get(metric, {label}) | _OF_THE_SCRAPE
    ]


def known_labels(expression: str) -> set[str]:
    """Those that its result may have."""
    made = re.findall(r'label_replace\([^"]*"(\w+)"', expression)
    return _OF_THE_SCRAPE.union(made, *(_LABELS.get(metric, set()) for metric, _ in named(expression)))
