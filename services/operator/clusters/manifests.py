"""The manifests of k8s/ that clusters are made of: the base, and what lets clients in from outside.

The package has them as data (`services/operator/manifests` is a link to k8s/), so there is no second copy. Of Kustomize
this knows what these files use; tests hold the result against `kubectl kustomize`.
"""

import copy
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafscale.errors import ConfigError
from services.operator.resources import Object

_DIRECTORY = Path(__file__).parents[1] / "manifests"
_OUTSIDE = {"NodePort": "node-ports", "LoadBalancer": "load-balancers"}


@dataclass(frozen=True, slots=True)
class Outside:
    """``service`` is the first gateway's; ``operations`` are a JSON patch of the gateways' StatefulSet."""

    service: Object
    others: tuple[Object, ...]
    operations: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Manifests:
    """``objects``: the base's but its namespace, under its own names. ``outside``: by the type of the Services.
    ``image``: of the services, where a cluster names none; empty: the base's.
    """

    objects: tuple[Object, ...]
    outside: Mapping[str, Outside]
    image: str = ""

    @classmethod
    def load(cls, image: str = "") -> "Manifests":
        """Raises ConfigError when PyYAML is not installed."""
        base = _DIRECTORY / "base"
        [said] = _documents(base / "kustomization.yaml")
        objects = [each for name in said["resources"] for each in _documents(base / name)]
        for generated in said["configMapGenerator"]:
            data: dict[str, str] = {}
            for name in generated["envs"]:
                data |= _variables((base / name).read_text())
            metadata = {"name": generated["name"]}
            objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        [labels] = [each["pairs"] for each in said["labels"]]
        tags = {each["name"]: each["newTag"] for each in said["images"]}
        made = tuple(each for each in objects if each["kind"] != "Namespace")
        for each in made:
            label(each, labels)
            for container in containers(each):
                container["image"] += f":{tags[container['image']]}"
        return cls(made, {type_: _outside(_DIRECTORY / "components" / name) for type_, name in _OUTSIDE.items()}, image)


def template(resource: Object) -> Object | None:
    """That of the pods which an object makes; None: it makes none."""
    spec = resource.get("spec", {})
    if resource["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: Object | None = spec.get("template")
    return found


def containers(resource: Object) -> list[Object]:
    pod = template(resource)
    return [] if pod is None else [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def label(resource: Object, labels: Mapping[str, str]) -> None:
    """An object, its jobs and its pods."""
    resource["metadata"].setdefault("labels", {}).update(labels)
    if resource["kind"] == "CronJob":
        resource["spec"]["jobTemplate"].setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    pod = template(resource)
    if pod is not None:
        pod["metadata"]["labels"].update(labels)


def _outside(component: Path) -> Outside:
    [said] = _documents(component / "kustomization.yaml")
    first, *_ = _documents(component / "services.yaml")
    operations = [each for patch in said["patches"] for each in _read(patch["patch"])]
    return Outside(first, tuple(_documents(component / "network.yaml")), tuple(operations))


def _documents(path: Path) -> list[Any]:
    # Copied, since what YAML's anchors name is one object.
    return [copy.deepcopy(each) for each in _yaml().safe_load_all(path.read_text())]


def _read(text: str) -> Iterable[Object]:
    found: list[Object] = _yaml().safe_load(text)
    return found


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError as error:
        raise ConfigError(
            f"the operator needs the extra 'operator' of the package: pip install 'kafscale[operator]' ({error})"
        ) from error


def _variables(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
