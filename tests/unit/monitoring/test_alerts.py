"""monitoring/alerts.yaml uses existing metrics and labels and links existing runbooks."""

import re

import pytest

from tests.support.metrics_catalogue import ALERTS, ROOT, Alert, complaints


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_uses_existing_metrics_and_labels(alert: Alert) -> None:
    assert complaints(alert.expr) == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_has_a_severity_and_a_runbook(alert: Alert) -> None:
    assert alert.severity in ("critical", "warning")
    assert alert.annotations.keys() == {"summary", "description", "runbook_url"}
    assert alert.annotations["runbook_url"] == f"docs/runbooks.md#{alert.name.lower()}"


def test_each_alert_has_a_unique_name_and_a_runbook_section() -> None:
    runbooks = re.findall(r"^## (Kafscale\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names)
    assert sorted(runbooks) == sorted(names)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("kafscale_readi == 0", "no metric kafscale_readi"),
        ('kafscale_health_state{chek="s3"} == 2', "kafscale_health_state has no label chek"),
        ("sum by (operatoin) (rate(kafscale_s3_requests_total[5m]))", "none of its metrics has the label operatoin"),
        ("rate(kafscale_ready[5m]) > 0", "kafscale_ready is a gauge"),
        ("kafscale_s3_requests_total > 0", "kafscale_s3_requests_total is a counter"),
        ("kafscale_s3_request_seconds > 1", "no metric kafscale_s3_request_seconds"),
    ],
)
def test_unknown_names_cause_a_complaint(expression: str, complaint: str) -> None:
    assert [each.split(":")[0] for each in complaints(expression)] == [complaint]
