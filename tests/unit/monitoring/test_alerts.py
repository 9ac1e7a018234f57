"""monitoring/alerts.yaml names what exists: metrics, labels, and what to do."""

import re

import pytest

from tests.unit.monitoring.alerts import ROOT, Alert, read_alerts
from tests.unit.monitoring.catalogue import ALERTS, complaints

_RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()


def _runbooks() -> dict[str, str]:
    """The sections, by heading."""
    return dict(re.findall(r"^## (Kafscale\w+)\n\n(.+?)(?=\n#|\Z)", _RUNBOOKS, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_names_metrics_and_labels_that_exist(alert: Alert) -> None:
    assert complaints(alert.expr) == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert: Alert) -> None:
    assert alert.severity in ("critical", "warning")
    assert re.fullmatch(r"\d+m", alert.duration)
    assert alert.annotations.keys() == {"summary", "description", "runbook_url"}
    assert alert.annotations["runbook_url"] == f"docs/runbooks.md#{alert.name.lower()}"


def test_each_alert_has_a_name_of_its_own_and_each_runbook_an_alert() -> None:
    names = [alert.name for alert in ALERTS]
    assert len(names) > 20
    assert sorted(set(names)) == sorted(names)
    assert _runbooks().keys() == set(names)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("kafscale_readi == 0", "there is no kafscale_readi"),
        ('kafscale_health_state{chek="s3"} == 2', "kafscale_health_state has no chek"),
        ("kafscale_s3_request_seconds > 1", "there is no kafscale_s3_request_seconds"),
    ],
)
def test_what_does_not_exist_is_complained_of(expression: str, complaint: str) -> None:
    assert [each.split(":")[0] for each in complaints(expression)] == [complaint]


@pytest.mark.parametrize("line", ["      - record: a", "        keep_firing_for: 5m", "          team: us", "  x"])
def test_rules_of_another_form_are_refused(line: str) -> None:
    text = "groups:\n  - name: a\n    rules:\n      - alert: A\n        expr: up == 0\n" + line + "\n"
    with pytest.raises(ValueError, match=r"."):
        read_alerts(text)
