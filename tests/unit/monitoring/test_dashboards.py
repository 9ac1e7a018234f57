"""monitoring/dashboards/ are valid Grafana dashboards of existing metrics."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kafscale_tools.documents.generate import METRICS, SERVICES
from tests.support.metrics_catalogue import DASHBOARDS, MONITORING, complaints, known_labels, panels, selectors

# Grafana's ids: https://github.com/grafana/grafana/blob/main/packages/grafana-data/src/valueFormats/categories.ts
_UNITS = {"Bps", "bytes", "none", "ops", "percentunit", "reqps", "s", "short", "wps"}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_INSTANCES = re.compile(r"label_values\((.+), (\w+)\)")


def _read(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_there_is_an_overview_and_one_for_each_service() -> None:
    assert [path.name for path in DASHBOARDS] == [f"kafscale-{name}.json" for name in sorted(("overview", *SERVICES))]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_panel_uses_existing_metrics_and_labels(path: Path) -> None:
    for panel in panels(path):
        for target in panel["targets"]:
            assert complaints(target["expr"]) == [], panel["title"]
            labels = known_labels(target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, panel["title"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_the_fields_that_grafana_needs(path: Path) -> None:
    board = _read(path)
    assert board["uid"] == path.stem
    assert board["title"].startswith("KafScale: ")
    assert board["schemaVersion"] == 39
    assert board["templating"]["list"][0] | {"label": ""} == {
        "name": "datasource",
        "label": "",
        "type": "datasource",
        "query": "prometheus",
    }
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(path):
        assert panel["type"] in ("timeseries", "stat")
        assert panel["title"]
        assert panel["datasource"] == _SOURCE
        assert panel["fieldConfig"]["defaults"]["unit"] in _UNITS
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == [chr(ord("A") + number) for number in range(len(refs))] != []
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_stay_within_the_grid_and_do_not_overlap(path: Path) -> None:
    places = [panel["gridPos"] for panel in _read(path)["panels"]]
    for place in places:
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)


@pytest.mark.parametrize("service", SERVICES)
def test_a_services_dashboard_covers_its_instances_and_its_metrics(service: str) -> None:
    path = MONITORING / "dashboards" / f"kafscale-{service}.json"
    [_, instances] = _read(path)["templating"]["list"]
    assert instances["name"] == "instance"
    assert instances["datasource"] == _SOURCE
    asked = _INSTANCES.fullmatch(instances["query"]["query"])
    assert asked is not None
    assert complaints(asked[1]) == []
    assert asked[2] == "instance"
    assert f'service=~"{service}|all"' in asked[1]
    shown = {metric.name for group in METRICS if service in group.services for metric in group.metrics}
    for panel in panels(path):
        for target in panel["targets"]:
            for selector in selectors(target["expr"]):
                assert re.sub("_(bucket|sum|count)$", "", selector.metric) in shown, panel["title"]
                assert selector.matchers["instance"] == "$instance", panel["title"]
