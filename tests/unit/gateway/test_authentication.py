"""Listeners with SASL: which clients are authenticated, and what is refused before that."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from kafscale.errors import ConfigError
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.users import UserCatalog
from kafscale.security.scram import Mechanism, credential, salted_password
from services.gateway.access.authentication import Authentication, Authenticator, NotAuthenticated
from services.gateway.settings import GatewaySettings
from tests.support.gateway.advertised import closing_line
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import Client, Cluster, Harness, running_gateway

SASL: dict[str, Any] = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl_mechanisms": ("PLAIN", "SCRAM-SHA-256")}
FAILED, ILLEGAL_STATE, UNSUPPORTED = 58, 34, 33


async def with_user(harness: Harness, name: str, password: str, *mechanisms: Mechanism) -> None:
    known = {
        mechanism: credential(mechanism, salted_password(mechanism, password.encode(), b"salt", 4096), b"salt", 4096)
        for mechanism in mechanisms or (Mechanism.SHA_256,)
    }
    await harness.parts.users.change(name, lambda _: known)


async def handshake(client: Client, mechanism: str = "PLAIN") -> Any:
    return await client.ask(17, 1, mechanism=mechanism)


async def authenticate(client: Client, message: bytes = b"\x00ann\x00secret") -> Any:
    return await client.ask(36, 2, auth_bytes=message)


@asynccontextmanager
async def sasl(**settings: Any) -> AsyncIterator[Harness]:
    """A gateway with a SASL listener and the user ann."""
    async with running_gateway(**{**SASL, **settings}) as harness:
        await with_user(harness, "ann", "secret")
        yield harness


async def test_a_client_with_the_right_password_is_served() -> None:
    async with sasl() as harness:
        client = await harness.connect()
        assert (await client.ask(18, 0)).error_code == 0
        reply = await handshake(client)
        assert (reply.error_code, reply.mechanisms) == (0, ("PLAIN", "SCRAM-SHA-256"))
        reply = await authenticate(client)
        assert (reply.error_code, reply.error_message, reply.auth_bytes) == (0, None, b"")
        assert (await client.ask(60, 1, include_cluster_authorized_operations=False)).error_code == 0
        # There is nothing to authenticate again.
        assert (await handshake(client)).error_code == ILLEGAL_STATE
        assert (await authenticate(client)).error_code == ILLEGAL_STATE


@pytest.mark.parametrize("message", [b"\x00ann\x00wrong", b"\x00bob\x00secret", b"\x00ann", b"ann\x00bob\x00secret"])
async def test_a_wrong_user_or_password_is_answered_and_the_connection_closed(message: bytes) -> None:
    async with sasl() as harness:
        client = await harness.connect()
        await handshake(client)
        began = trio.current_time()
        reply = await authenticate(client, message)
        assert reply.error_code == FAILED
        assert reply.error_message.startswith("Authentication failed")
        assert trio.current_time() - began > 0.09
        # Clients that see the end of the connection first do not report the reason.
        with trio.move_on_after(0.5) as waiting:
            await client.stream.receive_some(1)
        assert waiting.cancelled_caught
        assert await client.closed()


async def attempt(authenticator: Authenticator, mechanism: str) -> float:
    """Fail to authenticate on a new connection. Return the seconds until the answer."""
    began = trio.current_time()
    client = Authentication(None, host="10.0.0.1", mechanisms=(mechanism,), authenticator=authenticator)
    assert client.choose(mechanism)
    if mechanism == "PLAIN":
        message = b"\x00ann\x00wrong"
    else:
        first = await client.proceed(b"n,,n=ann,r=abc")
        message = b"c=biws," + first.message.split(b",")[0] + b",p=" + b"A" * 43 + b"="
    with pytest.raises(NotAuthenticated):
        await client.proceed(message)
    return trio.current_time() - began


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_failures_in_a_row_are_answered_later_and_later(mechanism: str, autojump_clock: MockClock) -> None:
    authenticator = Authenticator(UserCatalog(MemoryMetadataStore(), "ns"))
    took = [await attempt(authenticator, mechanism) for _ in range(9)]
    assert took == pytest.approx([0.1, 0.1, 0.1, 0.4, 0.8, 1.6, 3.2, 5, 5])
    authenticator.succeeded("ann", "10.0.0.1")
    assert await attempt(authenticator, mechanism) == pytest.approx(0.1)


async def test_after_a_failure_guesses_are_checked_one_at_a_time(autojump_clock: MockClock) -> None:
    authenticator = Authenticator(UserCatalog(MemoryMetadataStore(), "ns"))
    await authenticator.failed("ann", "10.0.0.1", "wrong", trio.current_time())
    began, turns = trio.current_time(), []

    async def take_turn() -> None:
        await authenticator.turn("ann", "10.0.0.1")
        turns.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(take_turn)
    assert turns == pytest.approx([0, 0.1, 0.2, 0.3])


async def test_the_answers_to_scram_are_the_same_for_an_unknown_user_and_a_wrong_password() -> None:
    async with sasl() as harness:
        answers = []
        for name in ("ann", "bob"):
            client = await harness.connect()
            await handshake(client, "SCRAM-SHA-256")
            first = await authenticate(client, b"n,,n=" + name.encode() + b",r=abc")
            assert first.error_code == 0
            nonce = first.auth_bytes.split(b",")[0]
            assert b",i=4096" in first.auth_bytes
            last = await authenticate(client, b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=")
            answers.append((last.error_code, last.error_message, last.auth_bytes))
            assert await client.closed()
        assert answers[0] == answers[1]
        assert answers[0][0] == FAILED


async def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    async with sasl() as harness:
        for version, mechanism in ((1, "SCRAM-SHA-512"), (1, "GSSAPI"), (0, "PLAIN")):
            client = await harness.connect()
            reply = await client.ask(17, version, mechanism=mechanism)
            assert (reply.error_code, reply.mechanisms) == (UNSUPPORTED, ("PLAIN", "SCRAM-SHA-256"))
            assert await client.closed()


async def test_nothing_else_is_answered_before_authentication() -> None:
    async with sasl(max_unauthenticated_request_bytes=2000) as harness:
        client = await harness.connect()
        with capture_logs() as logged:
            await client.send(3, 12, b"")
            line = await closing_line(logged)
        assert line["reason"] == "Metadata request before authentication"
        client = await harness.connect()
        await client.stream.send_all((2001).to_bytes(4, "big"))
        assert await client.closed()
        client = await harness.connect()
        await handshake(client)
        assert (await authenticate(client)).error_code == 0
        # The limit of authenticated clients applies.
        await client.ask(36, 2, auth_bytes=bytes(5000))


async def test_a_client_that_does_not_authenticate_in_time_is_disconnected() -> None:
    async with sasl(handshake_ms=200) as harness:
        silent, known = await harness.connect(), await harness.connect()
        await handshake(known)
        assert (await authenticate(known)).error_code == 0
        assert await silent.closed()
        assert (await known.ask(18, 0)).error_code == 0


async def test_clients_that_are_not_known_are_limited_in_number() -> None:
    async with sasl(max_unauthenticated=2) as harness:
        known = await harness.connect()
        await handshake(known)
        assert (await authenticate(known)).error_code == 0
        waiting = [await harness.connect() for _ in range(2)]
        for client in waiting:
            await client.ask(18, 0)
        assert await (await harness.connect()).closed()
        await waiting.pop().stream.aclose()
        await trio.sleep(0.1)
        assert (await (await harness.connect()).ask(18, 0)).error_code == 0


async def test_a_session_ends_unless_the_same_user_authenticates_again() -> None:
    async with sasl(sasl_max_reauth_ms=2000) as harness:
        await with_user(harness, "bob", "other")
        clients = [await harness.connect() for _ in range(3)]
        for client in clients:
            await handshake(client)
            assert (await authenticate(client)).session_lifetime.total_seconds() == 2
        renewed, other, late = clients
        await handshake(other)
        reply = await authenticate(other, b"\x00bob\x00other")
        assert (reply.error_code, "cannot change" in reply.error_message) == (FAILED, True)
        assert await other.closed()
        for _ in range(2):
            await trio.sleep(1.1)
            await handshake(renewed)
            assert (await authenticate(renewed)).error_code == 0
            assert (await renewed.ask(60, 1, include_cluster_authorized_operations=False)).error_code == 0
        with capture_logs() as logged:
            await late.send(60, 1, b"\x00\x01\x00")
            line = await closing_line(logged)
        assert line["reason"] == "the client did not authenticate again in time"


async def test_a_changed_password_is_used_at_once() -> None:
    async with sasl() as harness:
        await with_user(harness, "ann", "new")
        client = await harness.connect()
        await handshake(client)
        assert (await authenticate(client, b"\x00ann\x00new")).error_code == 0
        await harness.parts.users.change("ann", lambda _: {})
        client = await harness.connect()
        await handshake(client)
        assert (await authenticate(client, b"\x00ann\x00new")).error_code == FAILED


async def test_the_first_user_is_created_once(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    settings: dict[str, Any] = {**SASL, "bootstrap_user": "admin", "bootstrap_password_file": str(file)}
    async with running_gateway(**settings) as harness:
        for password, code in (("first", 0), ("first\n", FAILED)):
            client = await harness.connect()
            await handshake(client)
            assert (await authenticate(client, f"\0admin\0{password}".encode())).error_code == code
        await with_user(harness, "admin", "changed")
        async with running_gateway(cluster=harness.cluster, **settings) as other:
            client = await other.connect()
            await handshake(client)
            assert (await authenticate(client, b"\0admin\0changed")).error_code == 0


async def test_no_secret_is_logged() -> None:
    cluster = Cluster()
    cluster.log_requests = True
    await cluster.add("storage", FakeStorage())
    with capture_logs() as logged:
        async with running_gateway(cluster=cluster, **SASL, log_hex_bytes=1000) as harness:
            await with_user(harness, "ann", "secret")
            for message in (b"\x00ann\x00secret", b"\x00ann\x00wrong-secret"):
                client = await harness.connect()
                await handshake(client)
                await authenticate(client, message)
    assert [line["api"] for line in logged if line["event"] == "request"] == ["SaslHandshake", "SaslAuthenticate"] * 2
    assert "secret" not in repr(logged)
    assert b"secret".hex(" ") not in repr(logged)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"listeners": "SSL://h:1"}, "KAFSCALE_TLS_CERT_FILE"),
        ({"listeners": "A://h:1", "security_protocol_map": "B:SSL"}, "names B"),
        ({"listeners": "A://h:1", "security_protocol_map": "A:TLS"}, "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"),
        ({"broker_addr": "h:1", "security_protocol_map": "SASL:SSL"}, "names SASL"),
        ({"bootstrap_user": "a"}, "KAFSCALE_BOOTSTRAP_PASSWORD"),
    ],
)
def test_a_faulty_listener_is_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        GatewaySettings(**settings)  # type: ignore[arg-type]
