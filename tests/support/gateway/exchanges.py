"""For every API and version that the gateway advertises: a request of that version, and checks of the reply.

Requests and replies use kio's schemas, or explicit bytes for versions that Kafka 4 removed.
"""

import struct
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from tests.support.gateway.harness import Client, Harness, batch

Exchange = Callable[[Harness, Client, int], Awaitable[None]]
SECONDS_5 = timedelta(seconds=5)
METADATA_FLAGS = (
    "allow_auto_topic_creation",
    "include_topic_authorized_operations",
    "include_cluster_authorized_operations",
)
UNKNOWN_ID = UUID(bytes=b"no such topic id")


def nested(api_key: int, version: int, name: str) -> Any:
    """Return a nested type of a request's schema."""
    module = __import__(load_request_schema(api_key, version).__module__, fromlist=[name])
    return getattr(module, name)


def name_or_id(version: int, by_id_from: int, topic_id: bytes, **named: str) -> dict[str, Any]:
    return {"topic_id": UUID(bytes=topic_id)} if version >= by_id_from else dict(named)


def string(text: str) -> bytes:
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
    if version >= 3:
        refused = await client.ask(18, version, client_software_name="a b", client_software_version="1.0")
        assert (refused.error_code, refused.api_keys) == (42, ())


async def metadata(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t", 2)
    named: dict[str, Any] = {"name": "t"} | ({"topic_id": None} if version >= 10 else {})
    values: dict[str, Any] = {"topics": (nested(3, version, "MetadataRequestTopic")(**named),)}
    values |= {flag: True for flag in METADATA_FLAGS if flag in load_request_schema(3, version).__dataclass_fields__}
    reply = await client.ask(3, version, **values)
    (broker,) = reply.brokers
    assert (broker.node_id, broker.host, broker.port) == (0, "127.0.0.1", harness.listeners[0].port)
    (topic_part,) = reply.topics
    assert (topic_part.error_code, topic_part.name) == (0, "t")
    assert [(p.error_code, p.partition_index, p.leader_id) for p in topic_part.partitions] == [(0, 0, 0), (0, 1, 0)]
    assert all(p.replica_nodes == p.isr_nodes == (0,) for p in topic_part.partitions)
    since: dict[int, Callable[[], bool]] = {
        1: lambda: (reply.controller_id, broker.rack, topic_part.is_internal) == (0, None, False),
        2: lambda: len(reply.cluster_id) == 22,
        3: lambda: reply.throttle_time == timedelta(0),
        5: lambda: all(p.offline_replicas == () for p in topic_part.partitions),
        7: lambda: all(p.leader_epoch == 1 for p in topic_part.partitions),
        8: lambda: topic_part.topic_authorized_operations == 3576,
        10: lambda: topic_part.topic_id.bytes == topic.id,
        13: lambda: reply.error_code == 0,
    }
    for first, holds in since.items():
        assert version < first or holds(), f"added in version {first}"
    assert getattr(reply, "cluster_authorized_operations", 8096) == 8096
    await _refused_metadata(client, version)


async def _refused_metadata(client: Client, version: int) -> None:
    requested: list[tuple[dict[str, Any], int]] = [({"name": "a b"}, 17)]
    if version >= 4:
        requested.append(({"name": "unknown"}, 3))
    if version >= 10:
        requested = [({**named, "topic_id": None}, error) for named, error in requested]
        # Before version 12 a topic cannot be requested by its id.
        named = {"name": None if version >= 12 else "t", "topic_id": UNKNOWN_ID}
        requested.append((named, 100 if version >= 12 else 42))
    for named, error in requested:
        values: dict[str, Any] = {"topics": (nested(3, version, "MetadataRequestTopic")(**named),)}
        fields = load_request_schema(3, version).__dataclass_fields__
        values |= {flag: False for flag in METADATA_FLAGS if flag in fields}
        (refused,) = (await client.ask(3, version, **values)).topics
        assert (refused.error_code, refused.partitions) == (error, ())
        assert refused.name == named["name"]


async def produce(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t", message_timestamp_type="LogAppendTime")
    harness.storage.append_time_ms = 123_000
    records = batch(b"one", b"two")
    appended = await _produced(client, version, "t", topic.id, 0, records)
    assert (appended.index, appended.error_code, appended.base_offset) == (0, 0, 0)
    assert version < 2 or _milliseconds(appended.log_append_time) == 123_000
    if version >= 5:
        assert appended.log_start_offset == 0
    if version >= 8:
        assert (appended.record_errors, appended.error_message) == ((), None)
    assert len(harness.partition(topic).batches) == 1
    damaged = records[:-1] + bytes([records[-1] ^ 1])
    for name, index, sent, error in (
        ("unknown", 0, records, 100 if version >= 13 else 3),
        ("t", 9, records, 3),
        ("t", 0, damaged, 2),
    ):
        topic_id = topic.id if name == "t" else UNKNOWN_ID.bytes
        refused = await _produced(client, version, name, topic_id, index, sent)
        assert (refused.index, refused.error_code, refused.base_offset) == (index, error, -1)
        assert version < 2 or _milliseconds(refused.log_append_time) == -1
        if version >= 8:
            assert (refused.error_message is not None) == (error == 2)
    assert len(harness.partition(topic).batches) == 1


def _milliseconds(time: datetime | None) -> int:
    return -1 if time is None else round(time.timestamp() * 1000)


async def _produced(client: Client, version: int, name: str, topic_id: bytes, index: int, records: bytes) -> Any:
    """Produce to one partition and return its part of the reply."""
    if version < 3:
        body = struct.pack(">hii", -1, 5000, 1) + string(name) + struct.pack(">iii", 1, index, len(records)) + records
        return _old_produced(await client.call(0, version, body), version, name)
    partition = nested(0, version, "PartitionProduceData")(index=index, records=records)
    data = nested(0, version, "TopicProduceData")(
        partition_data=(partition,), **name_or_id(version, 13, topic_id, name=name)
    )
    reply = await client.ask(0, version, transactional_id=None, acks=-1, timeout=SECONDS_5, topic_data=(data,))
    assert reply.throttle_time == timedelta(0)
    (answered,) = reply.responses
    assert (answered.topic_id.bytes == topic_id) if version >= 13 else (answered.name == name)
    (result,) = answered.partition_responses
    return result


def _old_produced(body: bytes, version: int, topic: str) -> Any:
    (topics,) = struct.unpack_from(">i", body)
    name, position = _read_string(body, 4)
    count, index, error, base = struct.unpack_from(">iihq", body, position)
    assert (topics, name, count) == (1, topic, 1)
    position += 18
    time: datetime | None = None
    if version >= 2:
        (stamped,) = struct.unpack_from(">q", body, position)
        time = None if stamped == -1 else datetime.fromtimestamp(stamped / 1000, UTC)
        position += 8
    if version >= 1:
        assert struct.unpack_from(">i", body, position) == (0,)
        position += 4
    assert position == len(body)
    return SimpleNamespace(index=index, error_code=error, base_offset=base, log_append_time=time)


async def fetch(harness: Harness, client: Client, version: int) -> None:
    topic = await harness.topic("t")
    await put(harness, client, batch(b"one", b"two"))
    reply = await _fetched(client, version, "t", topic.id, 0, 1)
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
    for name, index, offset, error in (
        ("unknown", 0, 0, 100 if version >= 13 else 3),
        ("t", 9, 0, 3),
        ("t", 0, 99, 1),
    ):
        topic_id = topic.id if name == "t" else UNKNOWN_ID.bytes
        reply = await _fetched(client, version, name, topic_id, index, offset)
        ((refused,),) = (each.partitions for each in reply.responses)
        assert (refused.partition_index, refused.error_code) == (index, error)
        assert (refused.high_watermark, refused.last_stable_offset, refused.records) == (-1, -1, b"")
    if version >= 7:
        known = (await _fetched(client, version, "t", topic.id, 0, 0)).session_id
        for session_id, error in ((0, 70), (known ^ 1, 70), (known, 71)):
            reply = await _fetched(client, version, "t", topic.id, 0, 0, session_id=session_id, session_epoch=2)
            assert (reply.error_code, reply.session_id, reply.responses) == (error, 0, ())


async def _fetched(
    client: Client,
    version: int,
    name: str,
    topic_id: bytes,
    index: int,
    offset: int,
    *,
    session_id: int = 0,
    session_epoch: int = 0,
) -> Any:
    """Fetch one partition."""
    partition = nested(1, version, "FetchPartition")(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
    requested = nested(1, version, "FetchTopic")(
        partitions=(partition,), **name_or_id(version, 13, topic_id, topic=name)
    )
    values: dict[str, Any] = {"max_wait": SECONDS_5, "min_bytes": 1, "max_bytes": 1 << 20, "topics": (requested,)}
    if version < 15:
        values["replica_id"] = -1
    if version >= 7:
        values |= {"session_id": session_id, "session_epoch": session_epoch, "forgotten_topics_data": ()}
    reply = await client.ask(1, version, **values)
    assert reply.throttle_time == timedelta(0)
    return reply


async def put(harness: Harness, client: Client, records: bytes) -> None:
    partition = nested(0, 8, "PartitionProduceData")(index=0, records=records)
    data = nested(0, 8, "TopicProduceData")(name="t", partition_data=(partition,))
    reply = await client.ask(0, 8, transactional_id=None, acks=-1, timeout=SECONDS_5, topic_data=(data,))
    assert reply.responses[0].partition_responses[0].error_code == 0


async def list_offsets(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    await put(harness, client, batch(b"one", b"two"))
    # The last one: timestamp -3 is valid since version 7.
    refusals = (("unknown", 0, -1, 3), ("t", 9, -1, 3), *((("t", 0, -3, 35),) if version < 7 else ()))
    if version == 0:
        for name, index, timestamp, error in (("t", 0, -1, 0), *refusals):
            body = struct.pack(">ii", -1, 1) + string(name) + struct.pack(">iiqi", 1, index, timestamp, 10)
            answer = await client.call(2, 0, body)
            offsets = struct.pack(">i", 0) if error else struct.pack(">iqq", 2, 2, 0)
            assert answer == struct.pack(">i", 1) + string(name) + struct.pack(">iih", 1, index, error) + offsets
        return
    got = await _listed(client, version, "t", 0, -1)
    assert (got.error_code, got.offset, got.timestamp) == (0, 2, -1)
    if version >= 4:
        assert got.leader_epoch == 1
    for name, index, timestamp, error in refusals:
        refused = await _listed(client, version, name, index, timestamp)
        assert (refused.error_code, refused.offset, refused.timestamp) == (error, -1, -1)


async def _listed(client: Client, version: int, name: str, index: int, timestamp: int) -> Any:
    """Return the ListOffsets result of one partition."""
    partition = nested(2, version, "ListOffsetsPartition")(partition_index=index, timestamp=timestamp)
    values: dict[str, Any] = {
        "replica_id": -1,
        "topics": (nested(2, version, "ListOffsetsTopic")(name=name, partitions=(partition,)),),
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
    assert (answered.name, got.partition_index) == (name, index)
    return got


async def init_producer_id(harness: Harness, client: Client, version: int) -> None:
    had = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
    reply = await client.ask(22, version, transactional_id=None, transaction_timeout=SECONDS_5, **had)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (0, 0, 0)
    assert reply.throttle_time == timedelta(0)
    refused = await client.ask(22, version, transactional_id="x", transaction_timeout=SECONDS_5, **had)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (53, -1, -1)


async def offset_for_leader_epoch(harness: Harness, client: Client, version: int) -> None:
    await harness.topic("t")
    await put(harness, client, batch(b"one", b"two"))
    if version < 2:
        for name, index, error, epoch, end in (("t", 0, 0, 1, 2), ("unknown", 0, 3, -1, -1), ("t", 9, 3, -1, -1)):
            body = struct.pack(">i", 1) + string(name) + struct.pack(">iii", 1, index, 1)
            answer = await client.call(23, version, body)
            epoch_field = struct.pack(">i", epoch) if version == 1 else b""
            expected = struct.pack(">i", 1) + string(name) + struct.pack(">ihi", 1, error, index)
            assert answer == expected + epoch_field + struct.pack(">q", end)
        return
    partition = nested(23, version, "OffsetForLeaderPartition")
    requested = (
        partition(partition=0, current_leader_epoch=1, leader_epoch=7),
        partition(partition=0, current_leader_epoch=-1, leader_epoch=1),
        partition(partition=1, current_leader_epoch=-1, leader_epoch=1),
    )
    replica = {"replica_id": -1} if version >= 3 else {}
    topic = nested(23, version, "OffsetForLeaderTopic")(topic="t", partitions=requested)
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
    22: init_producer_id,
    23: offset_for_leader_epoch,
}
