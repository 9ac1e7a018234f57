"""Exchanges as in ``exchanges.py`` for creating and deleting topics, and for deleting records."""

import struct
from datetime import timedelta

from kafscale.v1.common_pb2 import PartitionRef
from tests.support.gateway.exchanges import SECONDS_5, UNKNOWN_ID, Exchange, nested, string
from tests.support.gateway.harness import Client, Harness


async def create_topics(harness: Harness, client: Client, version: int) -> None:
    if version < 2:
        answer = await client.call(19, version, _old_creation(version, "new", 3, "retention.ms", "1000"))
        expected = struct.pack(">i", 1) + string("new") + struct.pack(">h", 0)
        assert answer == expected + (struct.pack(">h", -1) if version == 1 else b"")
    else:
        config = nested(19, version, "CreatableTopicConfig")(name="retention.ms", value="1000")
        topic = nested(19, version, "CreatableTopic")(
            name="new", num_partitions=3, replication_factor=1, assignments=(), configs=(config,)
        )
        reply = await client.ask(19, version, topics=(topic,), timeout=SECONDS_5, validate_only=False)
        assert reply.throttle_time == timedelta(0)
        (made,) = reply.topics
        assert (made.name, made.error_code, made.error_message) == ("new", 0, None)
        if version >= 5:
            assert (made.num_partitions, made.replication_factor, made.topic_config_error_code) == (3, 1, 0)
            assert {c.name: (c.value, c.config_source) for c in made.configs}["retention.ms"] == ("1000", 1)
        if version >= 7:
            assert made.topic_id.bytes == harness.catalog.view.by_name["new"].id
    stored = harness.catalog.view.by_name["new"]
    assert (stored.partitions, stored.configs) == (3, {"retention.ms": "1000"})
    for name, partitions, config, error in (
        ("new", 3, ("retention.ms", "1000"), 36),
        ("a b", 3, ("retention.ms", "1000"), 17),
        ("other", 0, ("retention.ms", "1000"), 37),
        ("other", 3, ("no.such.config", "1"), 40),
        ("other", 3, ("retention.ms", "soon"), 40),
    ):
        await _refused_topic(client, version, name, partitions, *config, error)
    assert list(harness.catalog.view.by_name) == ["new"]


async def _refused_topic(
    client: Client, version: int, name: str, partitions: int, config: str, value: str, error: int
) -> None:
    if version < 2:
        answer = await client.call(19, version, _old_creation(version, name, partitions, config, value))
        expected = struct.pack(">i", 1) + string(name) + struct.pack(">h", error)
        assert answer[: len(expected)] == expected
        # The error message must not be empty.
        assert len(answer) == len(expected) if version == 0 else len(answer) > len(expected) + 2
        return
    configs = (nested(19, version, "CreatableTopicConfig")(name=config, value=value),)
    topic = nested(19, version, "CreatableTopic")(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=configs
    )
    reply = await client.ask(19, version, topics=(topic,), timeout=SECONDS_5, validate_only=False)
    (refused,) = reply.topics
    assert (refused.name, refused.error_code) == (name, error)
    assert refused.error_message
    if version >= 5:
        assert (refused.num_partitions, refused.replication_factor, refused.configs) == (-1, -1, ())
    if version >= 7:
        assert refused.topic_id is None


def _old_creation(version: int, name: str, partitions: int, config: str, value: str) -> bytes:
    body = struct.pack(">i", 1) + string(name) + struct.pack(">ih", partitions, 1)
    body += struct.pack(">ii", 0, 1) + string(config) + string(value) + struct.pack(">i", 5000)
    return body + (b"\0" if version == 1 else b"")


async def delete_topics(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t")
    if version == 0:
        answer = await client.call(20, 0, struct.pack(">i", 1) + string("t") + struct.pack(">i", 5000))
        assert answer == struct.pack(">i", 1) + string("t") + struct.pack(">h", 0)
    else:
        if version < 6:
            reply = await client.ask(20, version, topic_names=("t",), timeout=SECONDS_5)
        else:
            state = nested(20, 6, "DeleteTopicState")(name="t", topic_id=None)
            reply = await client.ask(20, version, topics=(state,), timeout=SECONDS_5)
        assert reply.throttle_time == timedelta(0)
        (gone,) = reply.responses
        assert (gone.name, gone.error_code) == ("t", 0)
        if version >= 5:
            assert gone.error_message is None
        if version >= 6:
            assert gone.topic_id.bytes == topic.id
    assert harness.catalog.view.live("t") is None
    if version == 0:
        answer = await client.call(20, 0, struct.pack(">i", 1) + string("unknown") + struct.pack(">i", 5000))
        assert answer == struct.pack(">i", 1) + string("unknown") + struct.pack(">h", 3)
    elif version < 6:
        (refused,) = (await client.ask(20, version, topic_names=("unknown",), timeout=SECONDS_5)).responses
        assert (refused.name, refused.error_code) == ("unknown", 3)
    else:
        for name, topic_id, error in (("unknown", None, 3), (None, UNKNOWN_ID, 100), ("x", UNKNOWN_ID, 42)):
            state = nested(20, 6, "DeleteTopicState")(name=name, topic_id=topic_id)
            (refused,) = (await client.ask(20, version, topics=(state,), timeout=SECONDS_5)).responses
            assert (refused.name, refused.topic_id, refused.error_code) == (name, topic_id, error)


async def delete_records(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t", 2)
    harness.storage.partition(PartitionRef(topic="t", topic_id=topic.id, partition=0)).high_watermark = 7
    partition, records = nested(21, version, "DeleteRecordsPartition"), nested(21, version, "DeleteRecordsTopic")
    requested = (partition(partition_index=0, offset=-1), partition(partition_index=1, offset=9))
    unknown = records(name="unknown", partitions=(partition(partition_index=0, offset=0),))
    reply = await client.ask(21, version, topics=(records(name="t", partitions=requested), unknown), timeout=SECONDS_5)
    assert reply.throttle_time == timedelta(0)
    answers = [(each.partition_index, each.error_code, each.low_watermark) for each in reply.topics[0].partitions]
    assert answers == [(0, 0, 7), (1, 1, -1)]
    assert [each.error_code for each in reply.topics[1].partitions] == [3]


EXCHANGES: dict[int, Exchange] = {19: create_topics, 20: delete_topics, 21: delete_records}
