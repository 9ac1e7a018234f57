"""The limits of a gRPC server, and the health and reflection services next to its own."""

from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import pytest
import trio
import trio.testing
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from kafscale.errors import ConfigError, CorruptData, Refused, Unavailable
from kafscale.objects.memory import MemoryObjectStore
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded
from kafscale.process.startup import EVERY_SERVICE, Endpoint
from kafscale.rpc.client import Channel, Exchange
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import IndexerClient
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.methods import bind, method
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_indexer, bind_storage
from kafscale.telemetry import Finding, State
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.indexer_pb2 import (
    LocateTimestampRequest,
    RewriteEvent,
    RewriteRequest,
    SegmentBatches,
    SegmentRef,
    WriteCatalogPageRequest,
    WriteIndexesRequest,
)
from kafscale.v1.storage_pb2 import AppendRequest, CommitsRequest, FetchReply, FetchRequest, PartitionAppend
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from tests.contract.rpc.conftest import connected, serving, until_answered
from tests.support.carrier import TIMEOUT, Carrier, Send, number_of, numbered

STORAGE = "kafscale.v1.SegmentStorage"
Status = health_pb2.HealthCheckResponse
ReflectionRequest = reflection_pb2.ServerReflectionRequest
_REFLECTION = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
REFLECT = method(_REFLECTION, "ServerReflectionInfo", ReflectionRequest, reflection_pb2.ServerReflectionResponse)


async def test_a_message_above_the_limit_is_refused_and_the_connection_stays_open(carrier: Carrier) -> None:
    small = RpcLimits(max_message_bytes=100_000)
    request = AppendRequest(appends=[PartitionAppend(records=bytes(100_000))])

    async def stream_it(_: CommitsRequest, send: Send) -> None:
        await send(numbered(1))
        with suppress(Refused):
            await send(numbered(2, "x" * 100_000))
        await send(numbered(3))

    carrier.streaming = stream_it
    async with serving(carrier, small) as port:
        async with connected(port, small) as client:
            with pytest.raises(Refused, match=r"request of 1000\d\d bytes"):
                await client.append(request, timeout=TIMEOUT)
            with pytest.raises(Refused, match=r"reply of 1000\d\d bytes"):
                await client.fetch(FetchRequest(max_bytes=100_000), timeout=TIMEOUT)
            await client.fetch(FetchRequest(max_bytes=99_000), timeout=TIMEOUT)
            async with client.commits(CommitsRequest()) as stream:
                assert number_of(await stream.receive()) == 1
                with trio.fail_after(TIMEOUT), pytest.raises(Refused, match=r"reply of 1000\d\d bytes"):
                    await stream.receive()
        async with connected(port) as generous:
            # The server's own limit: gRPC reports it like an overload.
            with pytest.raises(Unavailable, match="larger than max"):
                await generous.append(request, timeout=TIMEOUT)
            await generous.fetch(FetchRequest(), timeout=TIMEOUT)


async def test_calls_above_the_limit_fail_at_once_and_health_is_still_answered(
    carrier: Carrier,
) -> None:
    inside, changed, release = 0, trio.Event(), trio.Event()

    async def hold(request: FetchRequest) -> FetchReply:
        nonlocal inside
        inside += 1
        changed.set()
        await release.wait()
        return await carrier.answer(request)

    async def call() -> None:
        await client.fetch(FetchRequest(), timeout=TIMEOUT)

    carrier.fetching = hold
    async with (
        serving(carrier, RpcLimits(max_calls=3)) as port,
        connected(port) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(3):
            nursery.start_soon(call)
        while inside < 3:
            changed = trio.Event()
            await changed.wait()
        with pytest.raises(Unavailable, match="limit of 3 concurrent calls"):
            await client.fetch(FetchRequest(), timeout=TIMEOUT)
        assert inside == 3
        assert await trio.to_thread.run_sync(_check, port, "") == Status.SERVING
        release.set()
        # The held calls are still ending.
        await until_answered(lambda: client.fetch(FetchRequest(), timeout=TIMEOUT))


async def test_connections_above_the_limit_are_closed_and_closed_ones_do_not_count(carrier: Carrier) -> None:
    async with serving(carrier, RpcLimits(max_connections=2)) as port, AsyncExitStack() as held:
        for _ in range(2):
            silent = await held.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            assert await silent.receive_some(100)
        async with connected(port) as client:
            with pytest.raises(Unavailable):
                await client.fetch(FetchRequest(), timeout=0.5)
            await held.aclose()
            await until_answered(lambda: client.fetch(FetchRequest(), timeout=TIMEOUT))


async def test_a_call_whose_caller_left_counts_towards_the_limit_until_it_ends(carrier: Carrier) -> None:
    entered, ending, end = trio.Event(), trio.Event(), trio.Event()

    async def linger(_: FetchRequest) -> FetchReply:
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            ending.set()
            with trio.CancelScope(shield=True):
                await end.wait()

    async def call() -> None:
        await client.fetch(FetchRequest(), timeout=TIMEOUT)

    carrier.fetching = linger
    async with serving(carrier, RpcLimits(max_calls=1)) as port, connected(port) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await entered.wait()
            nursery.cancel_scope.cancel()
        await ending.wait()
        with pytest.raises(Unavailable, match="limit of 1 concurrent calls"):
            await client.append(AppendRequest(), timeout=TIMEOUT)
        end.set()
        await until_answered(lambda: client.append(AppendRequest(), timeout=TIMEOUT))


async def test_a_method_that_the_peer_lacks_is_refused(carrier: Carrier) -> None:
    async with serving(carrier) as port, Channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(Refused):
            await IndexerClient(channel).verify(SegmentRef(), timeout=TIMEOUT)


async def test_a_request_that_is_not_a_message_is_corrupt(carrier: Carrier) -> None:
    async with serving(carrier) as port:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            garbage = channel.unary_unary(f"/{STORAGE}/Fetch", None, None).future(b"\xff\xff", timeout=TIMEOUT)
            error = await trio.to_thread.run_sync(garbage.exception)
    assert isinstance(error, grpc.Call)
    assert error.code() == grpc.StatusCode.DATA_LOSS


async def test_an_address_in_use_is_a_configuration_error(carrier: Carrier) -> None:
    async with serving(carrier) as port:
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            await RpcServer([bind_storage(carrier)]).run(f"127.0.0.1:{port}", trio.Event())


async def test_a_server_requires_a_service_object_with_every_method() -> None:
    class Half:
        async def write_indexes(self, request: WriteIndexesRequest) -> None: ...

    with pytest.raises(AttributeError, match="verify"):
        bind_indexer(Half())  # type: ignore[arg-type]


async def test_the_indexer_gives_the_same_answers_over_grpc_as_directly() -> None:
    service = IndexerService(MemoryObjectStore(), "ns", IndexerSettings())
    segment = SegmentRef(topic="t", partition=1, base_offset=2)
    page = WriteCatalogPageRequest(
        partition=PartitionRef(topic="t", topic_id=bytes(16), partition=1),
        epoch=3,
        segments=[CatalogSegment(base_offset=2, next_offset=4, size=99, records=2, epoch=3)],
    )

    indexes = WriteIndexesRequest(segments=[SegmentBatches(segment=segment, offsets=[2, 3], positions=[32, 99])])

    async def first_event(indexer: IndexerClient) -> RewriteEvent:
        async with indexer.rewrite(RewriteRequest(partition=page.partition, epoch=1)) as events:
            return await events.receive()

    async def answers(indexer: IndexerClient) -> list[object]:
        return [
            await indexer.write_indexes(indexes, timeout=TIMEOUT),
            await indexer.verify(segment, timeout=TIMEOUT),
            await indexer.rebuild(segment, timeout=TIMEOUT),
            await indexer.locate_timestamp(LocateTimestampRequest(topic="t", base_offsets=[2]), timeout=TIMEOUT),
            await indexer.write_catalog_page(page, timeout=TIMEOUT),
            await first_event(indexer),
        ]

    async with trio.open_nursery() as nursery:
        port = await nursery.start(RpcServer([bind_indexer(service)]).run, "127.0.0.1:0", trio.Event())
        async with Channel(f"127.0.0.1:{port}") as channel:
            over_grpc = IndexerClient(channel)
            assert await answers(over_grpc) == await answers(IndexerClient(Direct(bind_indexer(service))))
            unnamed = WriteCatalogPageRequest(partition=PartitionRef(topic="t"))
            with pytest.raises(CorruptData, match="topic id of 0 bytes"):
                await over_grpc.write_catalog_page(unnamed, timeout=TIMEOUT)
        nursery.cancel_scope.cancel()


async def test_health_is_reported_for_the_server_and_each_service(carrier: Carrier) -> None:
    async with trio.open_nursery() as nursery:
        server = RpcServer([bind_storage(carrier)])
        port = await nursery.start(server.run, "127.0.0.1:0", trio.Event())
        assert await trio.to_thread.run_sync(_check, port, "") == Status.SERVING
        assert await trio.to_thread.run_sync(_check, port, STORAGE) == Status.SERVING
        server.set_serving(serving=False)
        assert await trio.to_thread.run_sync(_check, port, "") == Status.NOT_SERVING
        assert await trio.to_thread.run_sync(_check, port, STORAGE) == Status.SERVING
        server.set_serving(serving=True)
        server.set_serving(service=STORAGE, serving=False)
        assert await trio.to_thread.run_sync(_check, port, "") == Status.SERVING
        assert await trio.to_thread.run_sync(_check, port, STORAGE) == Status.NOT_SERVING
        nursery.cancel_scope.cancel()


async def test_the_services_of_a_process_are_serving_from_its_first_readiness_on(
    carrier: Carrier,
) -> None:
    """A command can therefore find a started gateway, also when it is unhealthy."""
    settings, operations = Loaded(EVERY_SERVICE, {"KAFSCALE_RPC_ADDR": "127.0.0.1:0"}), Operations("storage")
    troubled = Finding(State.UNAVAILABLE, "in trouble")
    operations.health.add("s3", lambda: troubled, unready_from=State.UNAVAILABLE)
    endpoint = await Endpoint.bind("storage", settings, operations)
    port = int(endpoint.address.rpartition(":")[2])
    async with endpoint.serving(bind_storage(carrier)):
        assert await trio.to_thread.run_sync(_check, port, STORAGE) == Status.NOT_SERVING
        endpoint.ready(operations)
        assert await trio.to_thread.run_sync(_check, port, STORAGE) == Status.SERVING
        assert await trio.to_thread.run_sync(_check, port, "") == Status.NOT_SERVING


async def test_a_watcher_of_health_sees_a_stop_and_does_not_delay_it(carrier: Carrier) -> None:
    stop, seen = trio.Event(), []
    token = trio.lowlevel.current_trio_token()

    def watch(port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for reply in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT):
                seen.append(reply.status)
                token.run_sync_soon(stop.set)

    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            server = RpcServer([bind_storage(carrier)], RpcLimits(drain_seconds=10 * TIMEOUT))
            port = await nursery.start(server.run, "127.0.0.1:0", stop)
            await trio.to_thread.run_sync(watch, port)
    assert (seen[0], seen[-1]) == (Status.SERVING, Status.NOT_SERVING)


async def test_reflection_lists_and_describes_the_services(carrier: Carrier) -> None:
    async with serving(carrier) as port, Channel(f"127.0.0.1:{port}") as channel, channel.exchange(REFLECT) as exchange:
        await exchange.send(ReflectionRequest(list_services=""))
        listed = await exchange.receive()
        await exchange.send(ReflectionRequest(file_containing_symbol=STORAGE))
        described = await exchange.receive()
    names = {service.name for service in listed.list_services_response.service}
    assert names == {STORAGE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert b"AppendRequest" in b"".join(described.file_descriptor_response.file_descriptor_proto)


async def test_an_exchange_fails_in_both_directions_when_its_peer_is_gone(carrier: Carrier) -> None:
    with trio.fail_after(TIMEOUT):
        async with AsyncExitStack() as stack:
            async with serving(carrier) as port:
                channel = await stack.enter_async_context(Channel(f"127.0.0.1:{port}"))
                exchange = await stack.enter_async_context(channel.exchange(REFLECT))
                await exchange.send(ReflectionRequest(list_services=""))
                await exchange.receive()
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await exchange.receive()
                with pytest.raises(Unavailable, match="the stream is closed"):
                    await exchange.send(ReflectionRequest(list_services=""))


async def test_an_exchange_can_receive_while_another_task_sends(carrier: Carrier) -> None:
    received: list[str] = []

    async def follow(exchange: Exchange[Any, Any]) -> None:
        while len(received) < 10:
            reply = await exchange.receive()
            received.append(reply.original_request.host)

    async with (
        serving(carrier) as port,
        Channel(f"127.0.0.1:{port}") as channel,
        channel.exchange(REFLECT) as exchange,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(follow, exchange)
        for number in range(10):
            await trio.testing.wait_all_tasks_blocked()
            await exchange.send(ReflectionRequest(list_services="", host=str(number)))
    assert received == [str(number) for number in range(10)]


async def test_a_server_rejects_services_with_request_streams() -> None:
    with pytest.raises(TypeError, match="streams of requests"):
        bind(_REFLECTION, object())


def _check(port: int, service: str) -> int:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        status: int = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT).status
        return status
