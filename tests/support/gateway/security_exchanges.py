"""Exchanges as in ``exchanges.py`` for authentication, users and quotas, on a listener without SASL."""

from datetime import timedelta
from typing import Any

from kafscale.security.quotas import Entity
from tests.support.gateway.exchanges import Exchange, nested
from tests.support.gateway.harness import Client, Harness


async def sasl_handshake(harness: Harness, client: Client, version: int) -> None:
    reply = await client.ask(17, version, mechanism="PLAIN")
    assert (reply.error_code, reply.mechanisms) == (34, ())


async def sasl_authenticate(harness: Harness, client: Client, version: int) -> None:
    reply = await client.ask(36, version, auth_bytes=b"\x00ann\x00secret")
    assert (reply.error_code, reply.auth_bytes) == (34, b"")
    assert reply.error_message


async def describe_user_scram_credentials(harness: Harness, client: Client, version: int) -> None:
    user = nested(50, version, "UserName")
    everybody = await client.ask(50, version, users=None)
    assert (everybody.throttle_time, everybody.error_code, everybody.results) == (timedelta(0), 0, ())
    reply = await client.ask(50, version, users=(user(name="a"), user(name="b"), user(name="b")))
    assert (reply.error_code, reply.error_message) == (0, None)
    assert [(each.user, each.error_code) for each in reply.results] == [("a", 91), ("b", 92)]


async def alter_user_scram_credentials(harness: Harness, client: Client, version: int) -> None:
    deletion, upsertion, user = (
        nested(51, version, "ScramCredentialDeletion"),
        nested(51, version, "ScramCredentialUpsertion"),
        nested(50, 0, "UserName"),
    )

    def new(name: str, mechanism: int = 1, iterations: int = 4096) -> Any:
        return upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(32))

    async def known() -> list[tuple[str, list[tuple[int, int]]]]:
        reply = await client.ask(50, 0, users=None)
        return [
            (each.user, [(one.mechanism, one.iterations) for one in each.credential_infos]) for each in reply.results
        ]

    reply = await client.ask(
        51,
        version,
        deletions=(deletion(name="a", mechanism=1), deletion(name="b", mechanism=9)),
        upsertions=(
            new("c"),
            new("d", 0),
            new(""),
            new("e", 1, 4095),
            new("f", 1, 16385),
            new("g"),
            new("g"),
            new("h"),
        ),
    )
    assert reply.throttle_time == timedelta(0)
    results = [(each.user, each.error_code) for each in reply.results]
    assert results == [("a", 91), ("b", 33), ("c", 0), ("d", 33), ("", 93), ("e", 93), ("f", 93), ("g", 92), ("h", 0)]
    assert all(bool(each.error_message) == bool(each.error_code) for each in reply.results)
    assert await known() == [("c", [(1, 4096)]), ("h", [(1, 4096)])]
    reply = await client.ask(51, version, deletions=(), upsertions=(new("c", 2, 8192),))
    assert [each.error_code for each in reply.results] == [0]
    assert await known() == [("c", [(1, 4096), (2, 8192)]), ("h", [(1, 4096)])]
    found = await client.ask(50, 0, users=(user(name="h"),))
    assert [(each.user, each.error_code) for each in found.results] == [("h", 0)]
    deletions = (deletion(name="c", mechanism=1), deletion(name="h", mechanism=2))
    reply = await client.ask(51, version, deletions=deletions, upsertions=())
    assert [(each.user, each.error_code) for each in reply.results] == [("c", 0), ("h", 91)]
    assert await known() == [("c", [(2, 8192)]), ("h", [(1, 4096)])]
    reply = await client.ask(51, version, deletions=(deletion(name="h", mechanism=1),), upsertions=())
    assert await known() == [("c", [(2, 8192)])]


async def describe_client_quotas(harness: Harness, client: Client, version: int) -> None:
    component = nested(48, version, "ComponentData")
    both = Entity.of({"client-id": None, "user": "a"})
    await harness.parts.quotas.change(both, lambda _: {"request_percentage": 1.5, "consumer_byte_rate": 7.0})
    await harness.parts.quotas.change(Entity.of({"ip": None}), lambda _: {"connection_creation_rate": 9.0})
    of_user = component(entity_type="user", match_type=0, match="a")
    cases: tuple[tuple[tuple[Any, ...], bool, int, int | None], ...] = (
        ((), False, 0, 2),
        ((of_user,), False, 0, 1),
        ((of_user,), True, 0, 0),
        ((of_user, component(entity_type="client-id", match_type=1, match=None)), True, 0, 1),
        ((component(entity_type="user", match_type=1, match=None),), False, 0, 0),
        ((component(entity_type="ip", match_type=2, match=None),), True, 0, 1),
        ((component(entity_type="team", match_type=2, match=None),), False, 35, None),
        ((component(entity_type="user", match_type=0, match=None),), False, 42, None),
    )
    for requested, strict, error, found in cases:
        reply = await client.ask(48, version, components=requested, strict=strict)
        assert (reply.throttle_time, reply.error_code, bool(reply.error_message)) == (timedelta(0), error, bool(error))
        assert (reply.entries is None) == (found is None)
        if found == 1 and requested[0] is of_user:
            (entry,) = reply.entries
            assert [(each.entity_type, each.entity_name) for each in entry.entity] == [
                ("user", "a"),
                ("client-id", None),
            ]
            values = [(each.key, each.value) for each in entry.values]
            assert values == [("consumer_byte_rate", 7.0), ("request_percentage", 1.5)]
        else:
            assert len(reply.entries or ()) == (found or 0)


async def alter_client_quotas(harness: Harness, client: Client, version: int) -> None:
    entry, entity, op = (nested(49, version, name) for name in ("EntryData", "EntityData", "OpData"))
    user = (entity(entity_type="user", entity_name="a"), entity(entity_type="client-id", entity_name=None))
    address = (entity(entity_type="ip", entity_name="127.0.0.1"),)
    sets = op(key="producer_byte_rate", value=1024.0, remove=False)
    removes = op(key="consumer_byte_rate", value=0.0, remove=True)
    connects = op(key="connection_creation_rate", value=100.0, remove=False)
    requested = (
        (user, (removes, sets), 0),
        (address, (connects,), 0),
        ((entity(entity_type="user", entity_name="b"),), (connects,), 42),
        ((entity(entity_type="ip", entity_name="example.org"),), (connects,), 42),
        ((entity(entity_type="team", entity_name="a"),), (sets,), 42),
        ((entity(entity_type="user", entity_name=""),), (sets,), 42),
        ((*user, *address), (sets,), 42),
        ((), (sets,), 42),
        ((entity(entity_type="user", entity_name="c"),), (sets, sets), 42),
    )
    entries = tuple(entry(entity=whom, ops=ops) for whom, ops, _ in requested)
    for validate_only in (True, False):
        assert harness.parts.quotas.quotas == {}
        reply = await client.ask(49, version, entries=entries, validate_only=validate_only)
        assert reply.throttle_time == timedelta(0)
        results = [(each.error_code, bool(each.error_message)) for each in reply.entries]
        assert results == [(error, bool(error)) for _, _, error in requested]
        assert [[(each.entity_type, each.entity_name) for each in one.entity] for one in reply.entries] == [
            [(each.entity_type, each.entity_name) for each in one.entity] for one in entries
        ]
    both = Entity.of({"user": "a", "client-id": None})
    assert harness.parts.quotas.quotas[both] == {"producer_byte_rate": 1024.0}
    assert len(harness.parts.quotas.quotas) == 2
    gone = op(key="producer_byte_rate", value=0.0, remove=True)
    twice = (entry(entity=user, ops=(gone,)), entry(entity=user, ops=(sets,)))
    reply = await client.ask(49, version, entries=twice, validate_only=False)
    assert [each.error_code for each in reply.entries] == [42]
    assert both not in harness.parts.quotas.quotas


EXCHANGES: dict[int, Exchange] = {
    17: sasl_handshake,
    36: sasl_authenticate,
    48: describe_client_quotas,
    49: alter_client_quotas,
    50: describe_user_scram_credentials,
    51: alter_user_scram_credentials,
}
