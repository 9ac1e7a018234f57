"""KafscaleTopics in a simulated environment: actions, conditions, status, and recovery from a stop at any step."""

import grpc
import pytest

from kafscale.errors import Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.kubernetes import ApiUnavailable
from services.operator.resources import CLUSTER, TOPIC, TOPIC_FINALIZER
from tests.unit.operator.steps import Killed
from tests.unit.operator.world import World


async def test_a_topic_is_created_and_then_not_changed() -> None:
    world = World()
    world.topic(partitions=4, retention="24h")
    assert await world.reconcile()
    made = world.brokers.topics["orders"]
    assert (made.partitions, dict(made.configs)) == (4, {"retention.ms": "86400000"})
    assert world.conditions() == {"Ready": ("True", "Available"), "Synced": ("True", "AsWanted")}
    status = world.resource()["status"]
    assert (status["observedGeneration"], status["partitions"], status["topicId"]) == (1, 4, "id-orders")
    assert world.events == ["Created"]
    before = world.steps.done
    assert await world.reconcile()
    assert world.steps.done == before
    assert world.asked[-1] == ("gateway:9094",)


async def test_a_topic_grows_and_is_reconfigured() -> None:
    world = World()
    world.topic(partitions=1, config={"flush.ms": "5", "retention.ms": "9"})
    await world.reconcile()
    world.topic(partitions=2, config={"retention.ms": "10"})
    await world.reconcile()
    topic = world.brokers.topics["orders"]
    assert (topic.partitions, dict(topic.configs)) == (2, {"retention.ms": "10"})
    assert world.events == ["Created", "Grown", "Reconfigured"]
    assert world.resource()["status"]["managedConfigs"] == ["retention.ms"]
    assert world.resource()["status"]["observedGeneration"] == 2


async def test_partitions_are_never_removed_and_the_condition_reports_that_once() -> None:
    world = World()
    world.topic(partitions=5)
    await world.reconcile()
    world.topic(partitions=2)
    for _ in range(2):
        await world.reconcile()
    assert world.brokers.topics["orders"].partitions == 5
    assert world.conditions() == {"Ready": ("True", "Available"), "Synced": ("False", "PartitionsCannotShrink")}
    assert world.events == ["Created", "PartitionsCannotShrink"]
    world.topic(partitions=5)
    await world.reconcile()
    assert world.conditions()["Synced"] == ("True", "AsWanted")


async def test_an_existing_topic_is_adopted_with_its_configs() -> None:
    world = World()
    world.brokers.add("orders", 6, {"retention.ms": "-1"})
    world.topic(config={"flush.ms": "100"})
    await world.reconcile()
    topic = world.brokers.topics["orders"]
    assert (topic.partitions, dict(topic.configs)) == (6, {"retention.ms": "-1", "flush.ms": "100"})
    assert world.events == ["Adopted", "Reconfigured"]


async def test_drift_is_repaired_and_reported() -> None:
    world = World()
    world.topic(partitions=1, retention="24h")
    await world.reconcile()
    world.brokers.topics["orders"].configs["retention.ms"] = "1"
    await world.reconcile()
    assert world.brokers.topics["orders"].configs["retention.ms"] == "86400000"
    del world.brokers.topics["orders"]
    await world.reconcile()
    assert "orders" in world.brokers.topics
    assert world.events == ["Created", "DriftRepaired", "Recreated"]


async def test_a_topic_is_deleted_with_its_resource_only_if_requested() -> None:
    world = World()
    world.topic("kept")
    world.topic("gone", deletionPolicy="Delete")
    for name in ("kept", "gone"):
        await world.reconcile(name)
    assert "finalizers" not in world.resource("kept")["metadata"]
    assert world.resource("gone")["metadata"]["finalizers"] == [TOPIC_FINALIZER]
    for name in ("kept", "gone"):
        world.api.delete(TOPIC, name)
        await world.reconcile(name)
    assert world.all(TOPIC) == {}
    assert set(world.brokers.topics) == {"kept"}


async def test_a_withdrawn_deletion_policy_keeps_the_topic() -> None:
    world = World()
    world.topic(deletionPolicy="Delete")
    await world.reconcile()
    world.topic(deletionPolicy="Retain")
    await world.reconcile()
    assert world.resource()["metadata"]["finalizers"] == []


async def test_the_finalizer_stays_until_the_topic_is_deleted() -> None:
    world = World()
    world.topic(deletionPolicy="Delete")
    await world.reconcile()
    world.api.delete(TOPIC, "orders")
    world.unreachable = True
    with pytest.raises(Unavailable):
        await world.reconcile()
    assert world.conditions()["Ready"] == ("Unknown", "ClusterUnreachable")
    world.unreachable = False
    await world.reconcile()
    assert world.brokers.topics == {}
    assert world.all(TOPIC) == {}


async def test_the_finalizer_is_removed_if_the_topics_cluster_is_gone() -> None:
    world = World()
    world.topic(deletionPolicy="Delete")
    await world.reconcile()
    del world.api.objects[CLUSTER.plural, "main"]
    world.api.delete(TOPIC, "orders")
    await world.reconcile()
    assert world.all(TOPIC) == {}
    assert world.events == ["Created", "Retained"]


async def test_the_older_of_two_resources_owns_a_topic() -> None:
    world = World()
    world.topic("second", made="2026-11-22T18:00:01Z", topicName="orders", partitions=9, deletionPolicy="Delete")
    world.topic("orders", partitions=1)
    await world.reconcile("second")
    assert world.brokers.topics == {}
    assert world.conditions("second")["Synced"] == ("False", "Conflict")
    await world.reconcile("orders")
    assert world.brokers.topics["orders"].partitions == 1
    world.api.delete(TOPIC, "second")
    await world.reconcile("second")
    assert "orders" in world.brokers.topics
    world.topic("second", made="2026-11-22T18:00:01Z", topicName="orders", partitions=9)
    world.api.delete(TOPIC, "orders")
    await world.reconcile("second")
    assert world.brokers.topics["orders"].partitions == 9


async def test_a_topic_without_a_cluster_reference_stays_with_its_first_cluster() -> None:
    world = World()
    world.topic(clusterRef=None, partitions=1, deletionPolicy="Delete")
    await world.reconcile()
    assert world.conditions()["Synced"] == ("True", "AsWanted")
    assert world.resource()["status"]["cluster"] == "main"
    world.cluster("second")
    await world.reconcile()
    assert world.conditions()["Synced"] == ("True", "AsWanted")
    world.api.delete(TOPIC, "orders")
    await world.reconcile()
    assert world.brokers.topics == {}


async def test_a_topic_without_a_cluster_reference_needs_exactly_one_cluster() -> None:
    world = World()
    world.cluster("second")
    world.topic(clusterRef=None)
    await world.reconcile()
    assert world.brokers.topics == {}
    assert world.conditions()["Synced"] == ("False", "ClusterAmbiguous")
    assert "more than one KafscaleCluster (main, second)" in world.message("Synced")
    for name in ("main", "second"):
        del world.api.objects[CLUSTER.plural, name]
    await world.reconcile()
    assert world.conditions()["Synced"] == ("False", "ClusterNotFound")
    assert "spec.clusterRef is not set" in world.message("Synced")
    assert "cluster" not in world.resource()["status"]
    world.cluster()
    await world.reconcile()
    assert world.conditions()["Synced"] == ("True", "AsWanted")


async def test_resources_with_and_without_a_cluster_reference_compete_for_one_topic() -> None:
    world = World()
    world.topic("orders", partitions=1)
    world.topic("second", made="2026-11-22T18:00:01Z", clusterRef=None, topicName="orders", partitions=9)
    await world.reconcile("second")
    assert world.conditions("second")["Synced"] == ("False", "Conflict")


async def test_missing_and_silent_clusters_are_reported_in_conditions() -> None:
    world = World()
    world.topic(partitions=1)
    del world.api.objects[CLUSTER.plural, "main"]
    await world.reconcile()
    assert world.conditions() == dict.fromkeys(("Ready", "Synced"), ("False", "ClusterNotFound"))
    world.cluster()
    world.unreachable = True
    with pytest.raises(Unavailable):
        await world.reconcile()
    assert world.conditions()["Synced"] == ("Unknown", "ClusterUnreachable")
    world.unreachable = False
    world.brokers.refuses = StatusError(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")
    with pytest.raises(StatusError):
        await world.reconcile()
    assert world.conditions()["Synced"] == ("Unknown", "Unauthenticated")
    world.brokers.refuses = None
    await world.reconcile()
    assert world.events == ["ClusterNotFound", "Unauthenticated", "Created"]


async def test_a_refusal_of_a_gateway_is_reported_and_not_retried_immediately() -> None:
    world = World()
    world.topic(partitions=1)
    await world.reconcile()
    world.topic(partitions=101, config={"flush.ms": "5"})
    assert await world.reconcile()
    assert world.conditions() == {"Ready": ("True", "Available"), "Synced": ("False", "Refused")}
    world.topic(partitions=1, config={"cleanup.policy": "compress"})
    assert await world.reconcile()
    assert world.conditions()["Synced"] == ("False", "InvalidConfig")
    assert dict(world.brokers.topics["orders"].configs) == {}


async def test_a_config_removed_next_to_a_wrong_one_is_unset_when_that_is_fixed() -> None:
    world = World()
    world.topic(partitions=1, config={"flush.ms": "5"})
    await world.reconcile()
    world.topic(partitions=1, config={"retention.ms": "soon"})
    await world.reconcile()
    assert dict(world.brokers.topics["orders"].configs) == {"flush.ms": "5"}
    world.topic(partitions=1)
    await world.reconcile()
    assert dict(world.brokers.topics["orders"].configs) == {}


async def test_a_wrong_config_in_the_first_resource_creates_no_topic() -> None:
    world = World()
    world.topic(config={"cleanup.policy": "compress"})
    assert await world.reconcile()
    assert world.conditions() == {"Ready": ("False", "Missing"), "Synced": ("False", "InvalidConfig")}
    assert world.brokers.topics == {}


@pytest.mark.parametrize("applied", [False, True])
async def test_the_next_operator_completes_work_that_was_killed_at_any_step(applied: bool) -> None:
    """A topic's life, with a kill before or after each change."""
    step, killed = 1, True
    while killed:
        world, killed = World(), False
        world.steps.last, world.steps.applied = step, applied

        async def reconcile(world: World = world) -> None:
            nonlocal killed
            try:
                await world.reconcile()
            except Killed:
                killed = True
                await world.reconcile()

        world.brokers.add("other", 1, {})
        world.topic(partitions=2, deletionPolicy="Delete", config={"flush.ms": "5", "retention.ms": "9"})
        await reconcile()
        world.topic(partitions=4, deletionPolicy="Delete", config={"retention.ms": "10"})
        await reconcile()
        topic = world.brokers.topics["orders"]
        assert (topic.partitions, dict(topic.configs)) == (4, {"retention.ms": "10"})
        assert world.conditions()["Synced"] == ("True", "AsWanted")
        world.api.delete(TOPIC, "orders")
        await reconcile()
        assert set(world.brokers.topics) == {"other"}
        assert world.all(TOPIC) == {}
        step += 1
    assert step > 10


async def test_a_config_set_just_before_a_kill_is_unset_when_it_is_removed() -> None:
    world = World()
    world.topic(partitions=1)
    await world.reconcile()
    world.topic(partitions=1, config={"retention.ms": "9"})
    # The names are stored, then the config is set.
    world.steps.last = world.steps.done + 2
    with pytest.raises(Killed):
        await world.reconcile()
    assert dict(world.brokers.topics["orders"].configs) == {"retention.ms": "9"}
    world.topic(partitions=1)
    await world.reconcile()
    assert dict(world.brokers.topics["orders"].configs) == {}


async def test_a_config_with_an_unconfirmed_change_is_unset_when_it_is_removed() -> None:
    world = World()
    world.topic(partitions=1)
    await world.reconcile()
    world.topic(partitions=1, config={"retention.ms": "9"})
    world.brokers.answers_lost = True
    with pytest.raises(StatusError):
        await world.reconcile()
    assert world.conditions()["Synced"] == ("Unknown", "ClusterUnreachable")
    world.brokers.answers_lost = False
    world.topic(partitions=1)
    await world.reconcile()
    assert dict(world.brokers.topics["orders"].configs) == {}


async def test_a_lost_event_blocks_nothing() -> None:
    world = World()
    world.api.forbidden = {"events"}
    world.topic(partitions=1)
    assert await world.reconcile()
    assert world.conditions()["Synced"] == ("True", "AsWanted")
    assert (world.events, world.counters.events_lost) == ([], 1)


async def test_a_deleted_resource_is_ignored() -> None:
    assert await World().reconcile("never-made") is False


async def test_an_unresponsive_api_server_is_reported_as_such() -> None:
    world = World()
    world.api.down = True
    with pytest.raises(ApiUnavailable, match="does not answer: connection refused"):
        await world.reconcile()
    assert world.counters.failing
    world.api.down = False
    assert await world.reconcile() is False
    assert world.counters.failing == ""


async def test_errors_of_the_api_server_are_not_attributed_to_a_cluster() -> None:
    world = World()
    world.topic(partitions=1)
    world.api.fails = {"kafscaletopics/status"}
    with pytest.raises(ApiUnavailable, match="etcdserver: request timed out"):
        await world.reconcile()
    assert "status" not in world.resource()
    assert await world.reconcile()
    assert world.conditions()["Synced"] == ("True", "AsWanted")


@pytest.mark.parametrize(
    ("code", "details", "sentence"),
    [
        ("UNAVAILABLE", "Socket closed", "the gateway no longer answers: Socket closed"),
        ("INTERNAL", "a defect", "the gateway failed with INTERNAL: a defect"),
    ],
)
async def test_the_reason_of_a_silent_cluster_is_a_sentence(code: str, details: str, sentence: str) -> None:
    world = World()
    world.brokers.refuses = StatusError(grpc.StatusCode[code], details)
    with pytest.raises(StatusError):
        await world.reconcile_cluster()
    [message] = [found["message"] for (plural, _), found in world.api.objects.items() if plural == "events"]
    assert message == sentence


async def test_the_status_of_a_cluster_describes_its_members() -> None:
    world = World()
    assert await world.reconcile_cluster()
    status = world.all(CLUSTER)["main"]["status"]
    assert status["members"] == {"gateways": "1/1", "storage": "1/2", "indexers": "1/1", "coordinators": "1/1"}
    assert [(each["status"], each["reason"]) for each in status["conditions"]] == [("True", "Serving")]
    world.unreachable = True
    with pytest.raises(Unavailable):
        await world.reconcile_cluster()
    status = world.all(CLUSTER)["main"]["status"]
    assert [(each["status"], each["reason"]) for each in status["conditions"]] == [("False", "ClusterUnreachable")]
    assert world.events == ["Serving", "ClusterUnreachable"]
