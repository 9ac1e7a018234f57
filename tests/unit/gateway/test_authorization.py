"""Which requests are allowed to a client, and what happens to one that is not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kafscale.security.acls import OPERATIONS, Acl, Operation, PatternType, Permission, ResourceType
from kafscale.security.asks import Ask
from kafscale.security.principals import ANONYMOUS
from kafscale.v1 import coordinator_pb2 as pb
from services.gateway.access.authorization import Authorization
from services.gateway.api import Api, Call, Work
from services.gateway.clients.registry import APIS
from tests.support.gateway.advertised import EXCHANGES
from tests.support.gateway.asking import fetch_body, produce, produce_body
from tests.support.gateway.exchanges import nested
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import Client, Harness, batch, read_response, running_gateway

TOPIC_DENIED, INVALID_REQUEST = 29, 42
# There are no transactions to list.
WITHOUT = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "ListTransactions"}


def acl(
    operation: Operation,
    name: str = "t",
    *,
    type_: ResourceType = ResourceType.TOPIC,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(type_, pattern, name, str(ANONYMOUS), host, operation, permission)


@asynccontextmanager
async def with_acls(**settings: Any) -> AsyncIterator[tuple[Harness, Client]]:
    """A gateway with ACLs, the topic t, and a client that is not authenticated."""
    async with running_gateway(FakeStorage(), acls=True, **settings) as harness:
        await harness.topic("t")
        yield harness, await harness.connect()


async def offsets_error(client: Client) -> int:
    partition = nested(2, 5, "ListOffsetsPartition")(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topic = nested(2, 5, "ListOffsetsTopic")(name="t", partitions=(partition,))
    reply = await client.ask(2, 5, replica_id=-1, isolation_level=0, topics=(topic,))
    return int(reply.topics[0].partitions[0].error_code)


def test_every_api_asks() -> None:
    assert {api.name for api in APIS.values() if api.needs is None and not api.asks} == WITHOUT


@pytest.mark.parametrize("key", EXCHANGES)
async def test_nothing_is_asked_that_the_documents_do_not_list(key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[Api] = []
    needed = {api.needs for api in APIS.values()}
    asked: list[tuple[Api, Ask]] = []

    def handle(api: Api, call: Call) -> Work | None:
        handled.append(api)
        return api.handle(call)

    def allows(self: Authorization, ask: Ask, name: str = "") -> bool:
        # What every request of an API needs is asked before it is handled.
        if ask not in needed:
            asked.append((handled[-1], ask))
        return True

    for each, api in APIS.items():
        monkeypatch.setitem(APIS, each, replace(api, handle=partial(handle, api)))
    monkeypatch.setattr(Authorization, "allows", allows)
    monkeypatch.setattr(
        Authorization, "operations", lambda _, type_, name="": sum(1 << each for each in OPERATIONS[type_])
    )
    async with running_gateway() as harness:
        await EXCHANGES[key](harness, await harness.connect(), APIS[key].versions[-1])
    assert APIS[key].key in {api.key for api in handled}
    assert not {f"{api.name}: {ask}" for api, ask in asked if ask not in api.asks}


async def test_decisions_of_an_open_connection_follow_the_acls() -> None:
    async with with_acls() as (harness, client):
        acls = harness.parts.acls
        assert await offsets_error(client) == TOPIC_DENIED
        await acls.create([acl(Operation.READ)])
        assert await offsets_error(client) == 0
        await acls.create([acl(Operation.DESCRIBE, permission=Permission.DENY)])
        assert await offsets_error(client) == TOPIC_DENIED
        await acls.delete(sorted(acls.current.acls))
        await acls.create([acl(Operation.DESCRIBE, host="10.9.9.9")])
        assert await offsets_error(client) == TOPIC_DENIED
        await acls.create([acl(Operation.DESCRIBE, host="127.0.0.1")])
        assert await offsets_error(client) == 0


async def test_super_users_and_resources_without_acls() -> None:
    async with with_acls(super_users=(ANONYMOUS,)) as (_, client):
        assert await offsets_error(client) == 0
    async with with_acls(allow_without_acl=True) as (harness, client):
        assert await offsets_error(client) == 0
        await harness.parts.acls.create([acl(Operation.WRITE, host="10.9.9.9")])
        assert await offsets_error(client) == TOPIC_DENIED


async def test_a_denial_is_logged_with_the_client() -> None:
    async with with_acls() as (_, client):
        with capture_logs() as logged:
            await offsets_error(client)
    (line,) = [line for line in logged if line["event"] == "access"]
    assert (line["principal"], line["host"], line["client_id"]) == ("User:ANONYMOUS", "127.0.0.1", "test")
    assert (line["operation"], line["resource"], line["decision"]) == ("DESCRIBE", "TOPIC:t", "denied")


async def test_offsets_are_those_asked_for_if_an_acl_changes_meanwhile() -> None:
    async with with_acls() as (harness, client):
        acls, (coordinator,) = harness.parts.acls, harness.cluster.coordinators.values()
        infos = [await harness.topic(name) for name in ("a", "b")]
        rights = [acl(Operation.READ, name) for name in ("a", "b")]
        rights += [acl(Operation.READ, name, type_=ResourceType.GROUP) for name in ("g1", "g2")]
        await acls.create(rights)
        for group, base in (("g1", 100), ("g2", 200)):
            commit = pb.OffsetCommitRequest(group=group, generation=-1, retention_ms=-1)
            for number, info in enumerate(infos):
                commit.offsets.add(topic=info.name, topic_id=info.id, offset=base + number, leader_epoch=-1)
            await coordinator.offset_commit(commit, timeout=5)
        topics = tuple(nested(9, 8, "OffsetFetchRequestTopics")(name=name, partition_indexes=(0,)) for name in "ab")
        groups = tuple(nested(9, 8, "OffsetFetchRequestGroup")(group_id=group, topics=topics) for group in ("g1", "g2"))
        offsets: dict[tuple[str, str], int] = {}

        async def ask() -> None:
            reply = await client.ask(9, 8, groups=groups, require_stable=False)
            for group in reply.groups:
                for topic in group.topics:
                    offsets[group.group_id, topic.name] = topic.partitions[0].committed_offset

        for changed in (rights[0], rights[2]):
            coordinator.gate = gate = trio.Event()
            before = len(coordinator.requests)
            offsets.clear()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await coordinator.wait_until(lambda before=before: len(coordinator.requests) > before)  # type: ignore[misc]
                await acls.delete([changed])
                gate.set()
            coordinator.gate = None
            assert offsets == {("g1", "a"): 100, ("g1", "b"): 101, ("g2", "a"): 200, ("g2", "b"): 201}
            await acls.create([changed])


async def test_a_fetch_that_waited_returns_nothing_of_a_topic_that_is_not_allowed_any_more() -> None:
    async with with_acls() as (harness, client):
        read, write = acl(Operation.READ), acl(Operation.WRITE)
        await harness.parts.acls.create([read, write])
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await harness.storage.wait_until(lambda: bool(harness.storage.fetches))
        await harness.parts.acls.delete([read])
        assert (await produce(await harness.connect(), batch(b"secret"))).error_code == 0
        _, body = await client.receive()
        (partition,) = read_response(1, 12, body).responses[0].partitions
        assert (partition.error_code, partition.records, partition.high_watermark) == (TOPIC_DENIED, b"", -1)


async def test_an_acks_0_producer_that_may_not_write_is_disconnected() -> None:
    async with with_acls() as (_, client):
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}, acks=0))
        assert await client.closed()


async def test_the_number_of_acls_is_limited() -> None:
    async with with_acls(max_acls=2) as (harness, client):
        rights = acl(Operation.ALL, "kafka-cluster", type_=ResourceType.CLUSTER)
        await harness.parts.acls.create([rights])
        new = [
            nested(30, 3, "AclCreation")(
                resource_type=2,
                resource_name=name,
                resource_pattern_type=3,
                principal="User:ann",
                host="*",
                operation=3,
                permission_type=3,
            )
            for name in ("a", "b")
        ]
        reply = await client.ask(30, 3, creations=tuple(new))
        assert [each.error_code for each in reply.results] == [INVALID_REQUEST] * 2
        assert "KAFSCALE_MAX_ACLS" in reply.results[0].error_message
        reply = await client.ask(30, 3, creations=tuple(new[:1]))
        assert [each.error_code for each in reply.results] == [0]
