"""k8s/crds matches the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafscale.topics.definitions import COMPRESSION_TYPES, DEFINITIONS
from services.operator.resources import CLUSTER, TOPIC, Kind
from services.operator.topics.retention import MOST_CHARACTERS, PATTERN

CRDS = Path(__file__).parents[3] / "k8s" / "crds"


def crd(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CRDS / f"{kind.plural}.yaml").read_text())
    return found


def spec_of(kind: Kind) -> dict[str, Any]:
    (version,) = crd(kind)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


@pytest.mark.parametrize("kind", [CLUSTER, TOPIC])
def test_kinds_have_the_names_of_the_code(kind: Kind) -> None:
    spec = crd(kind)["spec"]
    assert crd(kind)["metadata"]["name"] == f"{kind.plural}.{spec['group']}"
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (kind.name, kind.plural)
    assert f"{spec['group']}/{spec['versions'][0]['name']}" == kind.api


def test_the_schema_of_a_topic_has_all_configs_and_codecs() -> None:
    properties = spec_of(TOPIC)["properties"]
    (rule,) = properties["config"]["x-kubernetes-validations"]
    for text in (rule["rule"], rule["messageExpression"]):
        names = re.search(r"\[([^]]*)\]", text)
        assert names is not None
        assert re.findall(r"'([^']*)'", names[1]) == sorted(DEFINITIONS)
    assert set(properties["compression"]["enum"]) == set(COMPRESSION_TYPES)


def test_the_schema_of_a_topic_accepts_the_retentions_that_the_code_parses() -> None:
    retention = spec_of(TOPIC)["properties"]["retention"]
    assert retention["maxLength"] == MOST_CHARACTERS
    (rule,) = retention["x-kubernetes-validations"]
    assert rule["rule"] == f"self.matches('{PATTERN}')"
