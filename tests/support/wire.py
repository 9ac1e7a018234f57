"""Facts that no client reports: the producer of a batch, and each gateway's view of a topic."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from kafscale.records.batch import peek
from tests.support.gateway.asking import fetch_body
from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import Client, read_response

FETCH = 1
METADATA = 3
VERSION = 4


def producer_id(bootstrap: str, topic: str, partition: int) -> int:
    """Return the producer id of a partition's first batch, or -1 without an idempotent producer."""
    return trio.run(_producer_id, bootstrap.partition(",")[0], topic, partition)


async def _producer_id(address: str, topic: str, partition: int) -> int:
    async with _connected(address) as client:
        await client.send(FETCH, VERSION, fetch_body({(topic, partition): 0}, version=VERSION))
        _, body = await client.receive()
    (answered,) = read_response(FETCH, VERSION, body).responses
    (read,) = answered.partitions
    return peek(read.records).producer_id


def gateways_partitions(bootstrap: str, topic: str) -> set[int]:
    """Return the set of partition counts that the gateways report: one number if they agree, 0 for an unknown topic."""
    return {trio.run(_partitions_of, address, topic) for address in bootstrap.split(",")}


async def _partitions_of(address: str, topic: str) -> int:
    asked = (nested(METADATA, VERSION, "MetadataRequestTopic")(name=topic),)
    async with _connected(address) as client:
        (found,) = (await client.ask(METADATA, VERSION, topics=asked, allow_auto_topic_creation=False)).topics
    return len(found.partitions)


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Client]:
    host, port = address.split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield Client(stream)
