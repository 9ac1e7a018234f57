"""Exchanges as in ``exchanges.py`` for APIs whose features are missing here. They answer as Kafka does without them."""

from datetime import timedelta
from typing import Any

from kio.index import load_request_schema

from tests.support.gateway.exchanges import SECONDS_5, Exchange, nested, put
from tests.support.gateway.harness import NOW_MS, Client, Harness, batch

_ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def _since(api_key: int, version: int, **values: Any) -> dict[str, Any]:
    """Return the ``values`` that the request has in this version."""
    known = load_request_schema(api_key, version).__dataclass_fields__
    return {name: value for name, value in values.items() if name in known}


async def describe_acls(harness: Harness, client: Client, version: int) -> None:
    reply = await client.ask(29, version, **_ANY_ACL)
    assert (reply.throttle_time, reply.error_code, reply.resources) == (timedelta(0), 54, ())
    assert reply.error_message


async def create_acls(harness: Harness, client: Client, version: int) -> None:
    acl = nested(30, version, "AclCreation")(**_ACL)
    reply = await client.ask(30, version, creations=(acl, acl))
    assert reply.throttle_time == timedelta(0)
    assert [(each.error_code, bool(each.error_message)) for each in reply.results] == [(54, True)] * 2


async def delete_acls(harness: Harness, client: Client, version: int) -> None:
    reply = await client.ask(31, version, filters=(nested(31, version, "DeleteAclsFilter")(**_ANY_ACL),))
    assert reply.throttle_time == timedelta(0)
    assert [(each.error_code, each.matching_acls) for each in reply.filter_results] == [(54, ())]


async def elect_leaders(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t", 2)
    partitions = nested(43, version, "TopicPartitions")
    requested = (partitions(topic="t", partitions=(1, 9)), partitions(topic="unknown", partitions=(0,)))
    for kind in (0, 1) if version >= 1 else (0,):
        values = _since(43, version, election_type=kind, timeout=SECONDS_5)
        reply = await client.ask(43, version, topic_partitions=requested, **values)
        assert (reply.throttle_time, getattr(reply, "error_code", 0)) == (timedelta(0), 0)
        assert [
            (topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])
            for topic in reply.replica_election_results
        ] == [("t", [(1, 84), (9, 3)]), ("unknown", [(0, 3)])]
        everything = await client.ask(43, version, topic_partitions=None, **values)
        assert [(each.topic, each.partition_result) for each in everything.replica_election_results] == [("t", ())]
    if version >= 1:
        refused = await client.ask(43, version, topic_partitions=requested, election_type=7, timeout=SECONDS_5)
        assert refused.error_code == 42


async def alter_partition_reassignments(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t", 2)
    topic = nested(45, version, "ReassignableTopic")
    partition = nested(45, version, "ReassignablePartition")
    values = _since(45, version, timeout=SECONDS_5, allow_replication_factor_change=False)
    moves = (
        partition(partition_index=0, replicas=(0,)),
        partition(partition_index=1, replicas=None),
        partition(partition_index=1, replicas=(7,)),
        partition(partition_index=9, replicas=(0,)),
    )
    requested = (topic(name="t", partitions=moves), topic(name="unknown", partitions=moves[:1]))
    reply = await client.ask(45, version, topics=requested, **values)
    assert (reply.throttle_time, reply.error_code, reply.error_message) == (timedelta(0), 0, None)
    assert getattr(reply, "allow_replication_factor_change", False) is False
    assert [
        (each.name, [(one.partition_index, one.error_code) for one in each.partitions]) for each in reply.responses
    ] == [("t", [(0, 0), (1, 85), (1, 39), (9, 3)]), ("unknown", [(0, 3)])]


async def list_partition_reassignments(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    topic = nested(46, version, "ListPartitionReassignmentsTopics")(name="t", partition_indexes=(0, 9))
    for topics in (None, (topic,)):
        reply = await client.ask(46, version, topics=topics, timeout=SECONDS_5)
        assert (reply.throttle_time, reply.error_code, reply.error_message) == (timedelta(0), 0, None)
        assert reply.topics == ()


async def describe_quorum(harness: Harness, client: Client, version: int) -> None:
    partition = nested(55, version, "PartitionData")(partition_index=0)
    topic = nested(55, version, "TopicData")(topic_name="__cluster_metadata", partitions=(partition,))
    reply = await client.ask(55, version, topics=(topic,))
    assert (reply.error_code, reply.topics) == (35, ())
    if version >= 2:
        assert "no KRaft quorum" in reply.error_message


async def describe_producers(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    await put(harness, client, batch(b"one", b"two", producer_id=7, producer_epoch=3, base_sequence=5))
    topic = nested(61, version, "TopicRequest")
    requested = (topic(name="t", partition_indexes=(0, 9)), topic(name="a b", partition_indexes=(0,)))
    reply = await client.ask(61, version, topics=requested)
    assert reply.throttle_time == timedelta(0)
    assert [
        (each.name, [(one.partition_index, one.error_code, len(one.active_producers)) for one in each.partitions])
        for each in reply.topics
    ] == [("t", [(0, 0, 1), (9, 3, 0)]), ("a b", [(0, 17, 0)])]
    (known,) = reply.topics[0].partitions[0].active_producers
    assert (known.producer_id, known.producer_epoch, known.last_sequence, known.last_timestamp) == (7, 3, 6, NOW_MS)
    assert (known.coordinator_epoch, known.current_txn_start_offset) == (-1, -1)


async def describe_transactions(harness: Harness, client: Client, version: int) -> None:
    reply = await client.ask(65, version, transactional_ids=("a", "b", ""))
    assert reply.throttle_time == timedelta(0)
    assert [
        (each.transactional_id, each.error_code, each.transaction_state, each.topics)
        for each in reply.transaction_states
    ] == [("a", 105, "", ()), ("b", 105, "", ()), ("", 42, "", ())]


async def list_transactions(harness: Harness, client: Client, version: int) -> None:
    values = _since(66, version, producer_id_filters=(), duration_filter=-1, transactional_id_pattern="x.*")
    reply = await client.ask(66, version, state_filters=("Ongoing", "Asleep"), **values)
    assert (reply.throttle_time, reply.error_code, reply.transaction_states) == (timedelta(0), 0, ())
    assert reply.unknown_state_filters == ("Asleep",)
    if version >= 2:
        refused = await client.ask(66, version, state_filters=(), **values | {"transactional_id_pattern": "("})
        assert refused.error_code == 128


async def consumer_group_heartbeat(harness: Harness, client: Client, version: int) -> None:
    reply = await client.ask(
        68, version, group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=("t",), topic_partitions=()
    )
    assert (reply.throttle_time, reply.error_code, reply.assignment) == (timedelta(0), 35, None)
    assert "group.protocol=classic" in reply.error_message


async def list_config_resources(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")

    async def listed(**requested: Any) -> tuple[int, list[tuple[int, str]]]:
        reply = await client.ask(74, version, **requested)
        assert reply.throttle_time == timedelta(0)
        kinds = [getattr(each, "resource_type", 16) for each in reply.config_resources]
        names = [each.resource_name for each in reply.config_resources]
        return reply.error_code, list(zip(kinds, names, strict=True))

    if version == 0:
        assert await listed() == (0, [])
        return
    everything = [(4, "0"), (2, "t")]
    assert await listed(resource_types=()) == (0, everything)
    assert await listed(resource_types=(2,)) == (0, [(2, "t")])
    assert await listed(resource_types=(16, 32)) == (0, [])
    assert await listed(resource_types=(2, 99)) == (35, [])


EXCHANGES: dict[int, Exchange] = {
    29: describe_acls,
    30: create_acls,
    31: delete_acls,
    43: elect_leaders,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    55: describe_quorum,
    61: describe_producers,
    65: describe_transactions,
    66: list_transactions,
    68: consumer_group_heartbeat,
    74: list_config_resources,
}
