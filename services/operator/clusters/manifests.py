"""Loads the manifests in k8s/ from which clusters are created: the base, and the components for outside clients.

The package contains them as data (`services/operator/manifests` is a link to k8s/), so there is no second copy. This
supports only the features of Kustomize that these files use. Tests compare the result with `kubectl kustomize`.
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
    """Access for outside clients.

    ``service`` is that of the first gateway. ``operations`` are a JSON patch of the gateways' StatefulSet.
    """

    service: Object
    others: tuple[Object, ...]
    operations: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Manifests:
    """The manifests.

    ``objects`` are those of the base, except its namespace, with their original names. ``outside`` is keyed by the type
    of the Services. ``image`` is the default image of the services; empty means that of the base.
    """

    objects: tuple[Object, ...]
    outside: Mapping[str, Outside]
    image: str = ""

    @classmethod
    def load(cls, image: str = "") -> "Manifests":
        """Load the manifests. Raises ConfigError if PyYAML is not installed."""
        base = _DIRECTORY / "base"
        [kustomization] = _documents(base / "kustomization.yaml")
        objects = [each for name in kustomization["resources"] for each in _documents(base / name)]
        for generated in kustomization["configMapGenerator"]:
            data: dict[str, str] = {}
            for name in generated["envs"]:
                data |= _variables((base / name).read_text())
            metadata = {"name": generated["name"]}
            objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        [labels] = [each["pairs"] for each in kustomization["labels"]]
        tags = {each["name"]: each["newTag"] for each in kustomization["images"]}
        made = tuple(each for each in objects if each["kind"] != "Namespace")
        for each in made:
            label(each, labels)
            for container in containers(each):
                container["image"] += f":{tags[container['image']]}"
        return cls(made, {type_: _outside(_DIRECTORY / "components" / name) for type_, name in _OUTSIDE.items()}, image)


def template(resource: Object) -> Object | None:
    """Return the pod template of an object, or None if it creates no pods."""
    spec = resource.get("spec", {})
    if resource["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: Object | None = spec.get("template")
    return found


def containers(resource: Object) -> list[Object]:
    pod = template(resource)
    return [] if pod is None else [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def label(resource: Object, labels: Mapping[str, str]) -> None:
    """Set labels on an object, its jobs and its pods."""
    resource["metadata"].setdefault("labels", {}).update(labels)
    if resource["kind"] == "CronJob":
        resource["spec"]["jobTemplate"].setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    pod = template(resource)
    if pod is not None:
        pod["metadata"]["labels"].update(labels)


def _outside(component: Path) -> Outside:
    [kustomization] = _documents(component / "kustomization.yaml")
    first, *_ = _documents(component / "services.yaml")
    operations = [each for patch in kustomization["patches"] for each in _read(patch["patch"])]
    return Outside(first, tuple(_documents(component / "network.yaml")), tuple(operations))


def _documents(path: Path) -> list[Any]:
    # Copied, because YAML anchors refer to a shared object.
    return [copy.deepcopy(each) for each in _yaml().safe_load_all(path.read_text())]


def _read(text: str) -> Iterable[Object]:
    found: list[Object] = _yaml().safe_load(text)
    return found


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError as error:
        raise ConfigError(
            f"the operator requires the package extra 'operator': pip install 'kafscale[operator]' ({error})"
        ) from error


def _variables(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
