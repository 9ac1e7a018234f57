"""A gateway and two storage instances behind it, for tests of routing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from trio.testing import wait_all_tasks_blocked

from kafscale.metadata.topic_values import TopicInfo
from kafscale.records.batch import walk
from kafscale.v1.common_pb2 import PartitionRef
from tests.support.gateway.asking import fetch, fetch_body, parts
from tests.support.gateway.exchanges import nested
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import Client, Cluster, Harness, read_response, running_gateway

NOT_LEADER = ErrorCode.not_leader_or_follower
AFTER_APPEND = ErrorCode.not_enough_replicas_after_append
READERS = ("fetch", "list_offsets", "epoch_ends", "delete_records")


class Two:
    """A gateway, and two storage instances of which ``a`` owns the only partition of ``t``."""

    def __init__(self, harness: Harness, a: FakeStorage, b: FakeStorage, topic: TopicInfo) -> None:
        self.harness, self.a, self.b, self.topic = harness, a, b, topic

    def ref(self, partition: int = 0) -> PartitionRef:
        return PartitionRef(topic="t", topic_id=self.topic.id, partition=partition)

    async def own(self, run_id: str, epoch: int, partition: int = 0) -> None:
        await self.harness.cluster.own(self.topic, run_id, epoch=epoch, partition=partition)
        await settled()


async def settled() -> None:
    """Wait until nothing happens any more, including events of the metadata store."""
    await wait_all_tasks_blocked(0.02)


@asynccontextmanager
async def two_owners(partitions: int = 1, **settings: Any) -> AsyncIterator[Two]:
    cluster, a, b = Cluster(), FakeStorage(), FakeStorage()
    await cluster.add("a", a)
    await cluster.add("b", b)
    async with running_gateway(cluster=cluster, **settings) as harness:
        two = Two(harness, a, b, await harness.topic("t", partitions))
        await b.wait_until(lambda: bool(b.opened))
        for index in range(partitions):
            await two.own("ab"[index % 2], 1, index)
        yield two


def offsets(records: bytes) -> list[int]:
    return [header.base_offset for _, header in walk(records)]


async def read(client: Client, kind: str, *, epoch: int = -1) -> Any:
    """Send a request other than Produce about one partition, and return the partition's part of the reply."""
    if kind == "fetch":
        return parts(await fetch(client, {("t", 0): 0}, max_wait_ms=0, leader_epoch=epoch))[0]
    if kind == "list_offsets":
        requested = nested(2, 4, "ListOffsetsPartition")(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
        topic = nested(2, 4, "ListOffsetsTopic")(name="t", partitions=(requested,))
        return (await client.ask(2, 4, replica_id=-1, isolation_level=0, topics=(topic,))).topics[0].partitions[0]
    if kind == "epoch_ends":
        end = nested(23, 3, "OffsetForLeaderPartition")(partition=0, current_leader_epoch=epoch, leader_epoch=1)
        topic = nested(23, 3, "OffsetForLeaderTopic")(topic="t", partitions=(end,))
        return (await client.ask(23, 3, replica_id=-1, topics=(topic,))).topics[0].partitions[0]
    deleted = nested(21, 1, "DeleteRecordsPartition")(partition_index=0, offset=0)
    topic = nested(21, 1, "DeleteRecordsTopic")(name="t", partitions=(deleted,))
    reply = await client.ask(21, 1, topics=(topic,), timeout=timedelta(seconds=5))
    return reply.topics[0].partitions[0]


async def parked(two: Two, client: Client, *, max_wait_ms: int = 60_000) -> None:
    await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=max_wait_ms))
    await two.a.wait_until(lambda: bool(two.a.fetches))
    await settled()


async def received(client: Client) -> Any:
    (part,) = parts(read_response(1, 12, (await client.receive())[1]))
    return part
