"""Live owners that do not answer, or answer as another service. They do not delay others for long."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.errors import Refused
from kafscale.v1.storage_pb2 import LogSizesReply, LogSizesRequest
from services.gateway.owners.errors import OVERLOADED
from tests.support.gateway.asking import fetch, fetch_body, parts, produce, produce_body, produced, send_most_of
from tests.support.gateway.exchanges import nested
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import Client, Cluster, batch, read_response, running_gateway
from tests.unit.gateway.two_owners import NOT_LEADER, READERS, Two, offsets, parked, read, received, settled, two_owners


async def test_a_silent_owner_delays_records_of_others_only_for_the_grace_period() -> None:
    async with two_owners(2, owner_grace_ms=100) as two:
        client = await two.harness.connect()
        for index in range(2):
            assert (await produce(client, batch(b"v"), partition=index)).error_code == 0
        two.b.fetch_gate = trio.Event()
        first, second = parts(await fetch(client, {("t", 0): 0, ("t", 1): 0}))
        assert (first.error_code, offsets(first.records)) == (0, [0])
        assert (second.error_code, second.records or b"", second.high_watermark) == (NOT_LEADER, b"", -1)
        two.b.fetch_gate.set()
        first, second = parts(await fetch(client, {("t", 0): 1, ("t", 1): 0}))
        assert (second.error_code, offsets(second.records)) == (0, [0]), "no record is skipped"


async def test_an_owner_that_becomes_silent_delays_others_only_for_the_grace_period() -> None:
    async with two_owners(2, owner_grace_ms=100) as two:
        client, producer = await two.harness.connect(), await two.harness.connect()
        body = fetch_body({("t", 0): 0, ("t", 1): 0}, min_bytes=1 << 16, max_wait_ms=60_000)
        await client.send(1, 12, body)
        await two.b.wait_until(lambda: len(two.b.fetches) == 1)
        assert (await produce(producer, batch(b"v"), partition=0)).error_code == 0
        await two.a.wait_until(lambda: len(two.a.fetches) == 2)
        await settled()
        two.b.fetch_gate = trio.Event()
        assert (await produce(producer, batch(b"v"), partition=1)).error_code == 0
        first, second = parts(read_response(1, 12, (await client.receive())[1]))
        assert (first.error_code, offsets(first.records)) == (0, [0])
        assert (second.error_code, second.records or b"", second.high_watermark) == (NOT_LEADER, b"", -1)


async def test_a_silent_owner_delays_offsets_of_others_only_for_the_grace_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_owners(2, owner_grace_ms=100) as two:
        client = await two.harness.connect()
        monkeypatch.setattr(two.b, "list_offsets", silence)
        requested = tuple(
            nested(2, 4, "ListOffsetsPartition")(partition_index=index, timestamp=-1, current_leader_epoch=-1)
            for index in range(2)
        )
        topic = nested(2, 4, "ListOffsetsTopic")(name="t", partitions=requested)
        reply = await client.ask(2, 4, replica_id=-1, isolation_level=0, topics=(topic,))
        assert [part.error_code for part in reply.topics[0].partitions] == [0, NOT_LEADER]


async def silence(request: object, *, timeout: float) -> None:
    """Answer like a suspended instance: not before the timeout."""
    await trio.sleep(timeout)


@pytest.mark.parametrize("kind", READERS)
async def test_an_address_of_another_service_causes_a_retriable_error(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unimplemented(request: object, *, timeout: float) -> None:
        raise Refused("unknown method")

    async with two_owners() as two:
        monkeypatch.setattr(two.a, kind, unimplemented)
        assert (await read(await two.harness.connect(), kind)).error_code == NOT_LEADER


@pytest.mark.parametrize("source", ["ownership", "refusal", "members"])
async def test_unsent_appends_to_an_unreachable_owner_do_not_delay_those_to_the_next(source: str) -> None:
    cluster, a, b = Cluster(), FakeStorage(), FakeStorage()
    # The instance is live but has no stream.
    a.auto_ready = False
    await cluster.add("a", a)
    async with running_gateway(cluster=cluster) as harness:
        two = Two(harness, a, b, await harness.topic("t"))
        if source != "members":
            await cluster.add("b", b)
            await two.own("a", 1)
        client, other = await harness.connect(), await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"0")}, timeout_ms=30_000))
        await settled()
        if source == "ownership":
            await two.own("b", 2)
        elif source == "refusal":
            a.moved[two.topic.id, 0] = "b"
            assert (await read(other, "fetch")).error_code == 0
        else:
            await cluster.add("a", a, leaving=True)
            await cluster.add("b", b)
            await settled()
        assert (await produced(client)).error_code == NOT_LEADER, "at once, not after its timeout"
        assert (await produce(other, batch(b"1"))).error_code == 0
        assert (a.appends, len(b.appends)) == ([], 1)


async def test_a_fetch_parked_at_an_unreachable_owner_moves() -> None:
    async with two_owners() as two:
        two.a.auto_ready = False
        two.a.break_streams()
        await settled()
        client, producer = await two.harness.connect(), await two.harness.connect()
        await parked(two, client)
        await two.own("b", 2)
        two.b.partition(two.ref()).epoch = 2
        assert (await produce(producer, batch(b"v"))).error_code == 0
        part = await received(client)
        assert (part.error_code, offsets(part.records)) == (0, [0])


async def _log_sizes(two: Two) -> list[int]:
    client = await two.harness.connect()
    reply = await client.ask(35, 4, topics=None)
    return [each.partition_size for topic in reply.results[0].topics for each in topic.partitions]


@pytest.mark.parametrize(("seconds", "known"), [(0.4, True), (math.inf, False)])
async def test_a_slow_owner_is_waited_for_and_a_silent_one_does_not_hide_others(seconds: float, known: bool) -> None:
    async with two_owners(2, owner_grace_ms=100, storage_timeout_ms=2_000) as two:
        log_sizes = two.b.log_sizes

        async def slow(request: LogSizesRequest, *, timeout: float) -> LogSizesReply:
            await trio.sleep(seconds)
            return await log_sizes(request, timeout=timeout)

        two.b.log_sizes = slow  # type: ignore[method-assign]
        with trio.fail_after(10):
            assert await _log_sizes(two) == [0, 0 if known else -1]


async def test_requests_to_an_unreachable_owner_do_not_block_large_ones_to_others(mock_clock: MockClock) -> None:
    cluster, a, b = Cluster(), FakeStorage(), FakeStorage()
    b.auto_ready = False
    await cluster.add("a", a)
    await cluster.add("b", b)
    settings: dict[str, Any] = {
        "append_queue_bytes": 65536,
        "request_memory_bytes": 1 << 20,
        "append_room_wait_ms": 10_000,
    }

    async with running_gateway(cluster=cluster, **settings) as harness:
        topic = await harness.topic("t", 2)
        await cluster.own(topic, "a", partition=0)
        await cluster.own(topic, "b", partition=1)
        memory, requests = harness.gateway.request_memory, harness.parts.counters.requests

        async def send(client: Client, partition: int) -> None:
            records = batch(bytes(900_000))
            # In two parts, because a request that arrives at once needs no memory.
            rest = await send_most_of(client, records, partition=partition, timeout_ms=24 * 3600 * 1000)
            await client.stream.send_all(rest)

        # The first request fills the queue of b. The second waits for room in it, and the third for memory.
        await send(await harness.connect(), 1)
        await _until(lambda: requests.total() == 1)
        await send(await harness.connect(), 1)
        await _until(lambda: requests.total() == 2)
        harness.nursery.start_soon(send, await harness.connect(), 1)
        await _until(lambda: memory.awaited)
        mock_clock.jump(2)
        await _until(lambda: requests.total() == 3)
        # The third exceeded the memory. The fourth waits for it.
        harness.nursery.start_soon(send, await harness.connect(), 0)
        await _until(lambda: memory.awaited)
        assert not a.appends
        for _ in range(10):
            mock_clock.jump(1)
            await wait_all_tasks_blocked(0.05)
        await _until(lambda: len(a.appends) == 1)
        assert [(await produced(client)).error_code for client in harness.clients[1:]] == [OVERLOADED, OVERLOADED, 0]


async def _until(reached: Callable[[], bool]) -> None:
    """Wait until ``reached``, while the clock of the test does not move."""
    for _ in range(200):
        await wait_all_tasks_blocked(0.05)
        if reached():
            return
    pytest.fail("not reached")
