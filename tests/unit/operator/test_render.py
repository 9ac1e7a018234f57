"""Clusters that the operator creates: the objects that each part of the spec affects."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafscale.config.settings import documented
from kafscale.process.process import LAST_SECONDS, Loaded
from services.coordinator import __main__ as coordinator
from services.gateway import __main__ as gateway
from services.indexer import __main__ as indexer
from services.operator.clusters.checks import complaints
from services.operator.clusters.manifests import Manifests, containers
from services.operator.clusters.render import SERVICES, render
from services.operator.resources import Object
from services.storage import __main__ as storage
from tests.unit.operator.world import MANIFESTS

PROCESSES: dict[str, Any] = {"gateway": gateway, "storage": storage, "indexer": indexer, "coordinator": coordinator}
STOPPING = (
    "KAFSCALE_GATEWAY_SHUTDOWN_GRACE_MS",
    "KAFSCALE_DRAIN_TIMEOUT_MS",
    "KAFSCALE_GROUP_HANDOVER_TIMEOUT_MS",
    "KAFSCALE_RPC_DRAIN_TIMEOUT_MS",
)
ROOT = Path(__file__).parents[3]
BUCKET = {"name": "kafscale-storage", "region": "us-east-1", "namespace": "production"}


def rendered(**spec: Any) -> dict[tuple[str, str], Object]:
    """Render a cluster and return its objects by kind and name, without the common prefix."""
    metadata = {"name": "main", "namespace": "default", "uid": "u"}
    objects = render({"metadata": metadata, "spec": {"bucket": BUCKET, **spec}}, MANIFESTS)
    return {(each["kind"], each["metadata"]["name"].removeprefix("main-kafscale").strip("-")): each for each in objects}


def test_the_bucket_is_set_from_the_spec() -> None:
    found = rendered(
        bucket={
            **BUCKET,
            "endpoint": "http://minio:9000",
            "pathStyle": False,
            "credentialsSecret": "keys",
            "accountAnnotations": {"role": "kafscale"},
        }
    )
    assert found["ConfigMap", "objects"]["data"] == {
        "KAFSCALE_S3_BUCKET": "kafscale-storage",
        "KAFSCALE_S3_REGION": "us-east-1",
        "KAFSCALE_S3_ENDPOINT": "http://minio:9000",
        "KAFSCALE_S3_PATH_STYLE": "false",
        "KAFSCALE_S3_CREDENTIALS": "static",
    }
    with_keys = {part for (_, part), each in found.items() if {"name": "keys", "optional": False} in _secrets(each)}
    assert with_keys == {"storage", "indexer", "etcd-snapshots"}
    annotated = {part for (kind, part), each in found.items() if each["metadata"].get("annotations")}
    assert annotated == with_keys
    policies = [each for (kind, _), each in found.items() if kind == "NetworkPolicy"]
    rules = [rule for policy in policies for rule in policy["spec"].get("egress", [])]
    outer = [
        [port["port"] for port in rule["ports"]] for rule in rules if rule["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0"}}]
    ]
    assert outer == [[443, 9000]] * 3


def test_snapshots_can_have_their_own_bucket_known_only_to_their_job() -> None:
    found = rendered(
        bucket={**BUCKET, "endpoint": "http://minio:9000", "accountAnnotations": {"role": "kafscale"}},
        backups={
            "name": "kafscale-backups-2",
            "region": "eu-west-1",
            "endpoint": "http://elsewhere:9900",
            "pathStyle": True,
            "credentialsSecret": "backup-keys",
            "accountAnnotations": {"role": "backups"},
        },
    )
    assert found["ConfigMap", "backups"]["data"] == {
        "KAFSCALE_BACKUP_S3_BUCKET": "kafscale-backups-2",
        "KAFSCALE_BACKUP_S3_REGION": "eu-west-1",
        "KAFSCALE_BACKUP_S3_ENDPOINT": "http://elsewhere:9900",
        "KAFSCALE_BACKUP_S3_PATH_STYLE": "true",
    }
    readers = {
        part
        for (_, part), each in found.items()
        for container in containers(each)
        for source in container.get("envFrom", [])
        if source.get("configMapRef") == {"name": "main-kafscale-backups"}
    }
    assert readers == {"etcd-snapshots"}
    assert {"name": "backup-keys", "optional": False} in _secrets(found["CronJob", "etcd-snapshots"])
    assert found["ServiceAccount", "etcd-snapshots"]["metadata"]["annotations"] == {"role": "backups"}
    assert found["ServiceAccount", "storage"]["metadata"]["annotations"] == {"role": "kafscale"}
    policy = found["NetworkPolicy", "etcd-snapshots"]["spec"]["egress"]
    assert [port["port"] for rule in policy for port in rule["ports"]][-3:] == [443, 9000, 9900]


def _secrets(resource: Object) -> list[Object]:
    sources = [source for container in containers(resource) for source in container.get("envFrom", [])]
    return [source["secretRef"] for source in sources if "secretRef" in source]


def test_an_existing_etcd_is_used_and_none_is_created() -> None:
    found = rendered(etcd={"endpoints": ["etcd-a:2379", "etcd-b:2479"]})
    assert found["ConfigMap", ""]["data"]["KAFSCALE_ETCD_ENDPOINTS"] == "etcd-a:2379,etcd-b:2479"
    left = [("ServiceAccount", "etcd-snapshots"), ("NetworkPolicy", "etcd-snapshots"), ("CronJob", "etcd-snapshots")]
    assert [key for key in found if key[1].startswith("etcd")] == left
    job = found["CronJob", "etcd-snapshots"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert [each["command"][:2] for each in containers(found["CronJob", "etcd-snapshots"])] == [["kafscale", "backup"]]
    assert "volumes" not in job
    ports = [{"protocol": "TCP", "port": 2379}, {"protocol": "TCP", "port": 2479}]
    for service in (*SERVICES, "etcd-snapshots"):
        rules = found["NetworkPolicy", service]["spec"]["egress"]
        assert {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": ports} in rules


def test_an_etcd_of_one_member_can_run_on_any_node() -> None:
    found = rendered(etcd={"members": 1, "storage": "2Gi", "storageClassName": "fast"})
    assert found["ConfigMap", ""]["data"]["KAFSCALE_ETCD_ENDPOINTS"] == "main-kafscale-etcd-0.main-kafscale-etcd:2379"
    etcd = found["StatefulSet", "etcd"]["spec"]
    assert etcd["replicas"] == 1
    variables = {each["name"]: each.get("value") for each in etcd["template"]["spec"]["containers"][0]["env"]}
    member = "main-kafscale-etcd-0=http://main-kafscale-etcd-0.main-kafscale-etcd:2380"
    assert variables["ETCD_INITIAL_CLUSTER"] == member
    assert "topologySpreadConstraints" not in etcd["template"]["spec"]
    [claim] = etcd["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert claim["spec"]["storageClassName"] == "fast"


def test_sizes_images_and_settings_are_applied_to_their_service() -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi"}}
    found = rendered(
        image="registry/kafscale:2",
        settings={"KAFSCALE_LOG_LEVEL": "debug"},
        storage={"replicas": 5, "resources": resources, "settings": {"KAFSCALE_CACHE_SIZE": "3GB"}},
        indexer={"autoscaling": {"minReplicas": 1, "maxReplicas": 2}},
    )
    storage = found["StatefulSet", "storage"]["spec"]
    assert (storage["replicas"], storage["template"]["spec"]["containers"][0]["resources"]) == (5, resources)
    assert ("HorizontalPodAutoscaler", "storage") not in found
    scaler = found["HorizontalPodAutoscaler", "indexer"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 2)
    assert "replicas" not in found["Deployment", "indexer"]["spec"]
    assert found["ConfigMap", "storage"]["data"]["KAFSCALE_CACHE_SIZE"] == "3GB"
    assert found["ConfigMap", ""]["data"]["KAFSCALE_LOG_LEVEL"] == "debug"
    images = {container["image"] for each in found.values() for container in containers(each)}
    assert {image for image in images if "etcd" not in image} == {"registry/kafscale:2"}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert _images(MANIFESTS) == {f"kafscale:{version}", "quay.io/coreos/etcd:v3.7.3"}
    own = replace(MANIFESTS, image="registry/kafscale:1")
    assert _images(own) == {"registry/kafscale:1", "quay.io/coreos/etcd:v3.7.3"}
    spec = {"image": "registry/kafscale@sha256:0", "etcd": {"image": "registry/etcd:v3"}}
    assert _images(own, **spec) == {"registry/kafscale@sha256:0", "registry/etcd:v3"}
    # Pods with changed settings are replaced.
    before = rendered()
    for kind, part in (("StatefulSet", "storage"), ("StatefulSet", "etcd")):
        same = _annotations(found[kind, part]) == _annotations(before[kind, part])
        assert same is (part == "etcd")


def _images(manifests: Manifests, **spec: Any) -> set[str]:
    metadata = {"name": "main", "namespace": "default", "uid": "u"}
    objects = render({"metadata": metadata, "spec": {"bucket": BUCKET, **spec}}, manifests)
    return {container["image"] for each in objects for container in containers(each)}


def test_the_console_asks_the_gateways_of_its_cluster() -> None:
    found = rendered(console={"settings": {"KAFSCALE_CONSOLE_READ_ONLY": "true"}, "resources": {"limits": {"cpu": 1}}})
    [container] = containers(found["Deployment", "console"])
    servers = [each["value"] for each in container["env"] if each["name"] == "KAFSCALE_ADMIN_SERVER"]
    assert servers == ["main-kafscale:9094"]
    assert ("Service", "") in found
    assert container["resources"] == {"limits": {"cpu": 1}}
    assert found["ConfigMap", "console"]["data"]["KAFSCALE_CONSOLE_READ_ONLY"] == "true"
    assert rendered()["ConfigMap", "console"]["data"]["KAFSCALE_CONSOLE_SIGN_IN"] == "token"


@pytest.mark.parametrize("service", SERVICES)
def test_the_grace_period_of_a_pod_covers_the_stop_of_its_process(service: str) -> None:
    process = PROCESSES[service]
    read = {declared.env for _, found in documented(process.SETTINGS) for declared in found}
    raised = {name: "+60000" for name in STOPPING if name in read}
    # An empty value means the default, whatever the manifests contain.
    alone = [{**dict.fromkeys(raised, ""), name: text} for name, text in raised.items()]
    assert raised
    for settings in ({}, *alone, raised):
        found = rendered(**{service: {"settings": settings}})
        pod = found[SERVICES[service], service]["spec"]["template"]["spec"]
        environment = {**found["ConfigMap", ""]["data"], **found["ConfigMap", service]["data"]}
        before = pod["containers"][0].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        longest = before + process.grace_ms(Loaded(process.SETTINGS, environment)) / 1000 + LAST_SECONDS
        assert longest <= pod["terminationGracePeriodSeconds"] <= max(longest, 45)


def test_network_policies_let_pods_send_their_spans() -> None:
    found = rendered(
        settings={"KAFSCALE_TRACING_ENDPOINT": "http://collector:4317"},
        storage={"settings": {"KAFSCALE_TRACING_ENDPOINT": "https://other:4318"}},
    )
    for service in SERVICES:
        port = 4318 if service == "storage" else 4317
        rule = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"protocol": "TCP", "port": port}]}
        assert found["NetworkPolicy", service]["spec"]["egress"][-1] == rule
        assert rendered()["NetworkPolicy", service]["spec"]["egress"][-1] != rule


@pytest.mark.parametrize(("url", "port"), [("http://registry:8081", 8081), ("https://registry/v1", 443)])
def test_a_network_policy_lets_the_console_ask_its_schema_registry(url: str, port: int) -> None:
    found = rendered(console={"settings": {"KAFSCALE_CONSOLE_REGISTRY_URL": url}})
    rule = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"protocol": "TCP", "port": port}]}
    assert found["NetworkPolicy", "console"]["spec"]["egress"][-1] == rule


def test_the_monitors_of_the_operator_select_the_processes() -> None:
    k8s = ROOT / "k8s"
    kustomization = yaml.safe_load((k8s / "operator-monitoring" / "kustomization.yaml").read_text())
    assert kustomization["components"] == ["../components/monitoring"]
    monitors = yaml.safe_load_all((k8s / "components" / "monitoring" / "service-monitors.yaml").read_text())
    scraped = [
        part
        for monitor in monitors
        for (kind, part), each in rendered(outside={"type": "NodePort", "host": "a", "firstPort": 31000}).items()
        if kind == "Service"
        and _matches(monitor["spec"]["selector"], each["metadata"]["labels"])
        and monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in each["spec"]["ports"]}
    ]
    assert scraped == [*SERVICES, "console", "etcd"]


def _matches(selector: Object, labels: Object) -> bool:
    wanted = {name: [value] for name, value in selector.get("matchLabels", {}).items()}
    wanted |= {each["key"]: each["values"] for each in selector.get("matchExpressions", [])}
    return all(labels[name] in values for name, values in wanted.items())


def _annotations(workload: Object) -> Any:
    return workload["spec"]["template"]["metadata"].get("annotations")


@pytest.mark.parametrize("type_", ["NodePort", "LoadBalancer"])
def test_gateways_advertise_the_addresses_of_their_external_services(type_: str) -> None:
    outside: Object = {"type": type_, "host": "kafka.local"}
    outside |= {"firstPort": 31000} if type_ == "NodePort" else {"sourceRanges": ["10.1.0.0/16"]}
    found = rendered(outside=outside, gateway={"replicas": 3})
    gateways = found["StatefulSet", "gateway"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "outside", "containerPort": 9192} in gateways["ports"]
    variables = {each["name"]: each.get("value", "") for each in gateways["env"]}
    advertised = variables["KAFSCALE_ADVERTISED_LISTENERS"]
    inside, _, outer = advertised.partition(",OUTSIDE://")
    assert inside == "INSIDE://$(POD_NAME).main-kafscale-gateway.$(POD_NAMESPACE).svc:9092"
    assert found["NetworkPolicy", "gateway-outside"]["spec"]["ingress"]
    services = [part for kind, part in found if kind == "Service" and part.startswith("gateway-")]
    assert services == ["gateway-0", "gateway-1", "gateway-2"]
    for number, part in enumerate(services):
        service = found["Service", part]
        name = f"main-kafscale-gateway-{number}"
        assert service["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": name}
        [port] = service["spec"]["ports"]
        where = outer.replace("$(KAFSCALE_BROKER_ID)", str(number)).replace("$(POD_NAME)", name)
        if type_ == "NodePort":
            assert where == f"kafka.local:{port['nodePort']}"
        else:
            [host] = service["metadata"]["annotations"].values()
            assert where == f"{host}:{port['port']}"
            assert service["spec"]["loadBalancerSourceRanges"] == ["10.1.0.0/16"]


def test_suggestions_contain_only_settings_that_may_be_set() -> None:
    settings = {"KAFSCALE_S3_BUCKETT": "other", "KAFSCALE_ETCD_ENDPOINT": "a:1", "KAFSCALE_S3_LATENCY_WARN_MS": "5"}
    metadata = {"name": "main", "namespace": "default", "uid": "u"}
    wrong = complaints({"metadata": metadata, "spec": {"bucket": BUCKET, "storage": {"settings": settings}}}, MANIFESTS)
    assert [each.split()[1] for each in wrong] == ["KAFSCALE_S3_BUCKETT", "KAFSCALE_ETCD_ENDPOINT"]
    assert "KAFSCALE_S3_BUCKET?" not in wrong[0]
    assert "KAFSCALE_ETCD_ENDPOINTS?" not in wrong[1]
