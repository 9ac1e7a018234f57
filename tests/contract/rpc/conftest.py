"""The transports that the contract covers. A new one needs a name in `transport` and a branch in `storage`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio

from kafscale.errors import Unavailable
from kafscale.rpc.client import Channel
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_storage
from tests.support.carrier import TIMEOUT, Carrier


@pytest.fixture(params=["direct", "grpc"])
def transport(request: pytest.FixtureRequest) -> str:
    return cast(str, request.param)


@pytest.fixture
def carrier() -> Carrier:
    return Carrier()


@pytest.fixture
async def storage(transport: str, carrier: Carrier) -> AsyncIterator[SegmentStorageClient]:
    if transport == "direct":
        yield SegmentStorageClient(Direct(bind_storage(carrier)))
    else:
        async with serving(carrier) as port, connected(port) as client:
            yield client


@asynccontextmanager
async def serving(carrier: Carrier, limits: RpcLimits | None = None) -> AsyncIterator[int]:
    """Run a server and yield its port. The server is cancelled at the end."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(RpcServer([bind_storage(carrier)], limits).run, "127.0.0.1:0", trio.Event())
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(port: int, limits: RpcLimits | None = None) -> AsyncIterator[SegmentStorageClient]:
    async with Channel(f"127.0.0.1:{port}", limits) as channel:
        yield SegmentStorageClient(channel)


async def until_answered(call: Callable[[], Awaitable[object]]) -> None:
    """Call again after a pause until there is an answer, as callers do."""
    with trio.fail_after(TIMEOUT):
        while True:
            try:
                await call()
                return
            except Unavailable:
                await trio.sleep(0.01)
