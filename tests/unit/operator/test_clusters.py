"""Clusters that the operator makes: what of the spec comes into which object, and what an end at any step leaves."""

from typing import Any

import pytest

from kafscale.errors import Unavailable
from services.operator.clusters.making import HANDOVER
from services.operator.clusters.manifests import containers
from services.operator.clusters.render import render
from services.operator.kubernetes import ApiRefused, ApiUnavailable
from services.operator.resources import CLUSTER, MADE, MANAGER, Object
from tests.unit.operator.world import MANIFESTS, Killed, World

BUCKET = {"name": "kafscale-storage", "region": "us-east-1", "namespace": "production"}


def rendered(**spec: Any) -> dict[tuple[str, str], Object]:
    """By kind and name, without what the names begin with."""
    metadata = {"name": "main", "namespace": "default", "uid": "u"}
    objects = render({"metadata": metadata, "spec": {"bucket": BUCKET, **spec}}, MANIFESTS)
    return {(each["kind"], each["metadata"]["name"].removeprefix("main-kafscale").strip("-")): each for each in objects}


def test_the_bucket_is_where_the_spec_says() -> None:
    found = rendered(
        bucket={
            **BUCKET,
            "endpoint": "http://minio:9000",
            "credentialsSecret": "keys",
            "accountAnnotations": {"role": "kafscale"},
        }
    )
    assert found["ConfigMap", "objects"]["data"] == {
        "KAFSCALE_S3_BUCKET": "kafscale-storage",
        "KAFSCALE_S3_REGION": "us-east-1",
        "KAFSCALE_S3_ENDPOINT": "http://minio:9000",
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


def _secrets(resource: Object) -> list[Object]:
    sources = [source for container in containers(resource) for source in container.get("envFrom", [])]
    return [source["secretRef"] for source in sources if "secretRef" in source]


def test_an_etcd_that_runs_already_is_asked_and_none_is_made() -> None:
    found = rendered(etcd={"endpoints": ["etcd-a:2379", "etcd-b:2479"]})
    assert found["ConfigMap", ""]["data"]["KAFSCALE_ETCD_ENDPOINTS"] == "etcd-a:2379,etcd-b:2479"
    assert [key for key in found if key[1].startswith("etcd")] == []
    ports = [{"protocol": "TCP", "port": 2379}, {"protocol": "TCP", "port": 2479}]
    for service in ("gateway", "storage", "indexer", "coordinator"):
        rules = found["NetworkPolicy", service]["spec"]["egress"]
        assert {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": ports} in rules


def test_an_etcd_of_one_member_is_one_that_any_node_may_have() -> None:
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


def test_sizes_images_and_settings_go_to_their_service() -> None:
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
    # Pods whose settings are others are made anew.
    before = rendered()
    for kind, part in (("StatefulSet", "storage"), ("StatefulSet", "etcd")):
        same = _annotations(found[kind, part]) == _annotations(before[kind, part])
        assert same is (part == "etcd")


def _annotations(workload: Object) -> Any:
    return workload["spec"]["template"]["metadata"].get("annotations")


@pytest.mark.parametrize("type_", ["NodePort", "LoadBalancer"])
def test_pitfall_44_gateways_tell_clients_outside_where_their_services_are(type_: str) -> None:
    outside: Object = {"type": type_, "host": "kafka.local"}
    outside |= {"firstPort": 31000} if type_ == "NodePort" else {"sourceRanges": ["10.1.0.0/16"]}
    found = rendered(outside=outside, gateway={"replicas": 3})
    gateways = found["StatefulSet", "gateway"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "outside", "containerPort": 9192} in gateways["ports"]
    variables = {each["name"]: each.get("value", "") for each in gateways["env"]}
    told = variables["KAFSCALE_ADVERTISED_LISTENERS"]
    inside, _, outer = told.partition(",OUTSIDE://")
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


async def test_a_cluster_is_made_and_told_of() -> None:
    world = World()
    world.made_cluster()
    world.unreachable = True
    assert await world.reconcile_cluster()
    # It is on its way: nobody has to be woken up for that.
    assert [world.condition(type_)[1] for type_ in ("Applied", "RolledOut", "Ready")] == [
        "AsWanted",
        "RollingOut",
        "Starting",
    ]
    assert world.soon == [("main", 2.0)]
    assert world.asked == [("main-kafscale.default.svc:9094",)]
    world.roll_out()
    with pytest.raises(Unavailable):
        await world.reconcile_cluster()
    assert world.condition("Ready")[1] == "ClusterUnreachable"
    world.unreachable = False
    assert await world.reconcile_cluster()
    assert [world.condition(type_)[0] for type_ in ("Applied", "RolledOut", "Ready")] == ["True"] * 3
    status = world.all(CLUSTER)["main"]["status"]
    assert status["pods"] == {
        "gateways": "1/1",
        "storage": "1/1",
        "indexers": "1/1",
        "coordinators": "1/1",
        "etcd": "3/3",
        "all": "7/7",
    }
    assert world.events[0] == "ObjectsChanged"
    before = len(world.events)
    assert await world.reconcile_cluster()
    assert len(world.events) == before


async def test_an_end_at_any_step_is_made_good_by_the_next_operator() -> None:
    whole = World()
    whole.made_cluster()
    await whole.reconcile_cluster()
    steps, wanted = whole.steps.done, _objects(whole)
    assert len(wanted) > 30
    for last in range(1, steps + 1):
        world = World()
        world.made_cluster()
        world.steps.last, world.steps.applied = last, last % 2 == 0
        with pytest.raises(Killed):
            await world.reconcile_cluster()
        await world.reconcile_cluster()
        assert _objects(world) == wanted


def _objects(world: World) -> dict[tuple[str, str], Object]:
    kinds = {kind.plural for kind in MADE}
    found = {}
    for (plural, name), each in world.api.objects.items():
        if plural in kinds:
            found[plural, name] = {key: part for key, part in each.items() if key not in ("metadata", "status")}
    return found


async def test_the_autoscalers_number_of_pods_stays_and_is_not_lost_when_one_begins() -> None:
    world = World()
    world.made_cluster(storage={"replicas": 4})
    await world.reconcile_cluster()
    storage = world.all(MADE[5])["main-kafscale-storage"]
    assert (storage["spec"]["replicas"], world.api.replicas_of["main-kafscale-storage"]) == (4, {MANAGER})
    world.made_cluster()
    await world.reconcile_cluster()
    assert world.all(MADE[5])["main-kafscale-storage"]["spec"]["replicas"] == 4
    assert world.api.replicas_of["main-kafscale-storage"] == {HANDOVER}
    world.all(MADE[5])["main-kafscale-storage"]["spec"]["replicas"] = 7
    await world.reconcile_cluster()
    assert world.all(MADE[5])["main-kafscale-storage"]["spec"]["replicas"] == 7
    assert "DriftRepaired" not in world.events


async def test_what_is_not_wanted_any_more_is_removed_and_what_others_changed_is_mended() -> None:
    world = World()
    world.made_cluster()
    await world.reconcile_cluster()
    world.api.put(MADE[1], {"metadata": {"name": "somebody-elses"}, "spec": {}})
    world.made_cluster(storage={"replicas": 3})
    await world.reconcile_cluster()
    scalers = set(world.all(MADE[7]))
    assert scalers == {f"main-kafscale-{service}" for service in ("gateway", "indexer", "coordinator")}
    assert "somebody-elses" in world.all(MADE[1])
    world.all(MADE[1])["main-kafscale-storage"]["data"]["KAFSCALE_CACHE_SIZE"] = "1"
    del world.api.objects[MADE[2].plural, "main-kafscale"]
    await world.reconcile_cluster()
    assert world.all(MADE[1])["main-kafscale-storage"]["data"]["KAFSCALE_CACHE_SIZE"] == "1GB"
    assert "main-kafscale" in world.all(MADE[2])
    assert world.events[-1] == "DriftRepaired"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"storage": {"settings": {"KAFSCALE_CACHE_SIZ": "1"}}},
            "spec.storage.settings: KAFSCALE_CACHE_SIZ is nothing that the storage reads, or a secret; "
            "did you mean KAFSCALE_CACHE_SIZE?",
        ),
        (
            {"settings": {"KAFSCALE_S3_BUCKET": "other"}},
            "spec.settings: KAFSCALE_S3_BUCKET follows from the other fields of the spec",
        ),
        (
            {"gateway": {"settings": {"KAFSCALE_RPC_ADDR": ":1"}}},
            "spec.gateway.settings: KAFSCALE_RPC_ADDR follows from the other fields of the spec",
        ),
    ],
)
async def test_settings_that_do_not_exist_are_complained_of_and_nothing_is_applied(spec: Object, message: str) -> None:
    world = World()
    world.made_cluster(**spec)
    await world.reconcile_cluster()
    assert world.condition("Applied") == ("False", "InvalidSettings", message)
    assert _objects(world) == {}
    assert "InvalidSettings" in world.events


async def test_objects_of_others_are_left_alone_and_refusals_are_told() -> None:
    world = World()
    world.made_cluster()
    world.api.put(MADE[2], {"metadata": {"name": "main-kafscale"}, "spec": {"own": "ports"}})
    await world.reconcile_cluster()
    assert world.condition("Applied")[1:] == (
        "Conflict",
        "Service main-kafscale is there already, and is not this cluster's",
    )
    del world.api.objects[MADE[2].plural, "main-kafscale"]
    world.api.refuses = {"poddisruptionbudgets"}
    with pytest.raises(ApiRefused):
        await world.reconcile_cluster()
    assert world.condition("Applied")[1:] == ("Refused", "PodDisruptionBudget main-kafscale-gateway: it is no good")
    assert world.condition("Ready")[:2] == ("True", "Serving")
    world.api.refuses = set()
    world.api.fails = {"cronjobs"}
    with pytest.raises(ApiUnavailable):
        await world.reconcile_cluster()
    assert world.condition("Applied")[:2] == ("Unknown", "ApiUnavailable")


async def test_what_cannot_be_listed_or_removed_is_told_as_well() -> None:
    world = World()
    world.made_cluster()
    await world.reconcile_cluster()
    world.api.forbidden = {"configmaps"}
    with pytest.raises(ApiRefused):
        await world.reconcile_cluster()
    assert world.condition("Applied") == ("False", "Refused", "configmaps is forbidden")
    world.api.forbidden = set()
    await world.reconcile_cluster()
    assert world.condition("Applied")[1] == "AsWanted"
    world.made_cluster(storage={"replicas": 3})
    world.api.keeps = {"horizontalpodautoscalers"}
    with pytest.raises(ApiRefused):
        await world.reconcile_cluster()
    assert world.condition("Applied") == (
        "False",
        "Refused",
        "HorizontalPodAutoscaler main-kafscale-storage: it is no good",
    )
    assert world.events.count("Refused") == 2


async def test_a_cluster_that_has_served_is_not_starting_however_many_of_its_pods_are_down() -> None:
    world = World()
    world.made_cluster()
    await world.reconcile_cluster()
    world.unreachable = True
    with pytest.raises(Unavailable):
        await world.reconcile_cluster()
    assert world.condition("RolledOut")[1] == "RollingOut"
    assert world.condition("Ready")[1] == "ClusterUnreachable"
    assert world.kind_of_event("ClusterUnreachable") == "Warning"


async def test_a_cluster_that_is_not_applied_is_not_starting() -> None:
    world = World()
    world.made_cluster()
    world.unreachable = True
    world.api.put(MADE[2], {"metadata": {"name": "main-kafscale"}, "spec": {"own": "ports"}})
    with pytest.raises(Unavailable):
        await world.reconcile_cluster()
    assert world.condition("Ready")[:2] == ("False", "Conflict")
    assert world.kind_of_event("Conflict") == "Warning"
    del world.api.objects[MADE[2].plural, "main-kafscale"]
    await world.reconcile_cluster()
    assert world.condition("Ready")[1] == "Starting"


async def test_pauses_double_while_nothing_changes_and_begin_anew_with_what_does() -> None:
    world = World()
    world.made_cluster()
    reconciler = world.cluster_reconciler()
    for _ in range(4):
        await reconciler.reconcile("main")
    world.made_cluster(storage={"replicas": 3})
    await reconciler.reconcile("main")
    await reconciler.reconcile("main")
    world.all(MADE[6])["main-kafscale-indexer"]["status"] = {"readyReplicas": 1}
    await reconciler.reconcile("main")
    assert [seconds for _, seconds in world.soon] == [2, 4, 8, 10, 2, 4, 2]
    world.roll_out()
    await reconciler.reconcile("main")
    assert len(world.soon) == 7
