"""Connections: limits of number, time and size, and how they are closed."""

import struct
from typing import Any

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.config.settings import load
from kafscale.errors import ConfigError
from kafscale.kafka.connection import Request
from services.gateway.clients.connection import ClientConnection
from services.gateway.service import Gateway
from services.gateway.settings import GatewaySettings
from tests.support.gateway.asking import fetch_body, parts, produce, produce_body, produced
from tests.support.gateway.harness import Client, batch, parts_of, read_response, running_gateway


async def test_a_frame_over_the_limit_closes_only_its_own_connection() -> None:
    async with running_gateway(max_request_bytes=2000) as harness:
        client, other = await harness.connect(), await harness.connect()
        await client.stream.send_all(struct.pack(">i", 2001))
        assert await client.closed()
        assert (await other.ask(18, 0)).error_code == 0


async def test_garbage_closes_only_its_own_connection() -> None:
    async with running_gateway() as harness:
        other = await harness.connect()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", bytes(20), b"\xff" * 100):
            client = await harness.connect()
            await client.stream.send_all(garbage)
            assert await client.closed()
        assert (await other.ask(18, 0)).error_code == 0


async def test_a_defect_in_serving_one_connection_closes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ClientConnection._start

    async def broken(connection: ClientConnection, request: Request, nursery: trio.Nursery) -> None:
        if request.api_key == 3:
            raise KeyError("a defect")
        await start(connection, request, nursery)

    monkeypatch.setattr(ClientConnection, "_start", broken)
    async with running_gateway() as harness:
        client, other = await harness.connect(), await harness.connect()
        assert (await other.ask(18, 0)).error_code == 0
        await client.send(3, 1, bytes(4))
        assert await client.closed()
        assert (await other.ask(18, 0)).error_code == 0
        assert (await (await harness.connect()).ask(18, 0)).error_code == 0


async def test_a_control_request_over_its_limit_closes_its_connection() -> None:
    async with running_gateway(max_control_request_bytes=1000) as harness:
        await harness.topic()
        client, other = await harness.connect(), await harness.connect()
        assert (await produce(other, batch(bytes(5000)))).error_code == 0
        await client.send(3, 4, struct.pack(">i", 400) + 400 * b"\0\1a" + b"\0")
        assert await client.closed()
        assert (await other.ask(18, 0)).error_code == 0


async def test_connections_are_bounded() -> None:
    async with running_gateway(max_connections=2) as harness:
        first, second = await harness.connect(), await harness.connect()
        for client in (first, second):
            assert (await client.ask(18, 0)).error_code == 0
        assert await (await harness.connect()).closed()
        await first.stream.aclose()
        await wait_all_tasks_blocked(0.02)
        assert (await (await harness.connect()).ask(18, 0)).error_code == 0


async def test_connections_of_an_address_are_bounded() -> None:
    async with running_gateway(max_connections_per_ip=1, max_connections_of_ips=(("127.0.0.3", 2),)) as harness:

        async def served(address: str) -> Client | None:
            stream = await trio.open_tcp_stream("127.0.0.1", harness.listeners[0].port, local_address=address)
            harness.clients.append(client := Client(stream))
            try:
                assert (await client.ask(18, 0)).error_code == 0
            except (EOFError, trio.BrokenResourceError):
                return None
            return client

        first = await served("127.0.0.2")
        assert first is not None
        assert await served("127.0.0.2") is None
        assert [await served("127.0.0.3") is not None for _ in range(3)] == [True, True, False]
        assert harness.parts.counters.turned_away == 2
        await first.stream.aclose()
        await wait_all_tasks_blocked(0.02)
        assert await served("127.0.0.2") is not None


def test_limits_of_addresses_are_read_from_the_environment() -> None:
    name = "KAFSCALE_MAX_CONNECTIONS_PER_IP_OVERRIDES"
    settings = load(GatewaySettings, {name: "10.0.0.7:500, [FD00::7]:0"})
    assert settings.max_connections_of_ips == (("10.0.0.7", 500), ("fd00::7", 0))
    for wrong in ("10.0.0.7", "fd00::7:5", "example.org:5", "10.0.0.700:5", "10.0.0.7:-1", ","):
        with pytest.raises(ConfigError, match=name):
            load(GatewaySettings, {name: wrong})


@pytest.mark.parametrize("limits", [{"max_in_flight": 3}, {"max_in_flight_bytes": 300}])
async def test_requests_in_flight_are_bounded_and_all_are_answered(limits: dict[str, Any]) -> None:
    async with running_gateway(**limits) as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic()
        client = await harness.connect()
        for _ in range(5):
            await client.send(0, 9, produce_body({("t", 0): batch(b"a")}))
        await harness.storage.wait_until(lambda: sum(len(m.appends) for m in harness.storage.appends) == 3)
        await wait_all_tasks_blocked(0.02)
        partition = harness.partition(topic)
        assert partition.end == 3
        harness.storage.auto_commit = True
        harness.storage.commit(partition)
        assert [(await produced(client)).base_offset for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_waiting_requests_of_a_connection_are_bounded_and_all_are_answered() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client, producer = await harness.connect(), await harness.connect()
        for _ in range(7):
            await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await harness.storage.wait_until(lambda: len(harness.storage.fetches) >= 4)
        await wait_all_tasks_blocked(0.05)
        assert len(harness.storage.fetches) == 4
        assert (await produce(producer, batch(b"a"))).error_code == 0
        for _ in range(7):
            _, body = await client.receive()
            assert [bool(part.records) for part in parts(read_response(1, 12, body))] == [True]


async def test_an_idle_connection_is_closed(mock_clock: MockClock) -> None:
    async with running_gateway(idle_timeout_ms=60_000) as harness:
        idle, busy = await harness.connect(), await harness.connect()
        for _ in range(6):
            assert (await busy.ask(18, 0)).error_code == 0
            mock_clock.jump(15)
            await wait_all_tasks_blocked(0.02)
        assert await idle.closed()
        assert (await busy.ask(18, 0)).error_code == 0


async def test_a_connection_with_a_request_in_progress_is_not_idle(mock_clock: MockClock) -> None:
    async with running_gateway(
        idle_timeout_ms=60_000, storage_timeout_ms=600_000, commit_silence_ms=600_000
    ) as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}, timeout_ms=500_000))
        await harness.storage.wait_until(lambda: bool(harness.storage.appends))
        for _ in range(10):
            mock_clock.jump(15)
            await wait_all_tasks_blocked(0.02)
        harness.storage.commit(harness.partition(topic))
        assert (await produced(client)).error_code == 0


async def test_idle_connections_are_closed_at_once_when_the_gateway_stops(mock_clock: MockClock) -> None:
    async with running_gateway(shutdown_grace_ms=600_000) as harness:
        fresh, used = await harness.connect(), await harness.connect()
        assert (await used.ask(18, 0)).error_code == 0
        await wait_all_tasks_blocked(0.02)
        harness.stop.set()
        await wait_all_tasks_blocked(0.05)
        assert harness.stopped.is_set()
        assert await fresh.closed()
        assert await used.closed()
        with pytest.raises(OSError, match="failed"):
            await harness.connect()


async def test_busy_connections_get_their_replies_when_the_gateway_stops(mock_clock: MockClock) -> None:
    async with running_gateway(shutdown_grace_ms=600_000) as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}))
        await harness.storage.wait_until(lambda: bool(harness.storage.appends))
        harness.stop.set()
        await wait_all_tasks_blocked(0.02)
        assert not harness.stopped.is_set()
        harness.storage.commit(harness.partition(topic))
        assert (await produced(client)).error_code == 0
        assert await client.closed()
        await harness.stopped.wait()


async def test_waiting_fetches_are_answered_when_the_gateway_stops(mock_clock: MockClock) -> None:
    async with running_gateway(shutdown_grace_ms=600_000) as harness:
        await harness.topic()
        client = await harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=300_000))
        await harness.storage.wait_until(lambda: bool(harness.storage.fetches))
        await wait_all_tasks_blocked(0.02)
        harness.stop.set()
        await wait_all_tasks_blocked(0.05)
        assert harness.stopped.is_set()
        _, body = await client.receive()
        assert [part.error_code for part in parts(read_response(1, 12, body))] == [0]


async def test_requests_without_a_reply_at_the_deadline_are_abandoned(mock_clock: MockClock) -> None:
    async with running_gateway(shutdown_grace_ms=5_000) as harness:
        harness.storage.auto_commit = False
        await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}, timeout_ms=600_000))
        await harness.storage.wait_until(lambda: bool(harness.storage.appends))
        harness.stop.set()
        await wait_all_tasks_blocked(0.02)
        mock_clock.jump(5.1)
        await wait_all_tasks_blocked(0.05)
        assert harness.stopped.is_set()
        assert await client.closed()


async def test_a_producer_is_paused_and_then_refused_while_storage_is_slow(mock_clock: MockClock) -> None:
    async with running_gateway(append_queue_bytes=65536) as harness:
        for sequence in (1, 2):
            harness.storage.gates[sequence] = trio.Event()
        await harness.topic()
        client = await harness.connect()
        for _ in range(4):
            await client.send(0, 9, produce_body({("t", 0): batch(b"x" * 40_000)}, acks=1, timeout_ms=2000))
            await wait_all_tasks_blocked(0.02)
        assert len(harness.storage.appends) == 2
        mock_clock.jump(1.9)
        await wait_all_tasks_blocked(0.02)
        assert len(harness.storage.appends) == 2
        for _ in range(30):  # one timeout after the other: the last request is checked when the third is refused
            mock_clock.jump(0.1)
            await wait_all_tasks_blocked(0.005)
        codes = [(await produced(client)).error_code for _ in range(4)]
        timed_out, overloaded = ErrorCode.request_timed_out, ErrorCode.not_enough_replicas
        assert codes == [timed_out, timed_out, overloaded, overloaded]
        assert len(harness.storage.appends) == 2


async def test_a_large_request_and_a_large_reply_pass() -> None:
    async with running_gateway() as harness:
        await harness.topic(max_message_bytes=str(20 << 20))
        client = await harness.connect()
        records = batch(b"x" * (10 << 20))
        assert (await produce(client, records)).error_code == 0
        body = fetch_body({("t", 0): 0}, max_bytes=50 << 20, partition_max_bytes=50 << 20)
        (part,) = parts(read_response(1, 12, await client.call(1, 12, body)))
        assert part.records[61:] == records[61:]


async def test_a_port_in_use_fails_the_start_with_its_number() -> None:
    async with running_gateway() as harness:
        port = harness.listeners[0].port
        gateway = Gateway(parts_of(harness.cluster, broker_addr=f"127.0.0.1:{port}"))
        with pytest.raises(ConfigError, match=str(port)):
            await gateway.run(trio.Event())
