"""A service that requires a token from its callers, and errors with custom gRPC statuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
import trio

from kafscale.errors import Refused, Unavailable
from kafscale.rpc.client import Channel, Metadata
from kafscale.rpc.errors import StatusError, error_of
from kafscale.rpc.methods import bind, method
from kafscale.rpc.peer_health import PeerHealth
from kafscale.rpc.server import RpcServer
from kafscale.v1 import storage_pb2 as pb
from tests.support.carrier import TIMEOUT, Carrier, Send

TOKEN = "a-token-of-22-characters"
STORAGE = pb.DESCRIPTOR.services_by_name["SegmentStorage"]
FETCH = method(STORAGE, "Fetch", pb.FetchRequest, pb.FetchReply)
COMMITS = method(STORAGE, "Commits", pb.CommitsRequest, pb.CommitsEvent)


@asynccontextmanager
async def _asking_for(token: str, carrier: Carrier) -> AsyncIterator[Channel]:
    async with trio.open_nursery() as nursery:
        server = RpcServer([bind(STORAGE, carrier, token=token)])
        port = await nursery.start(server.run, "127.0.0.1:0", trio.Event())
        async with Channel(f"127.0.0.1:{port}", error_of=StatusError) as channel:
            yield channel
        nursery.cancel_scope.cancel()


def _bearer(token: str, scheme: str = "Bearer") -> Metadata:
    return (("authorization", f"{scheme} {token}"),)


@pytest.mark.parametrize("metadata", [_bearer(TOKEN), _bearer(TOKEN, "bearer"), (("other", "x"), *_bearer(TOKEN))])
async def test_a_call_with_the_token_is_answered(carrier: Carrier, metadata: Metadata) -> None:
    async with _asking_for(TOKEN, carrier) as channel:
        await channel.call(FETCH, pb.FetchRequest(), timeout=TIMEOUT, metadata=metadata)


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        _bearer(""),
        _bearer(TOKEN[:-1]),
        _bearer(TOKEN + "x"),
        _bearer(TOKEN, "Basic"),
        (("authorization", TOKEN),),
        (*_bearer("another-one-of-22-chars"), *_bearer(TOKEN)),
    ],
)
async def test_a_call_without_the_token_is_unauthenticated_and_does_not_reach_the_service(
    carrier: Carrier, metadata: Metadata
) -> None:
    async with _asking_for(TOKEN, carrier) as channel:
        with pytest.raises(StatusError, match="the token is missing or wrong") as raised:
            await channel.call(FETCH, pb.FetchRequest(), timeout=TIMEOUT, metadata=metadata)
        assert raised.value.code is grpc.StatusCode.UNAUTHENTICATED
        async with channel.stream(COMMITS, pb.CommitsRequest(), metadata=metadata) as stream:
            with pytest.raises(StatusError, match="the token is missing or wrong"):
                await stream.receive()
        assert not carrier.entered.is_set()


async def test_health_needs_no_token(carrier: Carrier) -> None:
    async with _asking_for(TOKEN, carrier) as channel:
        assert await PeerHealth(channel).serving(STORAGE.full_name, timeout=TIMEOUT)
        with pytest.raises(StatusError) as raised:
            await PeerHealth(channel).serving("no.Such", timeout=TIMEOUT)
        assert raised.value.code is grpc.StatusCode.NOT_FOUND


async def test_no_token_is_required_without_a_configured_one(carrier: Carrier) -> None:
    async with _asking_for("", carrier) as channel:
        await channel.call(FETCH, pb.FetchRequest(), timeout=TIMEOUT)
        await channel.call(FETCH, pb.FetchRequest(), timeout=TIMEOUT, metadata=_bearer("any"))


async def test_a_custom_status_arrives_unchanged(carrier: Carrier) -> None:
    async def refuse(_: pb.FetchRequest) -> pb.FetchReply:
        raise StatusError(grpc.StatusCode.ALREADY_EXISTS, "there is one")

    async def refuse_stream(_: pb.CommitsRequest, send: Send) -> None:
        raise StatusError(grpc.StatusCode.NOT_FOUND, "")

    carrier.fetching, carrier.streaming = refuse, refuse_stream
    async with _asking_for("", carrier) as channel:
        with pytest.raises(StatusError, match="there is one") as raised:
            await channel.call(FETCH, pb.FetchRequest(), timeout=TIMEOUT)
        assert raised.value.code is grpc.StatusCode.ALREADY_EXISTS
        async with channel.stream(COMMITS, pb.CommitsRequest()) as stream:
            with pytest.raises(StatusError, match="NOT_FOUND"):
                await stream.receive()


def test_services_map_a_custom_status_to_an_error_kind() -> None:
    assert isinstance(error_of(grpc.StatusCode.UNAUTHENTICATED, ""), Refused)
    assert isinstance(error_of(grpc.StatusCode.NOT_FOUND, ""), Unavailable)
