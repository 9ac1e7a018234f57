"""What each fault of the chaos run's proxies does to a connection or to S3's answers."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import trio

from kafscale.errors import Unavailable
from kafscale.objects.http_connections import HttpLimits
from kafscale.objects.interface import ObjectNotFound, PreconditionFailed
from kafscale.objects.retry import Backoff, RetryingObjectStore
from kafscale.objects.s3 import S3ObjectStore
from kafscale.objects.s3_http import NoAnswer
from kafscale.objects.s3_wire import S3Config
from tests.servers.minio import Minio
from tests.support.proxies import s3 as s3_proxy
from tests.support.proxies.s3 import HEALTHY, S3FaultProxy, S3Faults
from tests.support.proxies.tcp import Direction, TcpProxy, port_of

_SOON = 0.2
"""Seconds that a test waits for something that must not happen."""


class Echo:
    """A server that keeps its input and answers it in capitals."""

    def __init__(self) -> None:
        self.got = b""
        self.lost = trio.Event()

    async def serve(self, stream: trio.SocketStream) -> None:
        try:
            async for data in stream:
                self.got += data
                await stream.send_all(bytes(data).upper())
        except trio.BrokenResourceError:
            self.lost.set()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo, nursery: trio.Nursery) -> TcpProxy:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, echo.serve, listeners)
    made = TcpProxy(f"127.0.0.1:{port_of(listeners)}")
    await nursery.start(made.run)
    return made


async def _connected(proxy: TcpProxy) -> trio.SocketStream:
    host, _, port = proxy.address.rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


async def _says(stream: trio.SocketStream, text: bytes) -> bytes:
    await stream.send_all(text)
    return bytes(await stream.receive_some())


async def _is_silent(stream: trio.SocketStream) -> bool:
    with trio.move_on_after(_SOON) as scope:
        await stream.receive_some()
    return scope.cancelled_caught


async def test_a_link_forwards_bytes_and_ends_with_its_client(proxy: TcpProxy, echo: Echo) -> None:
    async with await _connected(proxy) as stream:
        assert await _says(stream, b"a") == b"A"
        assert proxy.connections == 1
        await stream.send_eof()
        assert await stream.receive_some() == b""
    assert echo.got == b"a"
    assert not echo.lost.is_set()


async def test_a_cut_resets_both_sides_and_new_connections_are_served(proxy: TcpProxy, echo: Echo) -> None:
    async with await _connected(proxy) as stream:
        assert await _says(stream, b"a") == b"A"
        proxy.cut()
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
    await echo.lost.wait()
    async with await _connected(proxy) as stream:
        assert await _says(stream, b"b") == b"B"


async def test_a_stalled_link_delivers_everything_late(proxy: TcpProxy, echo: Echo) -> None:
    async with await _connected(proxy) as stream:
        assert await _says(stream, b"a") == b"A"
        proxy.stall()
        await stream.send_all(b"b")
        async with await _connected(proxy) as another:
            await another.send_all(b"c")
            assert await _is_silent(stream)
            assert echo.got == b"a"
            proxy.heal()
            assert await stream.receive_some() == b"B"
            assert await another.receive_some() == b"C"


async def test_a_cut_loses_the_bytes_on_a_stalled_link(proxy: TcpProxy, echo: Echo) -> None:
    async with await _connected(proxy) as stream:
        proxy.stall()
        await stream.send_all(b"b")
        assert await _is_silent(stream)
        proxy.cut()
        proxy.heal()
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
    assert echo.got == b""


async def test_one_direction_can_stall_alone(proxy: TcpProxy, echo: Echo) -> None:
    async with await _connected(proxy) as stream:
        assert await _says(stream, b"a") == b"A"
        proxy.stall(frozenset({Direction.TO_CLIENT}))
        await stream.send_all(b"b")
        assert await _is_silent(stream)
        assert echo.got == b"ab"
        proxy.heal()
        assert await stream.receive_some() == b"B"
        proxy.stall(frozenset({Direction.TO_SERVER}))
        await stream.send_all(b"c")
        assert await _is_silent(stream)
        assert echo.got == b"ab"


async def test_a_slow_link_delays_bytes(proxy: TcpProxy) -> None:
    proxy.delay_seconds = 0.1
    async with await _connected(proxy) as stream:
        began = trio.current_time()
        assert await _says(stream, b"a") == b"A"
        assert trio.current_time() - began >= 0.2


async def test_a_refusing_link_resets_new_connections(proxy: TcpProxy, echo: Echo) -> None:
    proxy.refusing = True
    async with await _connected(proxy) as stream:
        with pytest.raises(trio.BrokenResourceError):
            await _says(stream, b"a")
    proxy.heal()
    async with await _connected(proxy) as stream:
        assert await _says(stream, b"b") == b"B"
    assert echo.got == b"b"


async def test_a_connection_to_a_missing_server_is_reset() -> None:
    async with trio.open_nursery() as nursery:
        gone = TcpProxy("127.0.0.1:1")
        await nursery.start(gone.run)
        async with await _connected(gone) as stream:
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
        nursery.cancel_scope.cancel()


@pytest.fixture
def s3_config(minio: Minio) -> S3Config:
    return minio.new_bucket()


@pytest.fixture
async def faulty(s3_config: S3Config, nursery: trio.Nursery) -> S3FaultProxy:
    made = S3FaultProxy(urlsplit(s3_config.endpoint).netloc, random.Random(1).random)
    await nursery.start(made.run)
    return made


@pytest.fixture
async def store(s3_config: S3Config, faulty: S3FaultProxy) -> AsyncIterator[S3ObjectStore]:
    """The store behind the proxy."""
    config = replace(s3_config, endpoint=f"http://{faulty.address}")
    async with S3ObjectStore.open(config, limits=HttpLimits(read=1.0)) as made:
        yield made


@pytest.fixture
async def direct(s3_config: S3Config) -> AsyncIterator[S3ObjectStore]:
    async with S3ObjectStore.open(s3_config) as made:
        yield made


BODY = bytes(range(256)) * 4000


async def test_a_healthy_proxy_changes_nothing(store: S3ObjectStore, faulty: S3FaultProxy) -> None:
    await store.probe("ns")
    etag = await store.put_if_absent("ns/a", BODY)
    with pytest.raises(PreconditionFailed):
        await store.put_if_absent("ns/a", BODY)
    await store.replace_if_match("ns/a", memoryview(BODY)[1:], etag)
    assert (await store.get("ns/a")).body == BODY[1:]
    assert await store.get_range("ns/a", 10, 5) == BODY[11:16]
    assert (await store.head("ns/a")).size == len(BODY) - 1
    assert [info.key for info in await store.list_from("ns/")] == ["ns/a"]
    await store.delete_many(["ns/a"])
    with pytest.raises(ObjectNotFound):
        await store.head("ns/a")
    assert faulty.met == {}


@pytest.mark.parametrize("fault", ["slow_down", "internal"])
async def test_a_refused_request_is_not_executed(
    store: S3ObjectStore, direct: S3ObjectStore, faulty: S3FaultProxy, fault: str
) -> None:
    faulty.faults = S3Faults(**{fault: 1.0})
    with pytest.raises(Unavailable, match="503 SlowDown" if fault == "slow_down" else "500 InternalError"):
        await store.put_if_absent("ns/a", BODY)
    with pytest.raises(Unavailable):
        await store.head("ns/a")
    faulty.faults = HEALTHY
    with pytest.raises(ObjectNotFound):
        await store.head("ns/a")  # the connections still work
    assert faulty.met == {fault: 2}


async def test_a_request_with_a_lost_answer_was_executed(
    store: S3ObjectStore, direct: S3ObjectStore, faulty: S3FaultProxy
) -> None:
    faulty.faults = S3Faults(lost=1.0)
    with pytest.raises(NoAnswer):
        await store.put_if_absent("ns/a", BODY)
    assert (await direct.get("ns/a")).body == BODY


async def test_a_late_request_is_executed_after_its_sender_saw_an_error(
    store: S3ObjectStore, direct: S3ObjectStore, faulty: S3FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_proxy, "LATE_SECONDS", 3.0)
    faulty.faults = S3Faults(late=1.0)
    with pytest.raises(NoAnswer):
        await store.put_if_absent("ns/a", BODY)
    with pytest.raises(ObjectNotFound):
        await direct.head("ns/a")
    with trio.fail_after(30):
        while not await direct.list_from("ns/"):  # noqa: ASYNC110 - the server has no event for it
            await trio.sleep(0.05)


async def test_a_slow_answer_arrives(
    store: S3ObjectStore, faulty: S3FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_proxy, "SLOW_SECONDS", 0.5)
    faulty.faults = S3Faults(slow=1.0)
    await store.put_if_absent("ns/a", BODY)
    assert faulty.met == {"slow": 1}


async def test_a_stalled_request_is_neither_executed_nor_answered(
    store: S3ObjectStore, direct: S3ObjectStore, faulty: S3FaultProxy
) -> None:
    faulty.faults = S3Faults(stalled=1.0)
    with pytest.raises(NoAnswer, match="no progress for 1 s"):
        await store.put_if_absent("ns/a", BODY)
    assert await direct.list_from("") == []


async def test_a_truncated_answer_is_an_error(
    store: S3ObjectStore, direct: S3ObjectStore, faulty: S3FaultProxy
) -> None:
    await direct.put_if_absent("ns/a", BODY)
    faulty.faults = S3Faults(truncated=1.0)
    with pytest.raises(NoAnswer):
        await store.get("ns/a")
    with pytest.raises(NoAnswer):
        await store.head("ns/a")


async def test_retries_overcome_every_fault_at_once(store: S3ObjectStore, faulty: S3FaultProxy) -> None:
    faulty.faults = S3Faults(slow_down=0.15, internal=0.05, lost=0.2, truncated=0.1)
    patient = RetryingObjectStore(store, random.Random(2).random, Backoff(deadline=60, first=0.01, longest=0.05))
    for number in range(20):
        await patient.put_if_absent(f"ns/{number}", BODY[:1000])
        assert (await patient.get(f"ns/{number}")).body == BODY[:1000]
    assert faulty.met.keys() == {"slow_down", "internal", "lost", "truncated"}


async def test_a_missing_server_gives_no_answer(s3_config: S3Config, nursery: trio.Nursery) -> None:
    gone = S3FaultProxy("127.0.0.1:1", random.Random(1).random)
    await nursery.start(gone.run)
    async with S3ObjectStore.open(replace(s3_config, endpoint=f"http://{gone.address}")) as store:
        with pytest.raises(NoAnswer):
            await store.get("ns/a")
