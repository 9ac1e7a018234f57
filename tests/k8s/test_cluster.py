"""The cluster that tests start: what is applied to it is scheduled, runs and ends as on nodes that are real."""

from typing import Any

from tests.servers.kubernetes import ZONES, Kubernetes


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
