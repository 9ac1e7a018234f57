"""Listeners with OAUTHBEARER: which tokens authenticate a client, and what others are answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from kafscale.kafka_client.connection import Login, Security, connect
from kafscale.kafka_client.requests import Refusal
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.users import UserCatalog
from kafscale.process import token_keys
from kafscale.process.token_keys import TokenKeys
from kafscale.process.tokens import TokenVerifier
from kafscale.security import tokens as security_tokens
from kafscale.security.tokens import KeySet, TokenRules, Verified
from services.gateway.access.authentication import Authentication, Authenticator
from tests.support.gateway.advertised import closing_line
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import NOW_MS, Client, Cluster, Harness, running_gateway
from tests.support.issuer import AUDIENCE, ISSUER, Issuer

NOW = NOW_MS / 1000
FAILED = 58
INVALID = b'{"status":"invalid_token"}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    publish(path, Issuer())
    return path


def publish(path: Path, issuer: Issuer) -> None:
    path.write_bytes(issuer.document)


@asynccontextmanager
async def gateway(file: Path, **settings: Any) -> AsyncIterator[Harness]:
    """A gateway that accepts the tokens of the keys in a file."""
    given = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl_mechanisms": ("OAUTHBEARER", "PLAIN"),
        "token_keys_url": file.as_uri(),
        "token_issuer": ISSUER,
        "token_audiences": (AUDIENCE,),
    }
    async with running_gateway(**{**given, **settings}) as harness:
        yield harness


async def authenticate(client: Client, token: str, acts_for: str = "", mechanism: str = "OAUTHBEARER") -> Any:
    """Name the mechanism and send the token. Return the reply."""
    reply = await client.ask(17, 1, mechanism=mechanism)
    assert reply.error_code == 0
    return await send(client, f"n,{acts_for and 'a='}{acts_for},\x01auth=Bearer {token}\x01\x01".encode())


async def send(client: Client, message: bytes) -> Any:
    return await client.ask(36, 2, auth_bytes=message)


async def is_served(client: Client) -> bool:
    code: int = (await client.ask(60, 1, include_cluster_authorized_operations=False)).error_code
    return code == 0


async def test_a_client_with_a_valid_token_is_served(file: Path) -> None:
    async with gateway(file) as harness:
        client = await harness.connect()
        reply = await authenticate(client, Issuer().token(NOW + 60))
        assert (reply.error_code, reply.error_message, reply.auth_bytes) == (0, None, b"")
        assert reply.session_lifetime.total_seconds() == 90
        assert await is_served(client)
        # The session has an end, so the client may authenticate again.
        assert (await authenticate(client, Issuer().token(NOW + 30))).session_lifetime.total_seconds() == 60
        assert await is_served(client)


@pytest.mark.parametrize(("max_reauth_ms", "seconds"), [(20_000, 20), (3_600_000, 90)])
async def test_the_session_is_not_longer_than_the_setting(file: Path, max_reauth_ms: int, seconds: int) -> None:
    async with gateway(file, sasl_max_reauth_ms=max_reauth_ms) as harness:
        reply = await authenticate(await harness.connect(), Issuer().token(NOW + 60))
        assert reply.session_lifetime.total_seconds() == seconds


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (Issuer().token(NOW - 60), "the token has expired"),
        (Issuer().token(NOW + 60, aud="billing"), "the token is for another audience"),
        (Issuer("unknown").token(NOW + 60), "the token's key id is unknown"),
        ("opaque", "the token is not a valid JSON Web Token"),
    ],
)
async def test_a_refused_client_is_told_by_json_and_then_disconnected(file: Path, token: str, reason: str) -> None:
    async with gateway(file) as harness:
        client = await harness.connect()
        with capture_logs() as logged:
            reply = await authenticate(client, token)
            assert (reply.error_code, reply.error_message, reply.auth_bytes) == (0, None, INVALID)
            reply = await send(client, b"\x01")
        assert (reply.error_code, reply.error_message, reply.auth_bytes) == (FAILED, INVALID.decode(), b"")
        assert await client.closed()
        assert [line["reason"] for line in logged if line["event"] == "authentication failed"] == [reason]


async def test_a_refused_client_cannot_continue_with_another_token(file: Path) -> None:
    async with gateway(file) as harness:
        client = await harness.connect()
        await authenticate(client, "opaque")
        assert (
            await send(client, f"n,,\x01auth=Bearer {Issuer().token(NOW + 60)}\x01\x01".encode())
        ).error_code == FAILED
        assert await client.closed()
        client = await harness.connect()
        await authenticate(client, "opaque")
        with capture_logs() as logged:
            await client.send(60, 1, b"\x00\x01\x00")
            line = await closing_line(logged)
        assert line["reason"] == "DescribeCluster request before authentication"


async def test_a_missing_scope_is_named(file: Path) -> None:
    async with gateway(file, token_scope="kafka") as harness:
        reply = await authenticate(await harness.connect(), Issuer().token(NOW + 60, scope="mail"))
        assert reply.auth_bytes == b'{"status":"insufficient_scope","scope":"kafka"}'
        client = await harness.connect()
        assert (await authenticate(client, Issuer().token(NOW + 60, scope="mail kafka"))).auth_bytes == b""
        assert await is_served(client)


async def test_a_client_can_act_only_for_the_user_of_its_token(file: Path) -> None:
    async with gateway(file) as harness:
        client = await harness.connect()
        assert (await authenticate(client, Issuer().token(NOW + 60), acts_for="ann")).auth_bytes == b""
        assert await is_served(client)
        client = await harness.connect()
        reply = await authenticate(client, Issuer().token(NOW + 60), acts_for="root")
        assert (reply.error_code, "authorization id" in reply.error_message) == (FAILED, True)
        assert await client.closed()


async def test_a_message_without_a_token_is_refused(file: Path) -> None:
    async with gateway(file) as harness:
        client = await harness.connect()
        reply = await authenticate(client, "to ken")
        assert (reply.error_code, reply.auth_bytes) == (FAILED, b"")
        assert "OAUTHBEARER" in reply.error_message
        assert await client.closed()


async def test_another_user_cannot_renew_a_session(file: Path) -> None:
    async with gateway(file) as harness:
        client = await harness.connect()
        await authenticate(client, Issuer().token(NOW + 60))
        reply = await authenticate(client, Issuer().token(NOW + 60, sub="bob"))
        assert (reply.error_code, "cannot change" in reply.error_message) == (FAILED, True)
        assert await client.closed()


def verifier(document: bytes | None = None) -> tuple[TokenVerifier, TokenKeys]:
    """Return a verifier whose clock begins at NOW, and its keys, which are not read."""

    async def nothing() -> bytes:
        raise AssertionError

    began = trio.current_time()
    known = TokenKeys(nothing, 3600)
    if document is not None:
        known.current = KeySet.parse(document)
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,))
    return TokenVerifier(rules, known, lambda: NOW + trio.current_time() - began), known


async def test_a_session_ends_with_the_token_unless_it_is_renewed(autojump_clock: MockClock) -> None:
    authenticator = Authenticator(UserCatalog(MemoryMetadataStore(), "ns"), verifier(Issuer().document)[0])
    client = Authentication(None, mechanisms=("OAUTHBEARER",), authenticator=authenticator)

    async def present(expires_at: float) -> bytes:
        assert client.may_begin
        assert client.choose("OAUTHBEARER")
        return (await client.proceed(f"n,,\x01auth=Bearer {Issuer().token(expires_at)}\x01\x01".encode())).message

    assert await present(NOW + 60) == b""
    await trio.sleep(80)
    assert not client.expired
    assert await present(NOW + 120) == b""
    await trio.sleep(60)
    assert not client.expired
    assert await present(NOW + 100) == INVALID
    await trio.sleep(11)
    assert client.expired


async def test_keys_that_arrive_while_a_token_is_verified_are_used(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    tokens, known = verifier()

    def verify(token: str, keys: KeySet, *others: Any) -> Verified:
        known.current = KeySet.parse(Issuer().document)
        return security_tokens.verify(token, keys, *others)

    monkeypatch.setattr("kafscale.process.tokens.tokens", SimpleNamespace(verify=verify))
    assert (await tokens.verify(Issuer().token(NOW + 60))).user == "ann"


async def test_keys_that_the_issuer_adds_are_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "_AGAIN_SECONDS", 0.0)
    async with gateway(file) as harness:
        assert (await authenticate(await harness.connect(), Issuer().token(NOW + 60))).auth_bytes == b""
        publish(file, Issuer("second"))
        assert (await authenticate(await harness.connect(), Issuer("second").token(NOW + 60))).auth_bytes == b""
        assert (await authenticate(await harness.connect(), Issuer().token(NOW + 60))).auth_bytes == INVALID


async def test_a_gateway_starts_without_keys(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "_LONGEST_PAUSE", 0.01)
    late = file.with_name("late.json")
    with capture_logs() as logged:
        async with gateway(late) as harness:
            assert (await authenticate(await harness.connect(), Issuer().token(NOW + 60))).auth_bytes == INVALID
            publish(late, Issuer())
            with trio.fail_after(5):
                while (await authenticate(await harness.connect(), Issuer().token(NOW + 60))).auth_bytes:
                    pass
    assert "keys of tokens not read, retrying" in {line["event"] for line in logged}


async def test_no_token_is_logged_or_repeated(file: Path) -> None:
    cluster = Cluster()
    cluster.log_requests = True
    await cluster.add("storage", FakeStorage())
    tokens = [Issuer().token(NOW + 60), Issuer().token(NOW - 60), Issuer().token(NOW + 60, iss="other"), "opaque-text"]
    replies = []
    with capture_logs() as logged:
        async with gateway(file, cluster=cluster, log_hex_bytes=10_000) as harness:
            for token in tokens:
                client = await harness.connect()
                replies.append(await authenticate(client, token))
                if replies[-1].auth_bytes:
                    replies.append(await send(client, b"\x01"))
            replies.append(await authenticate(await harness.connect(), tokens[0], acts_for="root"))
            replies.append(await authenticate(await harness.connect(), tokens[0] + " "))
    assert [line["api"] for line in logged if line["event"] == "request"].count("SaslAuthenticate") == 9
    for token in tokens:
        for piece in token.split("."):
            assert piece not in repr(logged) + repr(replies)
            assert piece[:20].encode().hex(" ") not in repr(logged)


async def test_the_kafka_client_presents_a_token_and_names_the_reason_if_it_is_refused(file: Path) -> None:
    async with gateway(file) as harness:
        address = ("127.0.0.1", harness.listeners[0].port)

        def login(token: str, mechanism: str = "OAUTHBEARER") -> Security:
            return Security(login=Login(mechanism, "", token.encode()))

        connection = await connect(address, login(Issuer().token(NOW + 60)))
        assert not connection.expired
        await connection.aclose()
        with pytest.raises(Refusal, match="the listener does not accept the token"):
            await connect(address, login(Issuer("unknown").token(NOW + 60)))
    async with gateway(file, sasl_mechanisms=("PLAIN",)) as harness:
        address = ("127.0.0.1", harness.listeners[0].port)
        with pytest.raises(Refusal, match="does not offer OAUTHBEARER, only PLAIN"):
            await connect(address, login("a-token"))
