"""Requests of one connection take effect in order, as in Kafka."""

import socket
import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from kafscale.v1 import coordinator_pb2 as pb
from tests.support.gateway import group_asking as asking
from tests.support.gateway.asking import fetch_body, parts, produce, produce_body, produced
from tests.support.gateway.exchanges import nested
from tests.support.gateway.group_asking import commit, commit_values, fetch_values, join_values, known_in
from tests.support.gateway.harness import Client, batch, read_response, request, running_gateway

Pipelined = tuple[int, int, dict[str, Any]]
"""A request: API, version, values."""


def delete_records(offset: int, timeout_seconds: int = 5) -> Pipelined:
    partition = nested(21, 1, "DeleteRecordsPartition")(partition_index=0, offset=offset)
    topics = (nested(21, 1, "DeleteRecordsTopic")(name="t", partitions=(partition,)),)
    return 21, 1, {"topics": topics, "timeout": timedelta(seconds=timeout_seconds)}


def list_offsets(timestamp: int) -> Pipelined:
    partition = nested(2, 5, "ListOffsetsPartition")(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    topic = nested(2, 5, "ListOffsetsTopic")(name="t", partitions=(partition,))
    return 2, 5, {"replica_id": -1, "isolation_level": 0, "topics": (topic,)}


def create_partitions(count: int) -> Pipelined:
    topic = nested(37, 1, "CreatePartitionsTopic")(name="t", count=count, assignments=None)
    return 37, 1, {"topics": (topic,), "timeout": timedelta(seconds=5), "validate_only": False}


def metadata(*names: str, create: bool = False) -> Pipelined:
    topics = tuple(nested(3, 4, "MetadataRequestTopic")(name=name) for name in names or ("t",))
    return 3, 4, {"topics": topics, "allow_auto_topic_creation": create}


def delete_topics() -> Pipelined:
    return 20, 3, {"topic_names": ("t",), "timeout": timedelta(seconds=5)}


OFFSET_OF: Callable[[Any], Any] = lambda reply: reply.topics[0].partitions[0].offset  # noqa: E731
CASES: dict[str, tuple[Pipelined, Pipelined, Callable[[Any], Any], Any]] = {
    "the log start after DeleteRecords": (delete_records(2), list_offsets(-2), OFFSET_OF, 2),
    "partitions after CreatePartitions": (
        create_partitions(3),
        metadata(),
        lambda reply: len(reply.topics[0].partitions),
        3,
    ),
    "no topic after DeleteTopics": (delete_topics(), metadata(), lambda reply: int(reply.topics[0].error_code), 3),
    "a topic after Metadata that creates it": (
        metadata("t", "new", create=True),
        metadata("new"),
        lambda reply: [(int(topic.error_code), len(topic.partitions)) for topic in reply.topics],
        [(0, 1)],
    ),
    "offsets after OffsetCommit": (
        (8, 6, commit_values(6, {"t": {0: (7, "")}})),
        (9, 7, fetch_values(7, {"g": {"t": (0,)}})),
        lambda reply: reply.topics[0].partitions[0].committed_offset,
        7,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_pipelined_request_sees_the_changes_of_the_previous_one(case: str) -> None:
    change, look, seen, expected = CASES[case]
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        for _ in range(3):
            await produce(client, batch(b"v"))
        for key, version, values in (change, look):
            await client.send(key, version, request(key, version, **values))
        await client.receive()
        key, version, _ = look
        assert seen(read_response(key, version, (await client.receive())[1])) == expected


async def test_offsets_requested_after_records_include_them() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"v")}))
        key, version, values = list_offsets(-1)
        await client.send(key, version, request(key, version, **values))
        await harness.storage.wait_until(lambda: bool(harness.storage.appends))
        await wait_all_tasks_blocked(0.02)
        harness.storage.commit(harness.partition(topic))
        assert (await produced(client)).base_offset == 0
        assert OFFSET_OF(read_response(key, version, (await client.receive())[1])) == 1


async def test_a_parked_fetch_delays_changes_but_no_reads() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client, other = await harness.connect(), await harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await client.send(8, 6, request(8, 6, **commit_values(6, {"t": {0: (1, "")}})))
        await harness.storage.wait_until(lambda: len(harness.storage.fetches) == 2)
        await wait_all_tasks_blocked(0.02)
        assert not harness.coordinator.requests
        await commit(other, {"t": {0: (9, "")}})
        assert (await produce(other, batch(b"v"))).error_code == 0
        for _ in range(2):
            assert parts(read_response(1, 12, (await client.receive())[1]))[0].records
        await client.receive()
        (known,) = await asking.fetch(other, 7, {"g": {"t": (0,)}})
        assert asking.offsets_of(known) == [(0, 1, "", 0)]
        assert topic.partitions == 1


@pytest.mark.parametrize(
    ("requested", "waits"),
    [
        (metadata("t", "new", create=True), True),
        (metadata("t", create=True), False),
        (metadata("new", create=False), False),
        (metadata("__consumer_offsets", "no name", create=True), False),
        ((3, 4, {"topics": None, "allow_auto_topic_creation": True}), False),
    ],
    ids=["creates", "exists", "may not create", "cannot create", "all"],
)
async def test_metadata_waits_for_a_parked_fetch_only_if_it_creates_a_topic(requested: Pipelined, waits: bool) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client, other = await harness.connect(), await harness.connect()
        key, version, values = requested
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await client.send(key, version, request(key, version, **values))
        await harness.storage.wait_until(lambda: len(harness.storage.fetches) == 1)
        await wait_all_tasks_blocked(0.02)
        assert (key not in harness.parts.counters.seconds, harness.catalog.view.live("new")) == (waits, None)
        await produce(other, batch(b"v"))
        for _ in range(2):
            await client.receive()
        assert (harness.catalog.view.live("new") is not None) == waits


async def test_a_join_that_waits_for_other_members_delays_later_requests() -> None:
    async with running_gateway() as harness:
        first, second = await harness.connect(), await harness.connect()
        member_id, generation = await asking.stable(first)
        await second.send(11, 3, request(11, 3, **join_values(3)))
        beat = known_in(12, 3, group_id="g", generation_id=generation, member_id=member_id, group_instance_id=None)
        await second.send(12, 3, request(12, 3, **beat))
        await harness.coordinator.wait_until(lambda: bool(harness.coordinator.requests_of(pb.JoinGroupRequest)[1:]))
        await wait_all_tasks_blocked(0.02)
        assert not harness.coordinator.requests_of(pb.HeartbeatRequest)
        await first.send(11, 3, request(11, 3, **join_values(3, member_id)))
        for client in (first, second, second):
            await client.receive()
        assert harness.coordinator.requests_of(pb.HeartbeatRequest)


async def test_produce_requests_do_not_wait_for_replies_to_earlier_ones() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic()
        client = await harness.connect()
        for _ in range(5):
            await client.send(0, 9, produce_body({("t", 0): batch(b"v")}))
        await harness.storage.wait_until(lambda: sum(len(m.appends) for m in harness.storage.appends) == 5)
        harness.storage.commit(harness.partition(topic))
        assert [(await produced(client)).base_offset for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_received_requests_are_acknowledged_to_the_clients_kernel_before_the_response() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        for _ in range(3):  # then the kernel expects responses, with which it could send acknowledgements
            await produce(client, batch(b"a"))
        harness.storage.auto_commit = False
        await client.send(0, 9, produce_body({("t", 0): batch(b"b")}))
        await harness.storage.wait_until(lambda: len(harness.storage.appends) == 4)
        assert _unacknowledged(client) == 0


def _unacknowledged(client: Client) -> int:
    """Return how many sent segments are not acknowledged (``tcpi_unacked`` of Linux's ``struct tcp_info``)."""
    (number,) = struct.unpack_from("24xI", client.stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28))
    assert isinstance(number, int)
    return number


async def test_delete_records_succeeds_with_a_timeout_of_zero() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        for _ in range(3):
            await produce(client, batch(b"v"))
        key, version, values = delete_records(2, timeout_seconds=0)
        (partition,) = (await client.ask(key, version, **values)).topics[0].partitions
        assert (partition.error_code, partition.low_watermark) == (0, 2)
