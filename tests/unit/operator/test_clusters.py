"""Clusters that the operator creates: their conditions, and recovery from a stop at any step."""

import pytest

from kafscale.errors import Unavailable
from services.operator.clusters.making import HANDOVER
from services.operator.kubernetes import ApiRefused, ApiUnavailable
from services.operator.resources import CLUSTER, MADE, MANAGER, Object
from tests.unit.operator.steps import Killed
from tests.unit.operator.world import World

PAUSED = {"kafscale.io/paused": "true"}


async def test_a_cluster_is_created_and_its_progress_is_reported() -> None:
    world = World()
    world.made_cluster()
    world.unreachable = True
    assert await world.reconcile_cluster()
    # Progress is as expected, so no alert is needed.
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
        "console": "1/1",
        "etcd": "3/3",
        "all": "8/8",
    }
    assert world.events[0] == "ObjectsChanged"
    before = len(world.events)
    assert await world.reconcile_cluster()
    assert len(world.events) == before


async def test_the_next_operator_completes_work_that_stopped_at_any_step() -> None:
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


async def test_the_autoscalers_number_of_pods_is_kept_also_when_an_autoscaler_is_added() -> None:
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


async def test_superfluous_objects_are_removed_and_changed_ones_are_repaired() -> None:
    world = World()
    world.made_cluster()
    await world.reconcile_cluster()
    owner = {"uid": world.all(CLUSTER)["main"]["metadata"]["uid"]}
    world.api.put(MADE[1], {"metadata": {"name": "somebody-elses", "ownerReferences": [owner]}, "spec": {}})
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
            "spec.storage.settings: KAFSCALE_CACHE_SIZ is not a setting of the storage, or is a secret; "
            "did you mean KAFSCALE_CACHE_SIZE?",
        ),
        (
            {"settings": {"KAFSCALE_S3_BUCKET": "other"}},
            "spec.settings: KAFSCALE_S3_BUCKET is derived from other fields of the spec",
        ),
        (
            {"gateway": {"settings": {"KAFSCALE_RPC_ADDR": ":1"}}},
            "spec.gateway.settings: KAFSCALE_RPC_ADDR is derived from other fields of the spec",
        ),
    ],
)
async def test_unknown_settings_are_reported_and_nothing_is_applied(spec: Object, message: str) -> None:
    world = World()
    world.made_cluster(**spec)
    await world.reconcile_cluster()
    assert world.condition("Applied") == ("False", "InvalidSettings", message)
    assert _objects(world) == {}
    assert "InvalidSettings" in world.events


async def test_objects_of_others_are_not_changed_and_refusals_are_reported() -> None:
    world = World()
    world.made_cluster()
    world.api.put(MADE[2], {"metadata": {"name": "main-kafscale"}, "spec": {"own": "ports"}})
    await world.reconcile_cluster()
    assert world.condition("Applied")[1:] == (
        "Conflict",
        "Service main-kafscale already exists and is not this cluster's",
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


async def test_failed_lists_and_deletions_are_reported() -> None:
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


async def test_a_cluster_that_has_served_is_not_starting_even_if_pods_are_down() -> None:
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


async def test_pauses_double_without_changes_and_start_again_with_one() -> None:
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


async def test_a_new_spec_takes_effect_only_if_the_api_server_accepts_all_of_it() -> None:
    world = World()
    world.made_cluster()
    await world.reconcile_cluster()
    before = _objects(world)
    world.made_cluster(settings={"KAFSCALE_LOG_LEVEL": "debug"})
    world.api.refuses = {"cronjobs"}
    for _ in range(2):
        with pytest.raises(ApiRefused):
            await world.reconcile_cluster()
        assert _objects(world) == before
    world.api.refuses = set()
    await world.reconcile_cluster()
    assert _objects(world) != before


async def test_a_paused_cluster_is_not_changed() -> None:
    world = World()
    world.made_cluster()
    await world.reconcile_cluster()
    before = _objects(world)
    world.api.put(CLUSTER, {**world.all(CLUSTER)["main"], "metadata": {"name": "main", "annotations": PAUSED}})
    del world.api.objects[MADE[2].plural, "main-kafscale"]
    world.unreachable = True
    assert await world.reconcile_cluster()
    assert world.condition("Applied")[:2] == ("Unknown", "Paused")
    assert world.condition("Ready")[:2] == ("False", "Paused")
    assert world.kind_of_event("Paused") == "Normal"
    assert len(_objects(world)) == len(before) - 1
    world.unreachable = False
    await world.reconcile_cluster()
    assert world.condition("Ready")[:2] == ("True", "Serving")
    world.all(CLUSTER)["main"]["metadata"]["annotations"] = {}
    await world.reconcile_cluster()
    assert _objects(world) == before


async def test_clusters_of_one_namespace_and_one_from_the_manifests_have_separate_objects() -> None:
    world = World()
    world.made_cluster()
    other = {"metadata": {"name": "other", "namespace": "default"}, "spec": world.all(CLUSTER)["main"]["spec"]}
    world.api.put(CLUSTER, other)
    await world.reconcile_cluster()
    await world.cluster_reconciler().reconcile("other")
    services = world.all(MADE[2])
    assert {each["spec"]["selector"]["app.kubernetes.io/instance"] for each in services.values()} == {"main", "other"}
    assert len(_objects(world)) % 2 == 0
    world.api.put(MADE[2], {"metadata": {"name": "kafscale"}, "spec": {"selector": {"app.kubernetes.io/name": "x"}}})
    await world.reconcile_cluster()
    assert world.condition("Applied")[:2] == ("False", "Conflict")
    assert "use another namespace" in world.condition("Applied")[2]
