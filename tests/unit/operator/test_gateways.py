"""The operator's requests to gateways: two gRPC servers of one cluster."""

import grpc
import pytest
import trio

from kafscale.config.calls import RpcSettings
from kafscale.config.settings import load
from kafscale.rpc.admin import bind_admin
from kafscale.rpc.errors import StatusError
from kafscale.rpc.server import RpcServer
from services.operator.gateways import Gateways, is_refusal, reason_of
from services.operator.topics.plan import Configure, Create, Grow
from tests.support.gateway.admin import admin_of
from tests.support.gateway.admin_server import PATIENT
from tests.support.gateway.harness import running_gateway

TOKEN = "only-operators-know-this"


async def test_topics_are_changed_through_one_gateway_and_then_another() -> None:
    async with running_gateway() as harness:
        servers, ends = [], [trio.Event(), trio.Event()]
        for end in ends:
            server = RpcServer([bind_admin(await admin_of(harness), token=TOKEN)])
            servers.append(f"127.0.0.1:{await harness.nursery.start(server.run, '127.0.0.1:0', end)}")
        async with Gateways(load(RpcSettings, PATIENT), token=TOKEN, timeout=60.0) as gateways:
            async with gateways.serving(servers) as gateway:
                assert await gateway.describe("orders") is None
                made = await gateway.act("orders", None, Create(2, {"flush.ms": "5"}))
                assert (made.partitions, made.configs) == (2, {"flush.ms": "5"})
                grown = await gateway.act("orders", made, Grow(2, 3))
                changed = await gateway.act("orders", grown, Configure({"retention.ms": "9"}, ("flush.ms",)))
                assert changed == await gateway.describe("orders")
                assert (changed.partitions, changed.configs) == (3, {"retention.ms": "9"})
            with pytest.raises(StatusError) as refused:
                async with gateways.serving(servers) as gateway:
                    await gateway.act("orders", changed, Grow(3, 1))
            assert is_refusal(refused.value)
            ends[0].set()
            with pytest.raises(StatusError) as lost:
                await _ask_for_ever(gateways, servers)
            assert lost.value.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            async with gateways.serving(servers) as gateway:
                assert await gateway.delete("orders")
                assert not await gateway.delete("orders")
        async with Gateways(load(RpcSettings, PATIENT), token="", timeout=60.0) as gateways:
            with pytest.raises(StatusError) as refused:
                async with gateways.serving(servers) as gateway:
                    await gateway.describe("orders")
            assert reason_of(refused.value) == "Unauthenticated"
        ends[1].set()


async def _ask_for_ever(gateways: Gateways, servers: list[str]) -> None:
    while True:
        async with gateways.serving(servers) as gateway:
            await gateway.describe("orders")
