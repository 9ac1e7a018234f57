"""The memory that all clients together can make the gateway use is bounded."""

import gc
import resource
import struct
from contextlib import suppress

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.kafka.connection import KafkaConnection
from kafscale.process.byte_quota import ByteQuota
from tests.support.gateway.asking import fetch_body, parts, produce, produce_body, produced, send_most_of
from tests.support.gateway.harness import batch, read_response, running_gateway

MIB = 1 << 20


async def test_a_client_that_does_not_read_keeps_few_replies_in_memory() -> None:
    async with running_gateway(max_fetch_bytes=MIB) as harness:
        await harness.topic(max_message_bytes=str(2 * MIB))
        client = await harness.connect()
        assert (await produce(client, batch(bytes(MIB)))).error_code == 0
        body = fetch_body({("t", 0): 0}, max_bytes=2 * MIB, partition_max_bytes=2 * MIB)
        for _ in range(80):
            await client.send(1, 12, body)
        await wait_all_tasks_blocked(0.1)
        # The replies in the kernel's buffers, and a few in the gateway's memory.
        assert len(harness.storage.fetches) < 40
        for _ in range(80):
            _, reply = await client.receive()
            assert len(parts(read_response(1, 12, reply))[0].records) > MIB


async def test_fetches_beyond_the_reply_memory_get_one_batch_each() -> None:
    async with running_gateway(reply_memory_bytes=MIB) as harness:
        await harness.topic(max_message_bytes=str(20 * MIB))
        lazy, other = await harness.connect(), await harness.connect()
        for _ in range(3):
            assert (await produce(lazy, batch(bytes(10 * MIB)))).error_code == 0
        assert (await produce(other, batch(b"small"))).error_code == 0
        everything = fetch_body({("t", 0): 0}, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)
        for _ in range(3):
            await lazy.send(1, 12, everything)
        await harness.storage.wait_until(lambda: bool(harness.storage.fetches))
        await wait_all_tasks_blocked(0.05)
        behind = fetch_body({("t", 0): 3}, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)
        (part,) = parts(read_response(1, 12, await other.call(1, 12, behind)))
        first, *others = [fetch.max_bytes for fetch in harness.storage.fetches]
        assert (first, set(others)) == (MIB, {1})
        assert part.records
        await trio.aclose_forcefully(lazy.stream)
        await wait_all_tasks_blocked(0.05)
        await other.call(1, 12, behind)
        assert harness.storage.fetches[-1].max_bytes == MIB


async def test_a_client_that_does_not_read_gets_no_replies_beyond_the_reply_memory() -> None:
    async with running_gateway(reply_memory_bytes=MIB) as harness:
        await harness.topic(max_message_bytes=str(20 * MIB))
        lazy = await harness.connect()
        assert (await produce(lazy, batch(bytes(10 * MIB)))).error_code == 0
        body = fetch_body({("t", 0): 0}, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)
        await lazy.send(1, 12, body)
        await harness.storage.wait_until(lambda: bool(harness.storage.fetches))
        await wait_all_tasks_blocked(0.05)
        for _ in range(20):
            await lazy.send(1, 12, body)
        await wait_all_tasks_blocked(0.05)
        assert len(harness.storage.fetches) == 1
        for _ in range(21):
            await lazy.receive()


async def test_large_requests_arrive_in_turn_and_small_ones_bypass_them() -> None:
    async with running_gateway(request_memory_bytes=MIB) as harness:
        await harness.topic()
        first, second, small = [await harness.connect() for _ in range(3)]
        rest = await send_most_of(first, batch(bytes(900_000)))
        harness.nursery.start_soon(second.send, 0, 9, produce_body({("t", 0): batch(bytes(900_000))}))
        assert (await produce(small, batch(b"small"))).base_offset == 0
        await wait_all_tasks_blocked(0.05)
        assert len(harness.storage.appends) == 1
        await first.stream.send_all(rest)
        assert sorted([(await produced(first)).base_offset, (await produced(second)).base_offset]) == [1, 2]


async def test_announced_but_unsent_bytes_do_not_block_large_requests(mock_clock: MockClock) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        for _ in range(3):
            idle = await harness.connect()
            await idle.stream.send_all(struct.pack(">ihhi", 100 * MIB, 0, 9, 1) + bytes(1000))
            await wait_all_tasks_blocked(0.05)
        victim = await harness.connect()
        await victim.stream.send_all(await send_most_of(victim, batch(bytes(100_000))))
        await wait_all_tasks_blocked(0.05)
        assert len(harness.storage.appends) == 1


async def test_stalled_requests_do_not_block_large_requests(mock_clock: MockClock) -> None:
    async with running_gateway(request_memory_bytes=MIB) as harness:
        await harness.topic()
        for _ in range(2):
            await send_most_of(await harness.connect(), batch(bytes(500_000)))
        for _ in range(2):
            victim = await harness.connect()
            harness.nursery.start_soon(victim.send, 0, 9, produce_body({("t", 0): batch(bytes(600_000))}))
        for _ in range(4):
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(1)
        await wait_all_tasks_blocked(0.05)
        assert len(harness.storage.appends) == 2


async def test_a_stalled_request_beyond_the_request_memory_is_closed_soon(mock_clock: MockClock) -> None:
    async with running_gateway(request_memory_bytes=MIB, request_stall_ms=20_000) as harness:
        await harness.topic()
        for _ in range(3):
            harness.nursery.start_soon(send_most_of, await harness.connect(), batch(bytes(500_000)))
            await wait_all_tasks_blocked(0.05)
        beyond, victim = harness.clients[-1], await harness.connect()
        harness.nursery.start_soon(victim.send, 0, 9, produce_body({("t", 0): batch(bytes(600_000))}))
        for _ in range(12):
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(1)
        await wait_all_tasks_blocked(0.05)
        assert len(harness.storage.appends) == 1
        assert await beyond.closed()


async def test_a_client_that_stalls_in_a_large_request_is_disconnected(mock_clock: MockClock) -> None:
    async with running_gateway(request_memory_bytes=MIB, request_stall_ms=4_000) as harness:
        await harness.topic()
        first, second = await harness.connect(), await harness.connect()
        await send_most_of(first, batch(bytes(900_000)))
        await wait_all_tasks_blocked(0.05)
        harness.nursery.start_soon(second.send, 0, 9, produce_body({("t", 0): batch(bytes(900_000))}))
        with capture_logs() as logs:
            for _ in range(6):
                await wait_all_tasks_blocked(0.05)
                mock_clock.jump(1)
            assert await first.closed()
        assert (await produced(second)).error_code == 0
        peer = str(first.stream.socket.getsockname())
        assert [entry["peer"] for entry in logs if entry["event"] == "connection closed"] == [peer]


async def test_a_client_that_sends_a_large_request_very_slowly_is_disconnected(mock_clock: MockClock) -> None:
    async with running_gateway(request_memory_bytes=MIB, request_stall_ms=4_000) as harness:
        await harness.topic()
        client = await harness.connect()
        frame = await send_most_of(client, batch(bytes(900_000)), except_last=100)
        await wait_all_tasks_blocked(0.05)
        for number in range(12):
            with suppress(trio.BrokenResourceError):
                await client.stream.send_all(frame[number : number + 1])
            await wait_all_tasks_blocked(0.02)
            mock_clock.jump(1)
        assert await client.closed()


async def test_a_closed_connection_is_freed_at_once() -> None:
    async with running_gateway() as harness:
        await harness.topic(max_message_bytes=str(20 * MIB))
        client = await harness.connect()
        assert (await produce(client, batch(bytes(10 * MIB)))).error_code == 0
        body = fetch_body({("t", 0): 0}, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)
        gc.collect()
        gc.disable()
        try:
            before = connections()
            for _ in range(4):
                await client.send(1, 12, body)
            await harness.storage.wait_until(lambda: len(harness.storage.fetches) == 4)
            await wait_all_tasks_blocked(0.05)
            await trio.aclose_forcefully(client.stream)
            await wait_all_tasks_blocked(0.05)
            assert connections() == before - 1
        finally:
            gc.enable()


def connections() -> int:
    return sum(isinstance(each, KafkaConnection) for each in gc.get_objects())


async def test_connections_are_limited_by_the_maximum_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (258, 4096))
    async with running_gateway(max_connections=10_000) as harness:
        for _ in range(2):
            assert (await (await harness.connect()).ask(18, 0)).error_code == 0
        assert await (await harness.connect()).closed()


async def test_a_byte_quota_is_granted_in_order_and_freed_by_cancelled_waiters() -> None:
    memory = ByteQuota(100)
    order: list[str] = []

    async def take(name: str, size: int) -> None:
        await memory.reserve(size)
        order.append(name)

    await memory.reserve(60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, "large", 90)
        await wait_all_tasks_blocked()
        nursery.start_soon(take, "small", 10)
        await wait_all_tasks_blocked()
        assert order == [], "the small request would fit, but must wait for its turn"
        with trio.move_on_after(0):
            await memory.reserve(1)
        memory.release(60)
        await wait_all_tasks_blocked()
    assert (sorted(order), memory.used) == (["large", "small"], 100)
    memory.release(100)
    await memory.reserve(1000)
    assert memory.used == 1000
