"""The objects of an overlay as kustomize builds them, before they are applied."""

import re
from pathlib import Path

import yaml

from tests.servers.kubernetes import Kubernetes
from tests.support.k8s.live import Json, container

CERTIFICATE_KEYS = {"ca.crt", "tls.crt", "tls.key"}
"""The keys of a Secret that cert-manager writes."""
WORKLOADS = {
    "gateway": ("StatefulSet", "kafscale-gateway"),
    "storage": ("StatefulSet", "kafscale-storage"),
    "indexer": ("Deployment", "kafscale-indexer"),
    "coordinator": ("Deployment", "kafscale-coordinator"),
    "console": ("Deployment", "kafscale-console"),
}
Objects = dict[tuple[str, str], Json]


def build(kubernetes: Kubernetes, directory: Path) -> Objects:
    """Return all objects of the overlay in ``directory``, by kind and name."""
    text = kubernetes.kubectl("kustomize", str(directory)).stdout
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def environment(objects: Objects, template: Json) -> dict[str, str]:
    """Return the environment of a pod of namespace kafscale, without what comes from Secrets."""
    made: dict[str, str] = {}
    for source in container(template)["envFrom"]:
        if "configMapRef" in source:
            made |= objects["ConfigMap", source["configMapRef"]["name"]]["data"]
    made |= {variable["name"]: variable["value"] for variable in container(template)["env"] if "value" in variable}
    place = {"POD_NAME": "pod-0", "POD_NAMESPACE": "kafscale", "POD_IP": "10.0.0.7"}
    return {name: re.sub(r"\$\((POD_\w+)\)", lambda found: place[found[1]], value) for name, value in made.items()}


def is_valid_for(names: list[str], host: str) -> bool:
    """Whether a certificate with these DNS names is valid for a host (RFC 6125, 6.4.3)."""
    parent = host.partition(".")[2]
    # gRPC accepts no wildcard directly below a name of one label.
    return host in names or ("." in parent and f"*.{parent}" in names)
