"""Checks of a KafscaleCluster that the schema cannot make: whether its settings exist. This module does no IO."""

import difflib
from collections.abc import Collection, Iterator, Set

from services.operator.clusters.known_settings import KNOWN
from services.operator.clusters.manifests import Manifests, containers
from services.operator.clusters.render import SERVICES, WORKLOADS
from services.operator.resources import Object, name_of

_BUCKET = ("BUCKET", "REGION", "ENDPOINT", "PATH_STYLE", "NAMESPACE")
_KEYS = ("CREDENTIALS", "ACCESS_KEY", "SECRET_KEY", "SESSION_TOKEN")
_DERIVED = {"KAFSCALE_ETCD_ENDPOINTS", *(f"KAFSCALE_S3_{name}" for name in (*_BUCKET, *_KEYS))}


def complaints(resource: Object, manifests: Manifests) -> list[str]:
    """Return one message for each setting that is not allowed where it is."""
    spec = resource["spec"]
    own = {service: _own(service, manifests) for service in WORKLOADS}
    everywhere = set.intersection(*(set(KNOWN[service]) for service in SERVICES))
    found = list(
        _wrong("spec.settings", spec.get("settings", {}), everywhere, set().union(*own.values()), "every service")
    )
    for service in WORKLOADS:
        settings = spec.get(service, {}).get("settings", {})
        found += _wrong(f"spec.{service}.settings", settings, KNOWN[service], own[service], f"the {service}")
    return found


def _wrong(field: str, settings: Collection[str], known: Set[str], own: Set[str], reader: str) -> Iterator[str]:
    for name in settings:
        if name in own or name in _DERIVED:
            yield f"{field}: {name} is derived from other fields of the spec"
        elif name not in known:
            near = difflib.get_close_matches(name, known - own - _DERIVED, 1)
            yield f"{field}: {name} is not a setting of {reader}, or is a secret" + (
                f"; did you mean {near[0]}?" if near else ""
            )


def _own(service: str, manifests: Manifests) -> set[str]:
    """Return the settings that the manifests set for each process."""
    workloads = [each for each in manifests.objects if each["kind"] == WORKLOADS[service]]
    [workload] = [each for each in workloads if name_of(each) == f"kafscale-{service}"]
    return {variable["name"] for container in containers(workload) for variable in container["env"]}
