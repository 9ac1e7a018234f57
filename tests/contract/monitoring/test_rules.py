"""promtool checks monitoring/: alerts fire when they should, and the queries of dashboards are valid PromQL."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contract.monitoring.rule_cases import CASES, SCRAPE, Case
from tests.servers.promtool import promtool
from tests.support.metrics_catalogue import ALERTS, DASHBOARDS, MONITORING, complaints, selectors, shown_by

_BY_NAME = {alert.name: alert for alert in ALERTS}
_VARIABLES = {"__rate_interval": "5m", "instance": "a:1"}
"""Variables that Grafana replaces in the expressions of dashboards, with possible values."""


def _labelled(series: str) -> str:
    name, _, rest = series.partition("{")
    own = rest.removesuffix("}")
    labels = [own] if own else []
    labels += [f'{label}="{value}"' for label, value in SCRAPE.items() if f"{label}=" not in own]
    return f"{name}{{{', '.join(labels)}}}"


def _test(name: str, samples: Mapping[str, str], at: int, wanted: list[dict[str, Any]], alert: str) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": _labelled(series), "values": values} for series, values in samples.items()],
        "alert_rule_test": [{"eval_time": f"{at}m", "alertname": alert, "exp_alerts": wanted}],
    }


def _tests_of(case: Case) -> list[dict[str, Any]]:
    alert = _BY_NAME[case.alert]
    labels = {"severity": alert.severity, **case.labels}
    description = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], alert.annotations["description"])
    words = {**alert.annotations, "summary": case.summary, "description": description}
    fired = [{"exp_labels": labels, "exp_annotations": words}]
    return [
        _test(f"{case.alert} fires", case.fires, case.at, fired, case.alert),
        _test(f"{case.alert} does not", case.calm, case.at, [], case.alert),
    ]


def _run(command: str, asked: Mapping[str, Any], file: Path) -> None:
    # JSON is a subset of YAML.
    file.write_text(json.dumps(asked))
    done = subprocess.run([promtool(), command, "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _filled_in(expression: str) -> str:
    return re.sub(r"\$(\w+)", lambda found: _VARIABLES[found[1]], expression)


def test_every_alert_fires_exactly_when_it_should(tmp_path: Path) -> None:
    tests = [test for case in CASES for test in _tests_of(case)]
    rules = str(MONITORING / "alerts.yaml")
    _run("test", {"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}, tmp_path / "tests.yaml")


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_expression_of_a_dashboard_is_promql(path: Path, tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": _filled_in(text)} for number, text in enumerate(shown_by(path))]
    assert rules
    _run("check", {"groups": [{"name": path.stem, "rules": rules}]}, tmp_path / "rules.yaml")


def test_every_alert_has_cases_and_both_sides_of_each_use_its_metrics() -> None:
    assert {case.alert for case in CASES} == _BY_NAME.keys()
    for case in CASES:
        named = {selector.metric for selector in selectors(_BY_NAME[case.alert].expr)}
        for samples in (case.fires, case.calm):
            assert samples
            assert {selector.metric for series in samples for selector in selectors(series)} <= named, case.alert
            wrong = [text for series in samples for text in complaints(series) if " is a counter" not in text]
            assert wrong == [], case.alert
        assert {series.partition("{")[0] for series in case.fires} == {series.partition("{")[0] for series in case.calm}
