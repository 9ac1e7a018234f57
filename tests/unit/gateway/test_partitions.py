"""CreatePartitions, DescribeTopicPartitions and DescribeLogDirs: valid and invalid requests, and their replies."""

import re
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.gateway.asking import produce
from tests.support.gateway.exchanges import SECONDS_5, nested
from tests.support.gateway.harness import Client, batch, running_gateway
from tests.unit.gateway.test_topics import metadata


async def grow(client: Client, name: str, count: int, assignments: list[tuple[int, ...]] | None = None) -> Any:
    assigned = None
    if assignments is not None:
        assigned = tuple(nested(37, 3, "CreatePartitionsAssignment")(broker_ids=ids) for ids in assignments)
    topic = nested(37, 3, "CreatePartitionsTopic")(name=name, count=count, assignments=assigned)
    return (await client.ask(37, 3, topics=(topic,), timeout=SECONDS_5, validate_only=False)).results[0]


async def describe(
    client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[dict[str, Any], tuple[str, int] | None]:
    """Return the partitions or the error of each topic, and the next cursor."""
    at = None if cursor is None else nested(75, 0, "Cursor")(topic_name=cursor[0], partition_index=cursor[1])
    topics = tuple(nested(75, 0, "TopicRequest")(name=name) for name in names)
    reply = await client.ask(75, 0, topics=topics, response_partition_limit=limit, cursor=at)
    described = {
        topic.name: ErrorCode(topic.error_code).name
        if topic.error_code
        else [partition.partition_index for partition in topic.partitions]
        for topic in reply.topics
    }
    assert list(described) == [topic.name for topic in reply.topics]
    following = reply.next_cursor
    return described, None if following is None else (following.topic_name, following.partition_index)


async def test_new_partitions_are_listed_and_writable() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", 2)
        client = await harness.connect()
        refused = await produce(client, batch(b"x"), partition=3)
        assert refused.error_code == ErrorCode.unknown_topic_or_partition
        assert (await grow(client, "t", 4)).error_code == 0
        (listed,) = (await metadata(client, ["t"])).topics
        assert [partition.partition_index for partition in listed.partitions] == [0, 1, 2, 3]
        assert (await produce(client, batch(b"x"), partition=3)).error_code == 0


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, ErrorCode.invalid_partitions, "already has 2 partition"),
        (1, None, ErrorCode.invalid_partitions, "currently has 2 .* 1 would not be an increase"),
        (-1, None, ErrorCode.invalid_partitions, "would not be an increase"),
        (9, None, ErrorCode.invalid_partitions, "limit of 8"),
        (4, [(0,)], ErrorCode.invalid_replica_assignment, r"2 additional partition\(s\), but 1"),
        (4, [], ErrorCode.invalid_replica_assignment, "but 0"),
        (4, [(0,), ()], ErrorCode.invalid_replica_assignment, "an empty replica list"),
        (4, [(0, 0), (0, 1)], ErrorCode.invalid_replica_assignment, "the broker 0 more than once"),
        (4, [(0,), (7,)], ErrorCode.invalid_replica_assignment, "broker 7, but no such broker is registered"),
    ],
)
async def test_invalid_numbers_of_partitions_are_refused(
    count: int, assignments: list[tuple[int, ...]] | None, code: ErrorCode, message: str
) -> None:
    async with running_gateway(max_partitions_per_topic=8) as harness:
        await harness.topic("t", 2)
        answer = await grow(await harness.connect(), "t", count, assignments)
        assert answer.error_code == code
        assert re.search(message, answer.error_message)
        assert harness.catalog.view.by_name["t"].partitions == 2


async def test_a_topic_named_twice_is_not_grown() -> None:
    async with running_gateway() as harness:
        await harness.topic("t")
        topic = nested(37, 3, "CreatePartitionsTopic")(name="t", count=2, assignments=None)
        client = await harness.connect()
        reply = await client.ask(37, 3, topics=(topic, topic), timeout=SECONDS_5, validate_only=False)
        assert [(each.name, each.error_code) for each in reply.results] == [("t", ErrorCode.invalid_request)]
        assert harness.catalog.view.by_name["t"].partitions == 1


async def test_all_topics_are_described_in_order_across_pages() -> None:
    async with running_gateway() as harness:
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            await harness.topic(name, partitions)
        await harness.topic("gone")
        await harness.catalog.mark_deleting("gone")
        client = await harness.connect()
        assert await describe(client) == ({"a": [0, 1], "b": [0, 1, 2], "c": [0]}, None)
        assert await describe(client, limit=1) == ({"a": [0]}, ("a", 1))
        assert await describe(client, limit=0) == ({"a": [0]}, ("a", 1))
        assert await describe(client, limit=2) == ({"a": [0, 1]}, ("b", 0))
        assert await describe(client, limit=3, cursor=("a", 1)) == ({"a": [1], "b": [0, 1]}, ("b", 2))
        assert await describe(client, limit=3, cursor=("b", 2)) == ({"b": [2], "c": [0]}, None)
        assert await describe(client, cursor=("bb", 5)) == ({"c": [0]}, None)
        assert await describe(client, cursor=("b", 9)) == ({"b": [], "c": [0]}, None)


async def test_named_topics_are_described_once_and_from_the_cursor_on() -> None:
    async with running_gateway() as harness:
        await harness.topic("a", 2)
        await harness.topic("b", 2)
        client = await harness.connect()
        unknown = "unknown_topic_or_partition"
        assert await describe(client, "b", "nope", "a", "b") == ({"a": [0, 1], "b": [0, 1], "nope": unknown}, None)
        assert await describe(client, "a", "b", cursor=("b", 1)) == ({"b": [1]}, None)
        invalid = "invalid_request"
        assert await describe(client, "a", cursor=("b", 1)) == ({"a": invalid}, None)
        assert await describe(client, "a", cursor=("a", -1)) == ({"a": invalid}, None)
        assert list(harness.catalog.view.by_name) == ["a", "b"]


async def test_a_reply_has_a_bounded_number_of_partitions() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", 2500)
        client = await harness.connect()
        described, cursor = await describe(client, "t", limit=1_000_000)
        assert (len(described["t"]), cursor) == (2000, ("t", 2000))
        described, cursor = await describe(client, "t", cursor=cursor)
        assert (described["t"], cursor) == (list(range(2000, 2500)), None)


async def test_an_unknown_log_size_is_minus_one() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic("t", 2)
        harness.storage.moved[topic.id, 1] = ""
        (directory,) = (await (await harness.connect()).ask(35, 5, topics=None)).results
        sizes = [partition.partition_size for each in directory.topics for partition in each.partitions]
        assert sizes == [0, -1]
