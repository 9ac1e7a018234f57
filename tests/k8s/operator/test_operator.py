"""The operator on a real API server, with the four services as processes: resources become topics for clients.

The first three tests need no operator. They check that pods are scheduled, run and end as on real nodes. They are in
this file because every test file may start its own cluster.
"""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from prometheus_client.parser import text_string_to_metric_families

from kafscale.process.metrics import Described
from kafscale_tools.documents import generate as docs
from tests.k8s.operator.made import MADE, by_kustomize, made_namespace, rendered
from tests.k8s.operator.operators import TOKEN, Namespace, running
from tests.servers.cluster import Cluster, ServiceProcess, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.kubernetes import ZONES, Kubernetes
from tests.servers.minio import Minio
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message
from tests.support.k8s.live import container
from tests.support.shell import LONG_SECONDS, once

ROOT = Path(__file__).parents[3]
MANY = [f"many-{number}" for number in range(20)]
_BUCKET = {"name": "records", "endpoint": "http://minio:9000", "credentialsSecret": "keys"}
_BACKUPS = {"name": "kept", "endpoint": "http://elsewhere:9900", "credentialsSecret": "backup-keys"}
_TWICE = {"replicas": 1, "autoscaling": {"minReplicas": 1, "maxReplicas": 2}}
_UPSIDE_DOWN = {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}
_PORTS = {"type": "NodePort", "host": "localhost"}
_CLUSTERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "portless": ({"adminServers": ["gateway"]}, "spec.adminServers[0]", "has the form host:port"),
    "empty": ({}, "spec", "set adminServers for an existing cluster, or bucket for a cluster that the operator runs"),
    "no-bucket": ({"adminServers": ["a:1"], "gateway": {"replicas": 1}}, "spec.bucket", "operator runs needs a bucket"),
    "a-cluster-with-a-name-that-is-too-long": ({"bucket": _BUCKET}, "", "has at most 28 characters"),
    "only-backups": ({"adminServers": ["a:1"], "backups": _BACKUPS}, "spec.bucket", "operator runs needs a bucket"),
    "two-ways": ({"bucket": _BUCKET, "storage": _TWICE}, "spec.storage", "set replicas or autoscaling, but not both"),
    "upside-down": ({"bucket": _BUCKET, "indexer": _UPSIDE_DOWN}, "spec.indexer", "minReplicas cannot be greater"),
    "two-members": ({"bucket": _BUCKET, "etcd": {"members": 2}}, "spec.etcd.members", 'supported values: "1", "3"'),
    "no-port": ({"bucket": _BUCKET, "outside": _PORTS}, "spec.outside", "type NodePort requires firstPort"),
    "many-digits": (
        {"bucket": _BUCKET, "outside": {**_PORTS, "firstPort": 30070}, "gateway": {"replicas": 11}},
        "spec.outside",
        "at most ten gateways",
    ),
}


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("operated")
    with running_cluster(directory, etcd=etcd, minio=minio, env={"KAFSCALE_ADMIN_TOKEN": TOKEN}) as cluster:
        yield cluster


@pytest.fixture
def namespace(with_our_kinds: Kubernetes, cluster: Cluster, request: pytest.FixtureRequest) -> Namespace:
    """A new namespace for each test."""
    name = re.sub("[^a-z]+", "-", request.node.name)[:60].strip("-")
    return Namespace(with_our_kinds, name, cluster)


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


def test_a_job_succeeds_and_a_claim_gets_its_volume(kubernetes: Kubernetes) -> None:
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


def test_a_lost_etcd_member_is_replaced_with_the_documented_commands(kubernetes: Kubernetes) -> None:
    """The commands run in etcd's own processes are skipped, because kwok runs none."""
    there = "--namespace=tried-etcd"

    def apply() -> None:
        for name in ("accounts", "etcd"):
            kubernetes.kubectl("apply", "-f", str(ROOT / "k8s" / "base" / f"{name}.yaml"), there)

    def members() -> dict[str, tuple[str, str]]:
        """Return the pods' ids, and their initial cluster state."""
        pods = kubernetes.items("pods", there)
        state = "ETCD_INITIAL_CLUSTER_STATE"
        states = [next(each["value"] for each in container(pod)["env"] if each["name"] == state) for pod in pods]
        return {pod["metadata"]["name"]: (pod["metadata"]["uid"], text) for pod, text in zip(pods, states, strict=True)}

    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tried-etcd"}})
    apply()
    kubernetes.kubectl("rollout", "status", "statefulset/kafscale-etcd", there, "--timeout=120s")
    before = members()
    lost = "kafscale-etcd-1"
    section = (
        (ROOT / "docs" / "guides" / "kubernetes.md").read_text().partition("### When one member's volume is lost")[2]
    )
    steps = re.findall(r"^ +kubectl (.*)$", section.partition("\n### ")[0], re.MULTILINE)
    assert len(steps) == 9
    for step in map(shlex.split, steps):
        if step[0] == "apply":
            made = members()
            assert (made.pop(lost)[1], made) == ("existing", {name: it for name, it in before.items() if name != lost})
            apply()
        elif step == ["delete", f"pod/{lost}"]:
            kubernetes.delete_pod(lost, there)
            kubernetes.kubectl("wait", "--for=create", f"pod/{lost}", there, "--timeout=120s")
            kubernetes.kubectl("wait", "--for=condition=Ready", f"pod/{lost}", there, "--timeout=120s")
        elif step[0] != "exec":
            kubernetes.kubectl(*step, there)
    kubernetes.kubectl("rollout", "status", "statefulset/kafscale-etcd", there, "--timeout=120s")
    after = members()
    assert after[lost][0] != before[lost][0]
    assert {name: text for name, (_, text) in after.items()} == dict.fromkeys(before, "new")
    assert {name: it for name, it in after.items() if name != lost} == {
        name: it for name, it in before.items() if name != lost
    }


def test_invalid_resources_are_refused_with_the_name_of_the_field(namespace: Namespace) -> None:
    of_topics: dict[str, tuple[dict[str, Any], str, str]] = {
        "half-a-day": ({"retention": "12"}, "spec.retention", "retention is a duration such as 24h, 7d or 1h30m"),
        "in-no-time": ({"retention": "0h"}, "spec.retention", "retention is a duration"),
        "squeezed": ({"compression": "brotli"}, "spec.compression", '"uncompressed", "gzip", "snappy", "lz4", "zstd"'),
        "none-at-all": ({"partitions": 0}, "spec.partitions", "should be greater than or equal to 1"),
        "in-words": ({"partitions": "three"}, "spec.partitions", "must be of type integer"),
        "odd-name": ({"topicName": "a b"}, "spec.topicName", "consists of ASCII letters, digits, '.', '_' and '-'"),
        "dots": ({"topicName": ".."}, "spec.topicName", "cannot be '.' or '..'"),
        "unheard-of": ({"config": {"retention.hours": "5"}}, "spec.config", "no topic config is named retention.hours"),
        "a-number": ({"config": {"flush.ms": 5}}, "spec.config.flush.ms", "must be of type string"),
        "twice": ({"retention": "1h", "config": {"retention.ms": "1"}}, "spec.retention", "set one of them"),
        "perhaps": ({"deletionPolicy": "Maybe"}, "spec.deletionPolicy", '"Retain", "Delete"'),
        "a" * 250: ({}, "", "a topic name has at most 249 characters; set spec.topicName"),
    }
    objects: list[tuple[str, str, dict[str, Any]]] = [
        ("KafscaleTopic", name, {"clusterRef": {"name": "main"}, **spec}) for name, (spec, _, _) in of_topics.items()
    ]
    objects += [("KafscaleCluster", name, spec) for name, (spec, _, _) in _CLUSTERS.items()]
    errors = namespace.refused(objects)
    print(errors)
    expected = {name: (field, why) for name, (_, field, why) in of_topics.items()}
    expected |= {name: (field, why) for name, (_, field, why) in _CLUSTERS.items()}
    for name, (field, why) in expected.items():
        [one] = [line for line in errors.splitlines() if f'"{name}" is invalid: ' in line]
        assert field in one
        assert why in one


def test_the_identity_of_a_topic_cannot_be_changed(namespace: Namespace) -> None:
    namespace.topic("orders", topicName="Orders")
    other = [("KafscaleTopic", "orders", {"clusterRef": {"name": "other"}, "topicName": "Bills"})]
    errors = namespace.refused(other)
    assert "a topic cannot move to another cluster" in errors
    assert "a topic cannot be renamed" in errors
    assert namespace.get("kafscaletopic", "orders")["spec"]["deletionPolicy"] == "Retain"


def test_a_topic_follows_its_resource(namespace: Namespace, cluster: Cluster, tmp_path: Path) -> None:
    operator = namespace.operator(0, tmp_path)
    client = ConfluentClient(cluster.bootstrap)
    client.create_topic("adopted", partitions=2, configs={"retention.ms": "-1"})
    with running(operator):
        namespace.topic("orders", partitions=3, retention="24h", compression="lz4", deletionPolicy="Delete")
        # As in the storage format's example: without clusterRef, and with a codec's name that Kafka does not use.
        namespace.apply("KafscaleTopic", "logs", partitions=6, retention="24h", compression="none")
        namespace.topic("adopted", config={"flush.ms": "100"})
        namespace.topic("lost", topicName="Lost_Orders", partitions=1)
        namespace.wait("Ready", "orders", "adopted", "lost")
        namespace.wait("Synced", "orders", "adopted", "lost", "logs")
        _await_configs(cluster, "logs", {"retention.ms": "86400000", "compression.type": "uncompressed"})
        errors = namespace.refused([("KafscaleTopic", "logs", {"clusterRef": {"name": "other"}})])
        assert "a topic cannot move to another cluster" in errors
        client.produce("orders", [Message(b"%d" % number) for number in range(10)])
        assert _read(cluster, "orders", 10) == {b"%d" % number for number in range(10)}
        _await_configs(cluster, "orders", {"retention.ms": "86400000", "compression.type": "lz4"})
        _await_configs(cluster, "adopted", {"retention.ms": "-1", "flush.ms": "100"})
        namespace.topic("orders", partitions=5, retention="7d", compression="lz4", deletionPolicy="Delete")
        once("the topic has grown", lambda: _partitions(cluster, "orders"), lambda found: found == 5)
        _await_configs(cluster, "orders", {"retention.ms": "604800000", "compression.type": "lz4"})
        once("everything is applied", lambda: namespace.settled("orders"), bool)
        _set_config(cluster, "orders", "max.message.bytes", "2000")
        _set_config(cluster, "orders", "retention.ms", "5")
        # Wait for the event, because the gateway may not know of the change yet.
        once("the change is undone", lambda: namespace.events("orders"), lambda found: "DriftRepaired" in found)
        own = {"retention.ms": "604800000", "compression.type": "lz4", "max.message.bytes": "2000"}
        _await_configs(cluster, "orders", own)
        namespace.topic("orders", partitions=2, retention="7d", compression="lz4", deletionPolicy="Delete")
        namespace.wait("Synced", "orders", reason="PartitionsCannotShrink")
        assert _partitions(cluster, "orders") == 5
        namespace.topic("compressed", config={"cleanup.policy": "compress"})
        namespace.wait("Synced", "compressed", reason="InvalidConfig")
        namespace.apply("KafscaleTopic", "homeless", clusterRef={"name": "nowhere"})
        namespace.wait("Synced", "homeless", reason="ClusterNotFound")
        _look(namespace)
        assert _metrics(operator) == _documented()
        assert httpcore.request("GET", f"http://{operator.http}/readyz").status == 200
        namespace.kubectl("delete", "kafscaletopics", "orders", "lost", "--timeout=90s")
        once("the topic is gone", client.topics, lambda found: "orders" not in found)
        assert "Lost_Orders" in client.topics()
    events = namespace.events("orders")
    assert sorted(set(events)) == [
        "Created",
        "Deleted",
        "DriftRepaired",
        "Grown",
        "PartitionsCannotShrink",
        "Reconfigured",
    ]


def test_a_cluster_is_created_and_deleted_with_its_resource(
    namespace: Namespace, cluster: Cluster, tmp_path: Path
) -> None:
    """kwok simulates its pods, and processes represent its gateways."""
    servers = [gateway.address for gateway in cluster.gateways]
    spec: dict[str, Any] = {"adminServers": servers, "bucket": _BUCKET, "etcd": {"members": 1}}
    spec["outside"] = {"type": "NodePort", "host": "localhost", "firstPort": 30060}
    made = made_namespace(namespace)
    with running(namespace.operator(0, tmp_path)):
        namespace.apply("KafscaleCluster", "made", **spec)
        made.settled("RolledOut")
        made.settled("Ready")
        assert made.pods() == {"gateway": 2, "storage": 3, "indexer": 2, "coordinator": 2, "console": 1, "etcd": 1}
        other = {**spec, "bucket": {**_BUCKET, "name": "other"}, "etcd": {"members": 3}}
        said = namespace.refused([("KafscaleCluster", "made", other)])
        assert "a cluster cannot move to another bucket" in said
        assert "the number of etcd members cannot be changed" in said
        said = namespace.refused([("KafscaleCluster", "main", {"adminServers": servers, "bucket": _BUCKET})])
        assert "or the reverse; delete the resource" in said
        [pod] = namespace.get("deployment", "kafscale-operator")["spec"]["template"]["spec"]["containers"]
        assert {"name": "KAFSCALE_OPERATOR_IMAGE", "value": pod["image"]} in pod["env"]
        # Scale like the autoscaler; then the operator applies everything again.
        namespace.kubectl("scale", "statefulset/made-kafscale-storage", "--replicas=5")
        before = made.workload("storage")["spec"]["template"]["metadata"]["annotations"]
        spec["storage"] = {"settings": {"KAFSCALE_CACHE_SIZE": "2GB"}}
        spec["backups"] = _BACKUPS
        namespace.apply("KafscaleCluster", "made", **spec)
        made.settled("RolledOut")
        assert made.workload("storage")["spec"]["template"]["metadata"]["annotations"] != before
        assert made.pods()["storage"] == 5
        assert "made-kafscale-backups" in made.names("configmap")
        namespace.kubectl("delete", "service", "made-kafscale")
        once("it is created again", lambda: namespace.events("made"), lambda found: "DriftRepaired" in found)
        assert namespace.get("service", "made-kafscale")["metadata"]["ownerReferences"][0]["name"] == "made"
        # Without and again with an autoscaler: the number of pods stays, and is not reset to the default.
        spec["storage"] = {"replicas": 2}
        namespace.apply("KafscaleCluster", "made", **spec)
        made.settled("RolledOut")
        assert made.pods()["storage"] == 2
        assert "made-kafscale-storage" not in made.names("hpa")
        spec["storage"] = {"autoscaling": {"minReplicas": 1, "maxReplicas": 4}}
        namespace.apply("KafscaleCluster", "made", **spec)
        made.settled("RolledOut")
        assert made.pods()["storage"] == 2
        assert "made-kafscale-storage" in made.names("hpa")
        spec["storage"] = {"settings": {"KAFSCALE_CACHE": "1"}}
        namespace.apply("KafscaleCluster", "made", **spec)
        namespace.kubectl("wait", "--for=condition=Applied=false", "kafscalecluster/made", "--timeout=90s")
        print(namespace.kubectl("get", "kafscaleclusters", "-o", "wide").stdout)
        print(namespace.kubectl("get", ",".join(MADE), "--selector", "app.kubernetes.io/instance=made").stdout)
        print(namespace.kubectl("describe", "kafscalecluster", "made").stdout)
        namespace.kubectl("delete", "kafscalecluster", "made", "--timeout=90s")
        once("all of it is gone", lambda: made.names(",".join(MADE)), lambda found: found == set())
        assert made.names("pvc") == {"data-made-kafscale-etcd-0"}


def test_a_cluster_equals_the_renamed_base(with_our_kinds: Kubernetes, tmp_path: Path) -> None:
    """Kustomize adds the same names and labels, and the API server accepts the cluster without a warning."""
    assert rendered("default") == by_kustomize(with_our_kinds, tmp_path)
    objects = {"apiVersion": "v1", "kind": "List", "items": rendered("default")}
    arguments = ("apply", "--server-side", "--dry-run=server", "-n", "default", "-f", "-")
    assert with_our_kinds.kubectl(*arguments, stdin=json.dumps(objects)).stderr == ""


def _look(namespace: Namespace) -> None:
    """Return kubectl's table."""
    listed = namespace.kubectl("get", "kafscaletopics").stdout
    described = namespace.kubectl("describe", "kafscaletopic", "orders").stdout
    print(listed, described, sep="\n")
    rows = {row[0]: row[1:-1] for row in (line.split() for line in listed.splitlines())}
    heads = ["CLUSTER", "PARTITIONS", "RETENTION", "READY", "SYNCED", "REASON"]
    assert rows.pop("NAME") == heads
    assert rows == {
        "adopted": ["main", "2", "True", "True", "AsWanted"],
        "compressed": ["main", "False", "False", "InvalidConfig"],
        "homeless": ["nowhere", "False", "False", "ClusterNotFound"],
        "logs": ["main", "6", "24h", "True", "True", "AsWanted"],
        "lost": ["main", "1", "True", "True", "AsWanted"],
        "orders": ["main", "5", "7d", "True", "False", "PartitionsCannotShrink"],
    }
    assert "the topic has 5 partitions, but the resource has 2" in described
    assert "increased the partitions from 3 to 5" in described
    clusters = once(
        "each of the services has answered",
        lambda: namespace.kubectl("get", "kafscaleclusters").stdout,
        lambda found: found.count("1/1") == 4 and "Serving" in found,
    )
    print(clusters)


def test_another_operator_continues_after_a_kill(namespace: Namespace, cluster: Cluster, tmp_path: Path) -> None:
    first, second, third = (namespace.operator(number, tmp_path, KAFSCALE_OPERATOR_WORKERS="1") for number in range(3))
    namespace.topics(MANY, partitions=1, deletionPolicy="Delete")
    with running(first):
        _await_line(first, '"Created"')
        first.kill()
    done = namespace.synced()
    assert done != set(MANY)
    with running(second):
        namespace.wait("Synced", *MANY)
        assert set(MANY) <= set(ConfluentClient(cluster.bootstrap).topics())
        with running(third):
            _await_line(third, '"standing by"')
            # An operator that stops releases the lease.
            assert second.stop() == 0
            _await_line(third, '"leading"')
            namespace.topic(MANY[0], partitions=2, deletionPolicy="Delete")
            once("the topic has grown", lambda: _partitions(cluster, MANY[0]), lambda found: found == 2)
            assert third.stop() == 0
    assert "holderIdentity" not in namespace.get("lease", "kafscale-operator")["spec"]


def _await_line(operator: ServiceProcess, words: str) -> None:
    operator.process.wait_for(lambda line: True if words in line else None, timeout=LONG_SECONDS)


def _read(cluster: Cluster, topic: str, count: int) -> set[bytes]:
    settings = {"group.id": f"readers-of-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    try:
        consumer.subscribe([topic])
        return {message.value() or b"" for message in consumer.consume(count, timeout=LONG_SECONDS)}
    finally:
        consumer.close()


def _partitions(cluster: Cluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    try:
        return len(consumer.list_topics(topic, timeout=LONG_SECONDS).topics[topic].partitions)
    finally:
        consumer.close()


def _configs(cluster: Cluster, topic: str) -> dict[str, str | None]:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (answer,) = admin.describe_configs([asked]).values()
    return {name: entry.value for name, entry in answer.result(LONG_SECONDS).items()}


def _set_config(cluster: Cluster, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (answer,) = admin.incremental_alter_configs([changed]).values()
    answer.result(LONG_SECONDS)


def _await_configs(cluster: Cluster, topic: str, configs: dict[str, str]) -> None:
    once(f"configs of {topic}", lambda: _configs(cluster, topic), lambda found: configs.items() <= found.items())


def _metrics(operator: ServiceProcess) -> set[str]:
    text = httpcore.request("GET", f"http://{operator.http}/metrics").content.decode()
    found = text_string_to_metric_families(text)
    return {f"{metric.name}_total" if metric.type == "counter" else metric.name for metric in found}


def _documented() -> set[str]:
    shown: list[Described] = [each for group in docs.METRICS if "operator" in group.services for each in group.metrics]
    return {metric.name for metric in shown}


def _pod(**more: Any) -> dict[str, Any]:
    labels = {"app": "tried"}
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "tried", "image": "tried:1"}], **more},
    }
