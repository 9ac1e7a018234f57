"""What there is to name in an alert or a dashboard, from the code; and what they name."""

import json

from services.cli.docs import METRICS
from tests.unit.monitoring.alerts import ROOT, read_alerts
from tests.unit.monitoring.promql import Expression, Selector, read

OF_THE_SCRAPE = {"instance", "job", "namespace"}
"""Labels that Prometheus adds to every sample; the last one on Kubernetes."""
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
_KINDS = {"up": "gauge"}  # Prometheus' own
_LABELS: dict[str, set[str]] = {"up": set()}
for _metric in (metric for group in METRICS for metric in group.metrics):
    for _suffix in _SUFFIXES.get(_metric.kind, ("",)):
        _KINDS[_metric.name + _suffix] = "counter" if _suffix else _metric.kind
        _LABELS[_metric.name + _suffix] = {*_metric.labels, *(["le"] if _suffix == "_bucket" else [])}


MONITORING = ROOT / "monitoring"
ALERTS = read_alerts((MONITORING / "alerts.yaml").read_text())
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*"))


def expressions() -> list[str]:
    """All of alerts and dashboards."""
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    targets = [target for board in boards for panel in board["panels"] for target in panel.get("targets", ())]
    return [alert.expr for alert in ALERTS] + [target["expr"] for target in targets]


def complaints(text: str) -> list[str]:
    """What the expression names that does not exist, and rates of what does not only grow."""
    found = read(text)
    wrong = [complaint for selector in found.selectors for complaint in _complaints(selector)]
    labels = known_labels(found)
    wrong += [f"no metric of it has the label {label}" for label in sorted(found.labels - labels)]
    return [f"{each}: {text}" for each in wrong]


def known_labels(found: Expression) -> set[str]:
    """Those that its result may have."""
    of_metrics = (_LABELS.get(selector.metric, set()) for selector in found.selectors)
    return OF_THE_SCRAPE.union(found.made, *of_metrics)


def _complaints(selector: Selector) -> list[str]:
    if selector.metric not in _KINDS:
        return [f"there is no {selector.metric}"]
    labels = _LABELS[selector.metric] | OF_THE_SCRAPE
    wrong = [f"{selector.metric} has no {m.label}" for m in selector.matchers if m.label not in labels]
    if selector.takes_counters != (_KINDS[selector.metric] == "counter"):
        wrong.append(f"{selector.metric} is a {_KINDS[selector.metric]}")
    return wrong
