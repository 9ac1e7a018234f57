"""Exchanges as in ``exchanges.py`` for configs, and for administrative APIs of topics and the cluster."""

from datetime import timedelta
from typing import Any

from tests.support.gateway.exchanges import SECONDS_5, Exchange, nested, put
from tests.support.gateway.harness import Client, Harness, batch


async def describe_configs(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t", retention_ms="1000")
    resource = nested(32, version, "DescribeConfigsResource")
    requested = (
        resource(resource_type=2, resource_name="t", configuration_keys=("retention.ms", "cleanup.policy")),
        resource(resource_type=4, resource_name="0", configuration_keys=("num.partitions",)),
        resource(resource_type=2, resource_name="unknown", configuration_keys=None),
        resource(resource_type=2, resource_name="a b", configuration_keys=None),
        resource(resource_type=4, resource_name="7", configuration_keys=None),
        resource(resource_type=8, resource_name="7", configuration_keys=None),
        resource(resource_type=99, resource_name="0", configuration_keys=None),
        *(resource(resource_type=kind, resource_name="0", configuration_keys=None) for kind in (8, 16, 32)),
    )
    documented = {"include_documentation": True} if version >= 3 else {}
    reply = await client.ask(32, version, resources=requested, include_synonyms=True, **documented)
    assert reply.throttle_time == timedelta(0)
    topic, broker, *refused, loggers, metrics, group = reply.results
    empty = [(each.resource_type, each.error_code, each.configs) for each in (loggers, metrics, group)]
    assert empty == [(8, 0, ()), (16, 0, ()), (32, 0, ())]
    assert [(each.error_code, each.resource_type, each.resource_name, each.configs) for each in refused] == [
        (3, 2, "unknown", ()),
        (17, 2, "a b", ()),
        (42, 4, "7", ()),
        (42, 8, "7", ()),
        (42, 99, "0", ()),
    ]
    assert all(each.error_message for each in refused)
    assert (topic.error_code, topic.error_message, broker.error_code, broker.resource_name) == (0, None, 0, "0")
    policy, retention = topic.configs
    (partitions,) = broker.configs
    assert (policy.name, policy.value, policy.config_source, policy.read_only) == ("cleanup.policy", "delete", 5, False)
    assert (retention.name, retention.value, retention.config_source) == ("retention.ms", "1000", 1)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "604800000", 5),
    ]
    assert (partitions.name, partitions.value, partitions.read_only) == ("num.partitions", "1", True)
    if version >= 3:
        assert (policy.config_type, retention.config_type, partitions.config_type) == (7, 5, 3)
        assert "KAFSCALE_RETENTION_MS" in retention.documentation


def _altered(reply: Any) -> list[tuple[int, int, str]]:
    assert reply.throttle_time == timedelta(0)
    assert all((each.error_message is None) == (each.error_code == 0) for each in reply.responses)
    return [(each.error_code, each.resource_type, each.resource_name) for each in reply.responses]


async def alter_configs(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t", retention_ms="1000", flush_ms="7")
    resource, config = nested(33, version, "AlterConfigsResource"), nested(33, version, "AlterableConfig")

    def setting(name: str, value: str | None, *, kind: int = 2, of: str = "t") -> Any:
        return resource(resource_type=kind, resource_name=of, configs=(config(name=name, value=value),))

    requested = (
        setting("segment.bytes", "1048577"),
        setting("segment.bytes", "1048577", of="unknown"),
        setting("num.partitions", "2", kind=4, of="0"),
    )
    dry = await client.ask(33, version, resources=requested, validate_only=True)
    assert _altered(dry) == [(0, 2, "t"), (3, 2, "unknown"), (42, 4, "0")]
    wrong = await client.ask(33, version, resources=(setting("segment.bytes", "1 MB"),), validate_only=False)
    assert _altered(wrong) == [(40, 2, "t")]
    assert harness.catalog.view.by_name["t"].configs == {"retention.ms": "1000", "flush.ms": "7"}
    reply = await client.ask(33, version, resources=requested, validate_only=False)
    assert _altered(reply) == _altered(dry)
    assert harness.catalog.view.by_name["t"].configs == {"segment.bytes": "1048577"}


async def describe_log_dirs(harness: Harness, client: Client, version: int) -> None:
    made = await harness.topic("t", 2)
    await harness.topic("other")
    await put(harness, client, batch(b"one", b"two"))
    size = len(batch(b"one", b"two"))
    topic = nested(35, version, "DescribableLogDirTopic")
    requested = (topic(topic="t", partitions=(0, 9)), topic(topic="unknown", partitions=(0,)))
    for topics, expected in (
        (requested, [("t", [(0, size)])]),
        (None, [("other", [(0, 0)]), ("t", [(0, size), (1, 0)])]),
        ((), []),
    ):
        reply = await client.ask(35, version, topics=topics)
        assert reply.throttle_time == timedelta(0)
        (directory,) = reply.results
        assert (directory.error_code, directory.log_dir) == (0, "test")
        sizes = [
            (each.name, [(p.partition_index, p.partition_size) for p in each.partitions]) for each in directory.topics
        ]
        assert sizes == expected
        assert all((p.offset_lag, p.is_future_key) == (0, False) for each in directory.topics for p in each.partitions)
        if version >= 3:
            assert reply.error_code == 0
        if version >= 4:
            assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
        if version >= 5:
            assert not directory.is_cordoned
    # A partition whose owner does not report its size.
    harness.storage.hand_over(harness.storage.partitions[made.id, 0].ref, "")
    (directory,) = (await client.ask(35, version, topics=(topic(topic="t", partitions=(0,)),))).results
    assert [p.partition_size for each in directory.topics for p in each.partitions] == [-1]


async def create_partitions(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t", 2)
    await harness.topic("other", 2)
    topic, assignment = nested(37, version, "CreatePartitionsTopic"), nested(37, version, "CreatePartitionsAssignment")
    requested = (
        topic(name="t", count=4, assignments=(assignment(broker_ids=(0,)), assignment(broker_ids=(0,)))),
        topic(name="other", count=2, assignments=None),
        topic(name="unknown", count=2, assignments=None),
    )
    for validate_only in (True, False):
        reply = await client.ask(37, version, topics=requested, timeout=SECONDS_5, validate_only=validate_only)
        assert reply.throttle_time == timedelta(0)
        assert [(each.name, each.error_code) for each in reply.results] == [("t", 0), ("other", 37), ("unknown", 3)]
        assert [each.error_message is None for each in reply.results] == [True, False, False]
        assert harness.catalog.view.by_name["t"].partitions == (2 if validate_only else 4)
    assert harness.catalog.view.by_name["other"].partitions == 2


async def incremental_alter_configs(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t", retention_ms="1000", flush_ms="7")
    resource, config = nested(44, version, "AlterConfigsResource"), nested(44, version, "AlterableConfig")
    replicas = "leader.replication.throttled.replicas"

    def changing(*changes: tuple[str, int, str | None], of: str = "t", kind: int = 2) -> Any:
        configs = tuple(config(name=name, config_operation=op, value=value) for name, op, value in changes)
        return resource(resource_type=kind, resource_name=of, configs=configs)

    requested = (
        changing(("retention.ms", 0, "5"), ("flush.ms", 1, None), (replicas, 2, "0:0,1:0")),
        changing(("retention.ms", 0, "5"), of="unknown"),
        changing(("num.partitions", 0, "2"), of="0", kind=4),
    )
    dry = await client.ask(44, version, resources=requested, validate_only=True)
    assert _altered(dry) == [(0, 2, "t"), (3, 2, "unknown"), (42, 4, "0")]
    assert harness.catalog.view.by_name["t"].configs == {"retention.ms": "1000", "flush.ms": "7"}
    assert _altered(await client.ask(44, version, resources=requested, validate_only=False)) == _altered(dry)
    assert harness.catalog.view.by_name["t"].configs == {"retention.ms": "5", replicas: "0:0,1:0"}
    less = changing((replicas, 3, "0:0"))
    assert _altered(await client.ask(44, version, resources=(less,), validate_only=False)) == [(0, 2, "t")]
    assert harness.catalog.view.by_name["t"].configs == {"retention.ms": "5", replicas: "1:0"}


async def describe_cluster(harness: Harness, client: Client, version: int) -> None:
    fenced = {"include_fenced_brokers": True} if version >= 2 else {}
    reply = await client.ask(60, version, include_cluster_authorized_operations=True, **fenced)
    assert (reply.throttle_time, reply.error_code, reply.error_message) == (timedelta(0), 0, None)
    assert (len(reply.cluster_id), reply.controller_id, reply.cluster_authorized_operations) == (22, 0, 8096)
    (broker,) = reply.brokers
    address = ("127.0.0.1", harness.listeners[0].port)
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (0, *address, None)
    if version >= 1:
        assert reply.endpoint_type == 1
        for kind, code in ((2, 114), (9, 115)):
            values = {"endpoint_type": kind, "include_cluster_authorized_operations": False, **fenced}
            refused = await client.ask(60, version, **values)
            assert (refused.error_code, refused.endpoint_type, refused.brokers) == (code, kind, ())
    if version >= 2:
        assert not broker.is_fenced


async def describe_topic_partitions(harness: Harness, client: Client, version: int) -> None:
    made = await harness.topic("t", 2)
    names = tuple(nested(75, version, "TopicRequest")(name=name) for name in ("unknown", "t", "a b"))
    reply = await client.ask(75, version, topics=names, response_partition_limit=100, cursor=None)
    assert (reply.throttle_time, reply.next_cursor) == (timedelta(0), None)
    illegal, found, unknown = reply.topics
    assert (illegal.name, illegal.error_code, illegal.partitions) == ("a b", 17, ())
    assert (unknown.name, unknown.error_code, unknown.topic_id) == ("unknown", 3, None)
    assert (found.name, found.error_code, found.topic_id.bytes, found.is_internal) == ("t", 0, made.id, False)
    assert found.topic_authorized_operations == 3576
    assert [
        (each.partition_index, each.error_code, each.leader_id, each.leader_epoch) for each in found.partitions
    ] == [
        (0, 0, 0, 1),
        (1, 0, 0, 1),
    ]
    for each in found.partitions:
        assert each.replica_nodes == each.isr_nodes == (0,)
        assert each.offline_replicas == each.eligible_leader_replicas == each.last_known_elr == ()


EXCHANGES: dict[int, Exchange] = {
    32: describe_configs,
    33: alter_configs,
    35: describe_log_dirs,
    37: create_partitions,
    44: incremental_alter_configs,
    60: describe_cluster,
    75: describe_topic_partitions,
}
