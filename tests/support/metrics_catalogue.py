"""The metrics and labels of the code, and those in the expressions of alerts and dashboards."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kafscale_tools.documents.generate import METRICS

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "monitoring"
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*"))

OF_THE_SCRAPE = {"instance", "job", "namespace"}
"""Labels that Prometheus adds to every sample, the last one only on Kubernetes."""
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
_KINDS = {"up": "gauge"}  # from Prometheus itself
_LABELS: dict[str, set[str]] = {"up": set()}
for _metric in (metric for group in METRICS for metric in group.metrics):
    for _suffix in _SUFFIXES.get(_metric.kind, ("",)):
        _KINDS[_metric.name + _suffix] = "counter" if _suffix else _metric.kind
        _LABELS[_metric.name + _suffix] = {*_metric.labels, *(["le"] if _suffix == "_bucket" else [])}

# These only find names in expressions. promtool checks whether they are valid PromQL.
_GROUPING = re.compile(r"\b(?:by|on|group_left)\s*\(([^)]*)\)")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
_SELECTOR = re.compile(
    r"""
    "[^"]*" | \[[^]]*\]                                           # strings and ranges contain no names
  | (?:\b(?P<function>rate|increase)\()?
    \b(?!(?:and|or|unless)\b)(?P<metric>[a-zA-Z_]\w*)\b(?!\s*\()  # a name before a parenthesis is a function
    (?:\{(?P<matchers>[^}]*)\})?
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expr: str
    severity: str
    annotations: dict[str, str]


ALERTS = [
    Alert(rule["alert"], rule["expr"], rule["labels"]["severity"], rule["annotations"])
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]


@dataclass(frozen=True, slots=True)
class Selector:
    """``metric`` is the name with a histogram's suffix. ``matchers`` has the values by label."""

    metric: str
    matchers: dict[str, str]
    takes_counters: bool

    def values(self, label: str) -> set[str]:
        """Return the values that the matcher of a label lists, if they are plain words."""
        value = self.matchers[label]
        return set(value.split("|")) if re.fullmatch(r"[\w|]+", value) else set()


def selectors(text: str) -> list[Selector]:
    """Return the selectors of an expression."""
    return [
        Selector(found["metric"], dict(_MATCHER.findall(found["matchers"] or "")), found["function"] is not None)
        for found in _SELECTOR.finditer(_GROUPING.sub("", text))
        if found["metric"]
    ]


def panels(dashboard: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(dashboard.read_text())["panels"] if panel["type"] != "row"]


def shown_by(dashboard: Path) -> list[str]:
    """Return the expressions of a dashboard's panels."""
    return [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]


def expressions() -> list[str]:
    """Return the expressions of all alerts and dashboards."""
    return [alert.expr for alert in ALERTS] + [text for path in DASHBOARDS for text in shown_by(path)]


def complaints(text: str) -> list[str]:
    """Return errors in an expression: unknown names, and rates of metrics that are not counters."""
    wrong = [complaint for selector in selectors(text) for complaint in _complaints(selector)]
    grouped = {label for labels in _GROUPING.findall(text) for label in re.findall(r"\w+", labels)}
    wrong += [f"none of its metrics has the label {label}" for label in sorted(grouped - known_labels(text))]
    return [f"{each}: {text}" for each in wrong]


def known_labels(text: str) -> set[str]:
    """Return the labels that the result of an expression can have."""
    return OF_THE_SCRAPE.union(*(_LABELS.get(selector.metric, set()) for selector in selectors(text)))


def _complaints(selector: Selector) -> list[str]:
    if selector.metric not in _KINDS:
        return [f"no metric {selector.metric}"]
    labels = _LABELS[selector.metric] | OF_THE_SCRAPE
    wrong = [f"{selector.metric} has no label {label}" for label in selector.matchers if label not in labels]
    if selector.takes_counters != (_KINDS[selector.metric] == "counter"):
        wrong.append(f"{selector.metric} is a {_KINDS[selector.metric]}")
    return wrong
