"""Resources that are reconciled again when another one changes."""

from typing import Any

import trio
from trio.testing import MockClock

from services.operator.controllers import on_change, on_cluster_change
from services.operator.following import Followed
from services.operator.queue import Key, WorkQueue
from services.operator.resources import CLUSTER, TOPIC, USER, Object
from services.operator.topics.desired import identity as topic_of
from tests.unit.operator.world import World


def _topic(name: str, cluster: str = "", bound: str = "", **spec: Any) -> Object:
    if cluster:
        spec["clusterRef"] = {"name": cluster}
    metadata = {"name": name, "uid": name, "creationTimestamp": "2026-11-22T18:00:00Z"}
    return {"metadata": metadata, "spec": spec, "status": {"cluster": bound} if bound else {}}


def _cluster(name: str) -> Object:
    return {"metadata": {"name": name, "uid": name}, "spec": {"adminServers": ["a:1"]}}


def _followed(kind: Any, *objects: Object) -> Followed:
    followed = Followed(World().kubernetes(), kind, lambda former, present: None)
    followed.objects = {each["metadata"]["name"]: each for each in objects}
    return followed


async def _due(queue: WorkQueue) -> set[Key]:
    """Return the resources that are due now."""
    found = set()
    with trio.move_on_after(1):
        while True:
            found.add(await queue.take())
    return found


async def test_a_resource_without_a_cluster_reference_is_reconciled_when_a_cluster_comes_or_goes(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    topics = _followed(
        TOPIC, _topic("unbound"), _topic("of-main", "main"), _topic("bound", bound="main"), _topic("of-other", "other")
    )
    users = _followed(USER, _topic("ann"), _topic("bob", "other"))
    changes: list[tuple[Object | None, Object | None]] = [(None, _cluster("main")), (_cluster("main"), None)]
    for former, present in changes:
        queue = WorkQueue(longest_retry=1.0, spread=lambda: 1.0)
        on_cluster_change(queue, (topics, users), former, present)
        expected = {Key(TOPIC.name, name) for name in ("unbound", "of-main", "bound")}
        assert await _due(queue) == {*expected, Key(USER.name, "ann"), Key(CLUSTER.name, "main")}


async def test_a_topic_that_yielded_to_a_rival_is_reconciled_when_the_rival_is_deleted(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    topics = _followed(TOPIC, _topic("second", topicName="orders"), _topic("bills"))
    clusters = _followed(CLUSTER, _cluster("main"))
    queue = WorkQueue(longest_retry=1.0, spread=lambda: 1.0)
    on_change(queue, topics, lambda each: topic_of(each, clusters.objects), _topic("orders", "main"), None)
    assert await _due(queue) == {Key(TOPIC.name, "orders"), Key(TOPIC.name, "second")}
