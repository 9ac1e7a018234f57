"""Calls are counted on both sides of gRPC, by method and by their outcome."""

import pytest
import trio

from kafscale.errors import Refused, Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.counters import CallCounters
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_storage
from kafscale.telemetry import Histogram
from kafscale.v1.storage_pb2 import AppendRequest, CommitsRequest, FetchReply, FetchRequest
from tests.support.carrier import TIMEOUT, Carrier


def _handled(counters: CallCounters) -> dict[tuple[str, str], object]:
    """Return the number of finished calls by method and code."""
    [_, handled, _] = counters.families("server")
    return {(method, code): count for (_, _, method, code), count in handled.read().items() if count}


def _timed(counters: CallCounters) -> dict[str, int]:
    """Return the number of observed durations by method."""
    [_, _, seconds] = counters.families("server")
    values = {labels[2]: value for labels, value in seconds.read().items()}
    return {method: sum(value.counts) for method, value in values.items() if isinstance(value, Histogram)}


async def _counted(counters: CallCounters, method: str, code: str, count: int) -> None:
    """Wait until the asyncio thread has counted the call, which may be after its caller got the answer."""
    with trio.fail_after(TIMEOUT):
        while _handled(counters).get((method, code)) != count:  # noqa: ASYNC110  another thread counts
            await trio.sleep(0.01)


async def test_both_sides_count_calls_by_method_and_code() -> None:
    carrier, made = Carrier(), CallCounters()
    entered = trio.Event()

    async def fail(_: FetchRequest) -> FetchReply:
        raise Refused("a test")

    async def hang(_: FetchRequest) -> FetchReply:
        entered.set()
        await trio.sleep_forever()
        raise AssertionError

    async with trio.open_nursery() as nursery:
        server = RpcServer([bind_storage(carrier)], RpcLimits(max_calls=1))
        assert _handled(server.calls) == {}
        port = await nursery.start(server.run, "127.0.0.1:0", trio.Event())
        async with Channel(f"127.0.0.1:{port}", counters=made) as channel:
            client = SegmentStorageClient(channel)
            for number in range(3):
                await client.append(AppendRequest(), timeout=TIMEOUT)
                await _counted(server.calls, "Append", "OK", number + 1)
            carrier.fetching = fail
            with pytest.raises(Refused):
                await client.fetch(FetchRequest(), timeout=TIMEOUT)
            await _counted(server.calls, "Fetch", "FAILED_PRECONDITION", 1)
            carrier.fetching = hang
            async with trio.open_nursery() as callers:
                callers.start_soon(lambda: client.fetch(FetchRequest(), timeout=TIMEOUT))
                await entered.wait()
                with pytest.raises(Unavailable):
                    await client.append(AppendRequest(), timeout=TIMEOUT)
                callers.cancel_scope.cancel()
            await _counted(server.calls, "Append", "RESOURCE_EXHAUSTED", 1)
            await _counted(server.calls, "Fetch", "CANCELLED", 1)
            ended = {
                ("Append", "OK"): 3,
                ("Append", "RESOURCE_EXHAUSTED"): 1,
                ("Fetch", "FAILED_PRECONDITION"): 1,
                ("Fetch", "CANCELLED"): 1,
            }
            assert _handled(made) == _handled(server.calls) == ended
            assert _timed(made) == {"Append": 4, "Fetch": 2}
            assert {method: count for method, count in _timed(server.calls).items() if count} == _timed(made)
        nursery.cancel_scope.cancel()


async def test_a_stream_is_counted_when_it_ends_but_not_timed() -> None:
    carrier = Carrier()
    async with trio.open_nursery() as nursery:
        server = RpcServer([bind_storage(carrier)])
        port = await nursery.start(server.run, "127.0.0.1:0", trio.Event())
        async with Channel(f"127.0.0.1:{port}") as channel:
            async with SegmentStorageClient(channel).commits(CommitsRequest(stream_id="a")):
                await carrier.entered.wait()
                [started, _, _] = server.calls.families("server")
                counts = {labels[2]: count for labels, count in started.read().items() if count}
                assert counts == {"Commits": 1}
                assert _handled(server.calls) == {}
            await _counted(server.calls, "Commits", "CANCELLED", 1)
        assert "Commits" not in _timed(server.calls)
        nursery.cancel_scope.cancel()
