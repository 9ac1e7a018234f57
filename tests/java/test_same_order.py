"""Apache Kafka and KafScale give pipelined requests on one connection the same view of each other."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.java.against import answer, encoded, plain
from tests.servers.apache_kafka import apache_kafka
from tests.support.broker import KafscaleBroker
from tests.support.gateway.asking import fetch_body, produce
from tests.support.gateway.harness import Client, batch, read_response

GROUP, TOPIC = "g", "t"
LOOKS = 10


@pytest.fixture(scope="module", params=["Apache Kafka", "KafScale"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("order")
    if request.param == "KafScale":
        broker = KafscaleBroker(directory, {"KAFSCALE_BROKER_ID": "1"})
        try:
            yield broker.bootstrap
        finally:
            broker.stop()
        return
    with apache_kafka(directory, heap="512m") as kafka:
        yield kafka.bootstrap


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Client]:
    host, _, port = bootstrap.partition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield Client(stream)


async def ask(client: Client, api_key: int, version: int, values: dict[str, Any]) -> Any:
    await client.send(api_key, version, encoded(api_key, version, values))
    return await received(client, api_key, version)


async def received(client: Client, api_key: int, version: int) -> Any:
    with trio.fail_after(60):
        frame = b""
        while not frame:
            try:
                _, frame = await client.receive()
            except trio.TooSlowError:
                continue
    return plain(read_response(api_key, version, frame))


async def records(bootstrap: str, client: Client, topic: str, count: int) -> None:
    """Create a topic with batches. The broker needs a moment until it leads the partition."""
    config = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    values = {"topics": [config], "timeout": timedelta(seconds=30), "validate_only": False}
    await answer(bootstrap, 19, 5, values)
    for _ in range(count):
        while (await produce(client, batch(b"v"), topic=topic)).error_code != 0:  # noqa: ASYNC110  nothing tells it
            await trio.sleep(0.1)


def test_list_offsets_after_a_delete_records_sees_its_effect(bootstrap: str) -> None:
    async def pipelined() -> tuple[Any, Any]:
        async with connected(bootstrap) as client:
            await records(bootstrap, client, "deleted", 3)
            partition = {"partition_index": 0, "offset": 2}
            deletion = {"topics": [{"name": "deleted", "partitions": [partition]}], "timeout": timedelta()}
            look = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
            offsets = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "deleted", "partitions": [look]}]}
            await client.send(21, 1, encoded(21, 1, deletion))
            await client.send(2, 5, encoded(2, 5, offsets))
            return await received(client, 21, 1), await received(client, 2, 5)

    deleted, listed = trio.run(pipelined)
    (partition,) = deleted["topics"][0]["partitions"]
    assert (partition["error_code"], partition["low_watermark"]) == (0, 2), "also with a timeout of 0"
    assert listed["topics"][0]["partitions"][0]["offset"] == 2


def test_a_commit_waits_for_an_earlier_parked_fetch(bootstrap: str) -> None:
    async def committed(client: Client) -> int:
        asked = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
        while True:
            reply = await ask(client, 9, 5, asked)
            if not reply["error_code"]:
                return int(reply["topics"][0]["partitions"][0]["committed_offset"])
            await trio.sleep(0.1)

    async def pipelined() -> tuple[list[int], int]:
        async with connected(bootstrap) as client, connected(bootstrap) as other:
            await records(bootstrap, other, TOPIC, 1)
            while (await ask(other, 10, 2, {"key": GROUP, "key_type": 0}))["error_code"]:  # noqa: ASYNC110  nothing tells it
                await trio.sleep(0.1)
            before = [await committed(other)]
            await client.send(1, 12, fetch_body({(TOPIC, 0): 1}, max_wait_ms=60_000))
            offset = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1}
            topics = [{"name": TOPIC, "partitions": [offset | {"committed_metadata": ""}]}]
            values = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
            await client.send(8, 6, encoded(8, 6, values))
            before += [await committed(other) for _ in range(LOOKS)]
            await produce(other, batch(b"v"), topic=TOPIC)
            await received(client, 1, 12)
            reply = await received(client, 8, 6)
            assert reply["topics"][0]["partitions"][0]["error_code"] == 0
            return before, await committed(other)

    before, after = trio.run(pipelined)
    assert (set(before), after) == ({-1}, 7)
