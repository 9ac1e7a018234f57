"""The operator's requests to gateways: two gRPC servers of one cluster."""

import time

import grpc
import pytest
import trio

from kafscale.audit import AuditLog
from kafscale.config.calls import RpcSettings
from kafscale.config.settings import load
from kafscale.rpc.access import CallGuard
from kafscale.rpc.admin import bind_admin
from kafscale.rpc.errors import StatusError
from kafscale.rpc.server import RpcServer
from kafscale.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafscale.security.principals import NameRules
from kafscale.security.scram import Mechanism, has_password
from services.gateway.admin.needs import NEEDS
from services.operator.gateways import Gateways, is_refusal, reason_of
from services.operator.topics.plan import Configure, Create, Grow
from services.operator.users.passwords import Password
from services.operator.users.plan import Rule
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


async def test_users_are_changed_with_the_token_although_acls_allow_nothing() -> None:
    others = Acl(ResourceType.TOPIC, PatternType.PREFIXED, "t", "User:bob", "*", Operation.READ, Permission.ALLOW)
    ann = frozenset(
        {Rule("TOPIC", "PREFIXED", "t", "*", "READ", "ALLOW"), Rule("GROUP", "LITERAL", "t", "*", "ALL", "DENY")}
    )
    async with running_gateway(acls=True) as harness:
        catalog, end = harness.parts.acls, trio.Event()
        assert catalog is not None
        await catalog.create([others])
        guard = CallGuard(
            lambda: catalog.current, NameRules(), NEEDS, audit=AuditLog("off", 1, clock=time.monotonic), token=TOKEN
        )
        server = RpcServer([bind_admin(await admin_of(harness), token=TOKEN, guard=guard)])
        servers = [f"127.0.0.1:{await harness.nursery.start(server.run, '127.0.0.1:0', end)}"]
        password = Password(b"secret", "1")
        known = password.known("SCRAM-SHA-256", 4096)
        async with (
            Gateways(load(RpcSettings, PATIENT), token=TOKEN, timeout=60.0) as gateways,
            gateways.serving(servers) as gateway,
        ):
            for name in ("ann", "anna"):
                await gateway.set_credentials(name, [password.credential("SCRAM-SHA-256", known)])
            assert await gateway.credentials("ann") == {"SCRAM-SHA-256": known}
            stored = harness.parts.users.users["ann"].credentials[Mechanism.SHA_256]
            assert has_password(Mechanism.SHA_256, stored, b"secret")
            for _ in range(2):
                await gateway.delete_credentials("ann", ["SCRAM-SHA-256"])
            assert await gateway.credentials("ann") == {}
            await gateway.create_acls("ann", ann)
            assert await gateway.acls("ann") == ann
            for _ in range(2):
                await gateway.delete_acls("ann", ann)
            assert await gateway.acls("ann") == frozenset()
        assert catalog.current.acls == {others}
        assert set(harness.parts.users.users) == {"anna"}
        async with Gateways(load(RpcSettings, PATIENT), token="", timeout=60.0) as gateways:
            with pytest.raises(StatusError) as refused:
                async with gateways.serving(servers) as gateway:
                    await gateway.credentials("ann")
        assert reason_of(refused.value) == "PermissionDenied"
        end.set()


async def test_a_gateway_without_acls_reports_none() -> None:
    async with running_gateway() as harness:
        server, end = RpcServer([bind_admin(await admin_of(harness))]), trio.Event()
        servers = [f"127.0.0.1:{await harness.nursery.start(server.run, '127.0.0.1:0', end)}"]
        async with (
            Gateways(load(RpcSettings, PATIENT), token="", timeout=60.0) as gateways,
            gateways.serving(servers) as gateway,
        ):
            assert await gateway.acls("ann") is None
        end.set()


async def _ask_for_ever(gateways: Gateways, servers: list[str]) -> None:
    while True:
        async with gateways.serving(servers) as gateway:
            await gateway.describe("orders")
