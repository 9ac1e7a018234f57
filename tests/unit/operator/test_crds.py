"""k8s/crds matches the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafscale.security.acls import OPERATIONS, Operation, ResourceType
from kafscale.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Mechanism
from kafscale.topics.definitions import COMPRESSION_TYPES, DEFINITIONS
from services.operator.resources import CLUSTER, TOPIC, USER, Kind
from services.operator.topics.retention import MOST_CHARACTERS, PATTERN
from services.operator.users.desired import kafka_name

CRDS = Path(__file__).parents[3] / "k8s" / "crds"


def crd(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CRDS / f"{kind.plural}.yaml").read_text())
    return found


def spec_of(kind: Kind) -> dict[str, Any]:
    (version,) = crd(kind)["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


@pytest.mark.parametrize("kind", [CLUSTER, TOPIC, USER])
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


def test_the_schema_of_a_user_has_the_mechanisms_and_limits_of_scram() -> None:
    authentication = spec_of(USER)["properties"]["authentication"]["properties"]
    assert authentication["mechanisms"]["items"]["enum"] == [mechanism.value for mechanism in Mechanism]
    iterations = authentication["iterations"]
    assert (iterations["minimum"], iterations["maximum"]) == (LEAST_ITERATIONS, MOST_ITERATIONS)


def test_the_schema_of_a_user_has_the_operations_that_exist_on_each_type_of_resource() -> None:
    entry = spec_of(USER)["properties"]["acls"]["items"]
    (rule,) = entry["x-kubernetes-validations"]
    allowed = {
        type_: re.findall(r"'(\w+)'", names) for type_, names in re.findall(r"'(\w+)': \[([^]]*)\]", rule["rule"])
    }
    assert list(allowed) == entry["properties"]["resource"]["properties"]["type"]["enum"]
    for type_, names in allowed.items():
        known = {each.name.replace("_", "") for each in OPERATIONS[ResourceType[kafka_name(type_)]]}
        assert {name.upper() for name in names} == known
    every = {Operation[kafka_name(name)] for name in entry["properties"]["operations"]["items"]["enum"]}
    of_types = set().union(*(OPERATIONS[ResourceType[kafka_name(type_)]] for type_ in allowed))
    assert every == {Operation.ALL, *of_types}
