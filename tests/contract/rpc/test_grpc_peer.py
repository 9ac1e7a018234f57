"""What a caller sees over gRPC when the process at the other end dies, hangs, stops or restarts."""

import threading

import pytest
import trio

from kafscale.errors import Unavailable
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_storage
from kafscale.v1.storage_pb2 import CommitsRequest, FetchReply, FetchRequest
from tests.contract.rpc.conftest import connected, serving, until_answered
from tests.servers.signals import pause
from tests.support.carrier import TIMEOUT, Carrier
from tests.support.rpc_peer import running_peer

LONG = 1000.0
"""A deadline that should not be reached."""


async def test_calls_and_streams_to_a_killed_peer_fail_at_once() -> None:
    failed: list[str] = []

    async def call(client: SegmentStorageClient) -> None:
        with pytest.raises(Unavailable):
            await client.fetch(FetchRequest(stream_id="hang"), timeout=LONG)
        failed.append("call")

    async with running_peer() as peer, connected(peer.port) as client:
        async with client.commits(CommitsRequest()) as stream, trio.open_nursery() as nursery:
            assert (await stream.receive()).ready
            nursery.start_soon(call, client)
            await client.fetch(FetchRequest(), timeout=TIMEOUT)
            await peer.kill()
            with trio.fail_after(TIMEOUT), pytest.raises(Unavailable):
                await stream.receive()
            nursery.cancel_scope.deadline = trio.current_time() + TIMEOUT
        assert failed == ["call"]


async def test_calls_to_a_hanging_peer_end_by_deadline_and_its_streams_by_keepalive() -> None:
    limits = RpcLimits(keepalive_seconds=1.0, keepalive_timeout_seconds=1.0)
    async with (
        running_peer() as peer,
        connected(peer.port, limits) as client,
        client.commits(CommitsRequest()) as stream,
    ):
        assert (await stream.receive()).ready
        pause(peer.process.pid)
        with trio.fail_after(TIMEOUT):
            with pytest.raises(Unavailable, match=r"no answer within 0\.1 s"):
                await client.fetch(FetchRequest(), timeout=0.1)
            with pytest.raises(Unavailable):
                await stream.receive()


async def test_a_client_reconnects_to_a_peer_that_restarts_on_its_port() -> None:
    async with running_peer() as first, connected(first.port) as client:
        await client.fetch(FetchRequest(), timeout=TIMEOUT)
        await first.kill()
        with pytest.raises(Unavailable):
            await client.fetch(FetchRequest(), timeout=TIMEOUT)
        async with running_peer(first.port):
            await until_answered(lambda: client.fetch(FetchRequest(), timeout=TIMEOUT))


async def test_a_stopping_server_refuses_new_calls_and_finishes_current_ones(carrier: Carrier) -> None:
    release, stop, stopped = trio.Event(), trio.Event(), trio.Event()
    entered = trio.Event()

    async def wait(request: FetchRequest) -> FetchReply:
        if request.stream_id == "in hand":
            entered.set()
            await release.wait()
        return await carrier.answer(request)

    async def run(task_status: trio.TaskStatus[int]) -> None:
        server = RpcServer([bind_storage(carrier)], RpcLimits(drain_seconds=LONG))
        await server.run("127.0.0.1:0", stop, task_status)
        stopped.set()

    async def call() -> None:
        reply = await client.fetch(FetchRequest(stream_id="in hand"), timeout=TIMEOUT)
        answers.append(reply.results[0].detail)

    answers: list[str] = []
    carrier.fetching = wait
    async with trio.open_nursery() as servers:
        port = await servers.start(run)
        with trio.fail_after(TIMEOUT):
            async with connected(port) as client, trio.open_nursery() as callers:
                callers.start_soon(call)
                await entered.wait()
                stop.set()
                await _until_refused(client)
                assert not stopped.is_set()
                release.set()
            await stopped.wait()
    assert answers == ["in hand"]


async def test_calls_that_do_not_finish_while_a_server_drains_are_cancelled(carrier: Carrier) -> None:
    stop = trio.Event()
    carrier.fetching = carrier.hang

    async def call() -> None:
        with pytest.raises(Unavailable):
            await client.fetch(FetchRequest(), timeout=LONG)

    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as servers:
            server = RpcServer([bind_storage(carrier)], RpcLimits(drain_seconds=0.1))
            port = await servers.start(server.run, "127.0.0.1:0", stop)
            async with connected(port) as client, trio.open_nursery() as callers:
                callers.start_soon(call)
                await carrier.entered.wait()
                stop.set()
    assert carrier.cancelled.is_set()


async def test_a_cancelled_server_cancels_its_calls_and_returns_when_they_have_ended(carrier: Carrier) -> None:
    carrier.fetching = carrier.hang

    async def call(port: int) -> None:
        async with connected(port) as client:
            with pytest.raises(Unavailable):
                await client.fetch(FetchRequest(), timeout=LONG)

    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as callers:
            async with serving(carrier) as port:
                callers.start_soon(call, port)
                await carrier.entered.wait()
            assert carrier.cancelled.is_set()


async def test_closing_a_channel_fails_current_and_later_calls(carrier: Carrier) -> None:
    carrier.fetching = carrier.hang

    async def call(client: SegmentStorageClient) -> None:
        with pytest.raises(Unavailable):
            await client.fetch(FetchRequest(), timeout=LONG)

    async def follow(client: SegmentStorageClient) -> None:
        async with client.commits(CommitsRequest()) as stream:
            await stream.receive()
            following.set()
            with pytest.raises(Unavailable):
                await stream.receive()

    following = trio.Event()
    with trio.fail_after(TIMEOUT):
        async with serving(carrier) as port, trio.open_nursery() as callers:
            async with connected(port) as client:
                callers.start_soon(call, client)
                callers.start_soon(follow, client)
                await carrier.entered.wait()
                await following.wait()
            await call(client)
            with pytest.raises(Unavailable):
                await client.commits(CommitsRequest()).__aenter__()


async def _until_refused(client: SegmentStorageClient) -> None:
    while True:
        try:
            await client.fetch(FetchRequest(), timeout=TIMEOUT)
        except Unavailable:
            return


async def test_frequent_calls_share_a_thread_which_does_not_delay_the_end_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    stop, stopped = trio.Event(), trio.Event()

    async def serve(*, task_status: trio.TaskStatus[int]) -> None:
        await RpcServer([bind_storage(Carrier())]).run("127.0.0.1:0", stop, task_status)
        stopped.set()

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve)
        async with connected(port) as client:
            await client.fetch(FetchRequest(), timeout=TIMEOUT)
            await client.fetch(FetchRequest(), timeout=TIMEOUT)
            monkeypatch.setattr(threading.Thread, "start", counted)
            for _ in range(20):
                await client.fetch(FetchRequest(), timeout=TIMEOUT)
            assert started == []
            stop.set()
            with trio.fail_after(RpcLimits().drain_seconds / 2):
                await stopped.wait()
