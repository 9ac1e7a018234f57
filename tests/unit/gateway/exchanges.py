"""For every API and version that the gateway advertises: a request of that version, and what its reply must say.

Requests and replies go through kio's schemas, or, for what Kafka 4 dropped, through bytes written out here.
"""

import struct
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from kafscale.v1.common_pb2 import PartitionRef
from tests.unit.gateway.harness import Client, Harness, batch

Exchange = Callable[[Harness, Client, int], Awaitable[None]]
SECONDS_5 = timedelta(seconds=5)


def nested(api_key: int, version: int, name: str) -> Any:
    """A nested type of a request's schema."""
    module = __import__(load_request_schema(api_key, version).__module__, fromlist=[name])
    return getattr(module, name)


def name_or_id(version: int, by_id_from: int, topic_id: bytes, **named: str) -> dict[str, Any]:
    return {"topic_id": UUID(bytes=topic_id)} if version >= by_id_from else dict(named)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _read_string(body: bytes, position: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", body, position)
    return body[position + 2 : position + 2 + length].decode(), position + 2 + length


async def api_versions(harness: Harness, client: Client, version: int) -> None:
    values = {} if version < 3 else {"client_software_name": "test", "client_software_version": "1.0"}
    reply = await client.ask(18, version, **values)
    assert reply.error_code == 0
    ranges = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}
    assert ranges[18] == (0, 4)
    assert ranges[0] == (0, 13)


async def metadata(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t", 2)
    named: dict[str, Any] = {"name": "t"} | ({"topic_id": None} if version >= 10 else {})
    values: dict[str, Any] = {"topics": (nested(3, version, "MetadataRequestTopic")(**named),)}
    flags = (
        "allow_auto_topic_creation",
        "include_topic_authorized_operations",
        "include_cluster_authorized_operations",
    )
    values |= {flag: True for flag in flags if flag in load_request_schema(3, version).__dataclass_fields__}
    reply = await client.ask(3, version, **values)
    (broker,) = reply.brokers
    assert (broker.node_id, broker.host, broker.port) == (0, "127.0.0.1", harness.listeners[0].port)
    (shown,) = reply.topics
    assert (shown.error_code, shown.name) == (0, "t")
    assert [(p.error_code, p.partition_index, p.leader_id) for p in shown.partitions] == [(0, 0, 0), (0, 1, 0)]
    assert all(p.replica_nodes == p.isr_nodes == (0,) for p in shown.partitions)
    since: dict[int, Callable[[], bool]] = {
        1: lambda: (reply.controller_id, broker.rack, shown.is_internal) == (0, None, False),
        2: lambda: len(reply.cluster_id) == 22,
        3: lambda: reply.throttle_time == timedelta(0),
        5: lambda: all(p.offline_replicas == () for p in shown.partitions),
        7: lambda: all(p.leader_epoch == 1 for p in shown.partitions),
        8: lambda: shown.topic_authorized_operations == 3576,
        10: lambda: shown.topic_id.bytes == topic.id,
        13: lambda: reply.error_code == 0,
    }
    for first, holds in since.items():
        assert version < first or holds(), f"what version {first} added"
    assert getattr(reply, "cluster_authorized_operations", 8096) == 8096


async def produce(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t", message_timestamp_type="LogAppendTime")
    harness.storage.append_time_ms = 123_000
    records = batch(b"one", b"two")
    if version < 3:
        body = struct.pack(">hii", -1, 5000, 1) + _string("t") + struct.pack(">iii", 1, 0, len(records)) + records
        reply = _produce_reply(await client.call(0, version, body), version)
    else:
        partition = nested(0, version, "PartitionProduceData")(index=0, records=records)
        data = nested(0, version, "TopicProduceData")(
            partition_data=(partition,), **name_or_id(version, 13, topic.id, name="t")
        )
        reply = await client.ask(0, version, transactional_id=None, acks=-1, timeout=SECONDS_5, topic_data=(data,))
        if version >= 1:
            assert reply.throttle_time == timedelta(0)
        (answered,) = reply.responses
        assert (answered.topic_id.bytes == topic.id) if version >= 13 else (answered.name == "t")
        (reply,) = answered.partition_responses
        assert round(reply.log_append_time.timestamp() * 1000) == 123_000
    assert (reply.index, reply.error_code, reply.base_offset) == (0, 0, 0)
    if version >= 5:
        assert reply.log_start_offset == 0
    if version >= 8:
        assert (reply.record_errors, reply.error_message) == ((), None)
    assert len(harness.partition(topic).batches) == 1


def _produce_reply(body: bytes, version: int) -> Any:
    (topics,) = struct.unpack_from(">i", body)
    name, position = _read_string(body, 4)
    count, index, error, base = struct.unpack_from(">iihq", body, position)
    assert (topics, name, count) == (1, "t", 1)
    position += 18
    if version >= 2:
        assert struct.unpack_from(">q", body, position) == (123_000,)
        position += 8
    if version >= 1:
        assert struct.unpack_from(">i", body, position) == (0,)
        position += 4
    assert position == len(body)
    return SimpleNamespace(index=index, error_code=error, base_offset=base)


async def fetch(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t")
    await put(harness, client, batch(b"one", b"two"))
    partition = nested(1, version, "FetchPartition")(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    values: dict[str, Any] = {
        "max_wait": SECONDS_5,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": (
            nested(1, version, "FetchTopic")(partitions=(partition,), **name_or_id(version, 13, topic.id, topic="t")),
        ),
    }
    if version < 15:
        values["replica_id"] = -1
    if version >= 7:
        values |= {"session_id": 0, "session_epoch": 0, "forgotten_topics_data": ()}
    reply = await client.ask(1, version, **values)
    assert reply.throttle_time == timedelta(0)
    if version >= 7:
        assert reply.error_code == 0
        assert reply.session_id > 0
    (answered,) = reply.responses
    assert (answered.topic_id.bytes == topic.id) if version >= 13 else (answered.topic == "t")
    (got,) = answered.partitions
    assert (got.partition_index, got.error_code, got.high_watermark, got.last_stable_offset) == (0, 0, 2, 2)
    assert got.records == harness.partition(topic).batches[0][2]
    if version >= 5:
        assert got.log_start_offset == 0
    if version >= 11:
        assert got.preferred_read_replica == -1


async def put(harness: Harness, client: Client, records: bytes) -> None:
    partition = nested(0, 8, "PartitionProduceData")(index=0, records=records)
    data = nested(0, 8, "TopicProduceData")(name="t", partition_data=(partition,))
    reply = await client.ask(0, 8, transactional_id=None, acks=-1, timeout=SECONDS_5, topic_data=(data,))
    assert reply.responses[0].partition_responses[0].error_code == 0


async def list_offsets(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    await put(harness, client, batch(b"one", b"two"))
    if version == 0:
        body = struct.pack(">ii", -1, 1) + _string("t") + struct.pack(">iiqi", 1, 0, -1, 10)
        answer = await client.call(2, 0, body)
        assert answer == struct.pack(">i", 1) + _string("t") + struct.pack(">iihiqq", 1, 0, 0, 2, 2, 0)
        return
    partition = nested(2, version, "ListOffsetsPartition")(partition_index=0, timestamp=-1)
    values: dict[str, Any] = {
        "replica_id": -1,
        "topics": (nested(2, version, "ListOffsetsTopic")(name="t", partitions=(partition,)),),
    }
    if version >= 2:
        values["isolation_level"] = 0
    if version >= 10:
        values["timeout"] = SECONDS_5
    reply = await client.ask(2, version, **values)
    if version >= 2:
        assert reply.throttle_time == timedelta(0)
    (answered,) = reply.topics
    (got,) = answered.partitions
    assert (answered.name, got.partition_index, got.error_code, got.offset, got.timestamp) == ("t", 0, 0, 2, -1)
    if version >= 4:
        assert got.leader_epoch == 1


async def create_topics(harness: Harness, client: Client, version: int) -> None:
    if version < 2:
        body = struct.pack(">i", 1) + _string("new") + struct.pack(">ih", 3, 1)
        body += struct.pack(">ii", 0, 1) + _string("retention.ms") + _string("1000") + struct.pack(">i", 5000)
        body += b"\0" if version == 1 else b""
        answer = await client.call(19, version, body)
        expected = struct.pack(">i", 1) + _string("new") + struct.pack(">h", 0)
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


async def delete_topics(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t")
    if version == 0:
        answer = await client.call(20, 0, struct.pack(">i", 1) + _string("t") + struct.pack(">i", 5000))
        assert answer == struct.pack(">i", 1) + _string("t") + struct.pack(">h", 0)
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


async def delete_records(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t", 2)
    harness.storage.partition(PartitionRef(topic="t", topic_id=topic.id, partition=0)).committed_end = 7
    partition, records = nested(21, version, "DeleteRecordsPartition"), nested(21, version, "DeleteRecordsTopic")
    asked = (partition(partition_index=0, offset=-1), partition(partition_index=1, offset=9))
    unknown = records(name="unknown", partitions=(partition(partition_index=0, offset=0),))
    reply = await client.ask(21, version, topics=(records(name="t", partitions=asked), unknown), timeout=SECONDS_5)
    assert reply.throttle_time == timedelta(0)
    answers = [(each.partition_index, each.error_code, each.low_watermark) for each in reply.topics[0].partitions]
    assert answers == [(0, 0, 7), (1, 1, -1)]
    assert [each.error_code for each in reply.topics[1].partitions] == [3]


async def init_producer_id(harness: Harness, client: Client, version: int) -> None:
    had = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
    reply = await client.ask(22, version, transactional_id=None, transaction_timeout=SECONDS_5, **had)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 0, 0)
    assert reply.throttle_time == timedelta(0)


async def offset_for_leader_epoch(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    await put(harness, client, batch(b"one", b"two"))
    if version < 2:
        body = struct.pack(">i", 1) + _string("t") + struct.pack(">iii", 1, 0, 1)
        answer = await client.call(23, version, body)
        epoch = struct.pack(">i", 1) if version == 1 else b""
        expected = struct.pack(">i", 1) + _string("t") + struct.pack(">ihi", 1, 0, 0) + epoch + struct.pack(">q", 2)
        assert answer == expected
        return
    partition = nested(23, version, "OffsetForLeaderPartition")
    asked = (
        partition(partition=0, current_leader_epoch=1, leader_epoch=7),
        partition(partition=0, current_leader_epoch=-1, leader_epoch=1),
        partition(partition=1, current_leader_epoch=-1, leader_epoch=1),
    )
    replica = {"replica_id": -1} if version >= 3 else {}
    topic = nested(23, version, "OffsetForLeaderTopic")(topic="t", partitions=asked)
    reply = await client.ask(23, version, topics=(topic,), **replica)
    assert reply.throttle_time == timedelta(0)
    (answered,) = reply.topics
    assert answered.topic == "t"
    ends = [(each.partition, each.error_code, each.leader_epoch, each.end_offset) for each in answered.partitions]
    assert ends == [(0, 0, -1, -1), (0, 0, 1, 2), (1, 3, -1, -1)]


EXCHANGES: dict[int, Exchange] = {
    0: produce,
    1: fetch,
    2: list_offsets,
    3: metadata,
    18: api_versions,
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    22: init_producer_id,
    23: offset_for_leader_epoch,
}
