"""Exchanges as in ``exchanges.py`` for authentication and users, on a listener without SASL."""

from datetime import timedelta
from typing import Any

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


EXCHANGES: dict[int, Exchange] = {
    17: sasl_handshake,
    36: sasl_authenticate,
    50: describe_user_scram_credentials,
    51: alter_user_scram_credentials,
}
