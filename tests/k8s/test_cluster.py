"""The cluster that tests start: what is applied to it is scheduled, runs and ends as on nodes that are real."""

import re
import shlex
from pathlib import Path
from typing import Any

from tests.k8s.live import container
from tests.servers.kubernetes import ZONES, Kubernetes

ROOT = Path(__file__).parents[2]


def _pod(**more: Any) -> dict[str, Any]:
    labels = {"app": "tried"}
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "tried", "image": "tried:1"}], **more},
    }


def test_a_deployment_rolls_out_over_the_zones(kubernetes: Kubernetes) -> None:
    selector = {"matchLabels": {"app": "tried"}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    kubernetes.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tried"}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "tried", "namespace": "tried"},
            "spec": {"replicas": 3, "selector": selector, "template": _pod(topologySpreadConstraints=[spread])},
        },
    )
    kubernetes.kubectl("rollout", "status", "deployment/tried", "--namespace=tried", "--timeout=120s")
    zone_of = {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for node in kubernetes.items("nodes")
    }
    pods = kubernetes.items("pods", "--namespace=tried")
    assert sorted(zone_of[pod["spec"]["nodeName"]] for pod in pods) == sorted(ZONES)
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}


def test_a_job_succeeds_and_a_claim_gets_its_disk(kubernetes: Kubernetes) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    kubernetes.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tried-job"}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "tried-job"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "tried", "namespace": "tried-job"},
            "spec": {"template": _pod(restartPolicy="Never", volumes=[claim])},
        },
    )
    kubernetes.kubectl("wait", "--for=condition=Complete", "job/tried", "--namespace=tried-job", "--timeout=120s")
    assert kubernetes.json("get", "pvc", "data", "--namespace=tried-job")["status"]["phase"] == "Bound"


def test_a_lost_member_of_etcd_is_made_anew_as_the_document_says_and_the_others_go_on(kubernetes: Kubernetes) -> None:
    """But for what only its processes can do: there are none here."""
    there = "--namespace=tried-etcd"

    def apply() -> None:
        for name in ("accounts", "etcd"):
            kubernetes.kubectl("apply", "-f", str(ROOT / "k8s" / "base" / f"{name}.yaml"), there)

    def members() -> dict[str, tuple[str, str]]:
        """Their pods' ids, and what they are told of their cluster."""
        pods = kubernetes.items("pods", there)
        state = "ETCD_INITIAL_CLUSTER_STATE"
        told = [next(each["value"] for each in container(pod)["env"] if each["name"] == state) for pod in pods]
        return {pod["metadata"]["name"]: (pod["metadata"]["uid"], text) for pod, text in zip(pods, told, strict=True)}

    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tried-etcd"}})
    apply()
    kubernetes.kubectl("rollout", "status", "statefulset/kafscale-etcd", there, "--timeout=120s")
    before = members()
    lost = "kafscale-etcd-1"
    section = (ROOT / "docs" / "kubernetes.md").read_text().partition("### When one member's volume is lost")[2]
    steps = re.findall(r"^ +kubectl (.*)$", section.partition("\n### ")[0], re.MULTILINE)
    assert len(steps) == 9
    for step in map(shlex.split, steps):
        if step[0] == "apply":
            made = members()
            assert (made.pop(lost)[1], made) == ("existing", {name: it for name, it in before.items() if name != lost})
            apply()
        elif step[0] != "exec":
            kubernetes.kubectl(*step, there)
        if step[:2] == ["delete", f"pod/{lost}"]:
            kubernetes.kubectl("wait", "--for=create", f"pod/{lost}", there, "--timeout=120s")
            kubernetes.kubectl("wait", "--for=condition=Ready", f"pod/{lost}", there, "--timeout=120s")
    kubernetes.kubectl("rollout", "status", "statefulset/kafscale-etcd", there, "--timeout=120s")
    after = members()
    assert after[lost][0] != before[lost][0]
    assert {name: text for name, (_, text) in after.items()} == dict.fromkeys(before, "new")
    assert {name: it for name, it in after.items() if name != lost} == {
        name: it for name, it in before.items() if name != lost
    }
