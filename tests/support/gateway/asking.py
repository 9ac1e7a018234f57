"""Helpers for the requests that many tests send."""

import struct
from datetime import timedelta
from typing import Any

from trio.testing import wait_all_tasks_blocked

from kafscale.kafka.fetch import FLEXIBLE_FROM
from kafscale.metadata.topic_values import TopicInfo
from tests.support.gateway.exchanges import name_or_id, nested
from tests.support.gateway.harness import Client, read_response, request

PRODUCE_VERSION = 9
FETCH_VERSION = FLEXIBLE_FROM


def produce_body(
    records: dict[tuple[str, int], bytes | None],
    *,
    acks: int = -1,
    timeout_ms: int = 5000,
    version: int = PRODUCE_VERSION,
    transactional_id: str | None = None,
    topic_id: bytes = b"",
) -> bytes:
    """Build a Produce request with one entry for each topic and partition."""
    topics = tuple(
        nested(0, version, "TopicProduceData")(
            partition_data=(nested(0, version, "PartitionProduceData")(index=index, records=data),),
            **name_or_id(version, 13, topic_id, name=name),
        )
        for (name, index), data in records.items()
    )
    timeout = timedelta(milliseconds=timeout_ms)
    return request(0, version, transactional_id=transactional_id, acks=acks, timeout=timeout, topic_data=topics)


async def produce(
    client: Client, records: bytes | None, *, topic: str = "t", partition: int = 0, **options: Any
) -> Any:
    """Produce to one partition and return its part of the reply."""
    version = options.get("version", PRODUCE_VERSION)
    await client.send(0, version, produce_body({(topic, partition): records}, **options))
    return await produced(client, version)


async def send_most_of(
    client: Client, records: bytes, *, partition: int = 0, timeout_ms: int = 5000, except_last: int = 1
) -> bytes:
    """Send a Produce request except its last bytes, and return those."""
    body = produce_body({("t", partition): records}, timeout_ms=timeout_ms)
    header = struct.pack(">hhih4sb", 0, PRODUCE_VERSION, 1, 4, b"test", 0)
    client.expect(1, 0, PRODUCE_VERSION)
    frame = struct.pack(">i", len(header) + len(body)) + header + body
    await client.stream.send_all(frame[:-except_last])
    await wait_all_tasks_blocked(0.02)
    return frame[-except_last:]


async def produced(client: Client, version: int = PRODUCE_VERSION) -> Any:
    """Receive the reply to a Produce of one partition."""
    _, body = await client.receive()
    (topic,) = read_response(0, version, body).responses
    (partition,) = topic.partition_responses
    return partition


def fetch_body(
    partitions: dict[tuple[str, int], int],
    *,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 5000,
    version: int = FETCH_VERSION,
    session_id: int = 0,
    session_epoch: int = -1,
    isolation_level: int = 0,
    topics: dict[str, TopicInfo] | None = None,
    leader_epoch: int = -1,
    forgotten: dict[str, tuple[int, ...]] | None = None,
) -> bytes:
    """Build a Fetch request from offsets by topic and partition. ``forgotten`` are partitions by topic."""
    requested = tuple(
        nested(1, version, "FetchTopic")(
            partitions=(
                nested(1, version, "FetchPartition")(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=partition_max_bytes,
                    **({"current_leader_epoch": leader_epoch} if version >= 9 else {}),
                ),
            ),
            **name_or_id(version, 13, topics[name].id if topics else b"", topic=name),
        )
        for (name, index), offset in partitions.items()
    )
    values: dict[str, Any] = {
        "max_wait": timedelta(milliseconds=max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "topics": requested,
    }
    if version < 15:
        values["replica_id"] = -1
    if version >= 7:
        forgotten_topics = tuple(
            nested(1, version, "ForgottenTopic")(
                partitions=indexes, **name_or_id(version, 13, topics[name].id if topics else b"", topic=name)
            )
            for name, indexes in (forgotten or {}).items()
        )
        values |= {"session_id": session_id, "session_epoch": session_epoch, "forgotten_topics_data": forgotten_topics}
    return request(1, version, **values)


async def fetch(client: Client, partitions: dict[tuple[str, int], int], **options: Any) -> Any:
    """Fetch and return the whole reply."""
    version = options.get("version", FETCH_VERSION)
    return read_response(1, version, await client.call(1, version, fetch_body(partitions, **options)))


def parts(reply: Any) -> list[Any]:
    """Return the partitions of a Fetch reply, in order."""
    return [partition for topic in reply.responses for partition in topic.partitions]
