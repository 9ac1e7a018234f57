"""What no client tells: who produced a batch."""

import trio

from kafscale.records.batch import peek
from tests.unit.gateway.asking import fetch_body
from tests.unit.gateway.harness import Client, read_response

FETCH = 1
VERSION = 4


def producer_id(bootstrap: str, topic: str, partition: int) -> int:
    """The producer id of a partition's first batch, -1: it was not an idempotent producer's."""
    return trio.run(_producer_id, bootstrap.partition(",")[0], topic, partition)


async def _producer_id(address: str, topic: str, partition: int) -> int:
    host, port = address.split(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        client = Client(stream)
        await client.send(FETCH, VERSION, fetch_body({(topic, partition): 0}, version=VERSION))
        _, body = await client.receive()
    (answered,) = read_response(FETCH, VERSION, body).responses
    (read,) = answered.partitions
    return peek(read.records).producer_id
