"""A connection to a broker, with TLS and SASL."""

import secrets
import ssl
import struct
from dataclasses import dataclass, field
from datetime import timedelta

import trio
from kio.schema.errors import ErrorCode

from kafscale.config.client_security import OAUTHBEARER, PLAIN
from kafscale.errors import Unavailable
from kafscale.kafka_client.requests import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Refusal,
    decoded,
    described,
    encoded,
    header,
)
from kafscale.security import bearer, plain
from kafscale.security.scram import Mechanism, ScramFailed
from kafscale.security.scram_client import ScramClient

_MOST_REPLY_BYTES = 256 << 20
_NONCE_BYTES = 24

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Login:
    """The SASL mechanism, the user, and the password as UTF-8. With OAUTHBEARER the password is the token."""

    mechanism: str
    user: str
    password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect: with TLS if there is a context, and with SASL if there is a login."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


class Connection:
    """A connection for one request at a time. It is not used again after a failed request."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._correlation = 0
        self._expires_at = float("inf")

    @property
    def expired(self) -> bool:
        """Whether the broker requires that the client authenticates again."""
        return trio.current_time() >= self._expires_at

    async def ask(self, api_key: int, body: bytes) -> bytes:
        """Send a request and return the answer. Raises Unavailable if the outcome is unknown."""
        self._correlation += 1
        head = header(api_key, self._correlation)
        try:
            await self._stream.send_all(struct.pack(">i", len(head) + len(body)) + head + body)
            (size,) = struct.unpack(">i", await self._exactly(4))
            if not 4 <= size <= _MOST_REPLY_BYTES:
                raise Unavailable(f"invalid answer of {size} bytes: not a Kafka listener, or one with TLS")
            reply = await self._exactly(size)
        except trio.BrokenResourceError as error:
            raise Unavailable(_reason("connection lost", error)) from error
        if struct.unpack_from(">i", reply)[0] != self._correlation:
            raise Unavailable("the answer belongs to another request")
        return reply[4:]

    async def authenticate(self, login: Login) -> None:
        """Authenticate by SASL. Raises Refusal if the broker does not accept the user, and Unavailable."""
        body = encoded(SASL_HANDSHAKE, {"mechanism": login.mechanism})
        answer = decoded(SASL_HANDSHAKE, await self.ask(SASL_HANDSHAKE, body))
        if answer.error_code is ErrorCode.unsupported_sasl_mechanism:
            offered = ", ".join(answer.mechanisms)
            raise Refusal(answer.error_code, f"the listener does not offer {login.mechanism}, only {offered}")
        if answer.error_code is not ErrorCode.none:
            raise Refusal(answer.error_code, described(answer.error_code, "perhaps the listener has no SASL"))
        if login.mechanism == PLAIN:
            await self._prove(plain.message(login.user, login.password))
            return
        if login.mechanism == OAUTHBEARER:
            # A token that is refused is answered without an error, but with the reason.
            if await self._prove(bearer.message(login.password.decode())):
                raise Refusal(ErrorCode.sasl_authentication_failed, "the listener does not accept the token")
            return
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        client = ScramClient(Mechanism(login.mechanism), login.user, login.password, nonce)
        try:
            client.finish(await self._prove(client.final(await self._prove(client.first))))
        except ScramFailed as error:
            raise Refusal(ErrorCode.sasl_authentication_failed, f"authentication failed: {error}") from None

    async def _prove(self, message: bytes) -> bytes:
        """Send a message of the mechanism, and return the answer to it."""
        body = encoded(SASL_AUTHENTICATE, {"auth_bytes": message})
        answer = decoded(SASL_AUTHENTICATE, await self.ask(SASL_AUTHENTICATE, body))
        if answer.error_code is not ErrorCode.none:
            text = answer.error_message or answer.error_code.name.upper()
            raise Refusal(answer.error_code, f"authentication failed: {text}")
        if answer.session_lifetime > timedelta(0):
            self._expires_at = trio.current_time() + answer.session_lifetime.total_seconds()
        return bytes(answer.auth_bytes)

    async def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self._stream.receive_some(min(size - len(data), 1 << 20))
            if not part:
                raise Unavailable("the broker closed the connection")
            data += part
        return bytes(data)

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


async def connect(address: Address, security: Security) -> Connection:
    """Connect to a broker, and authenticate. Raises Unavailable, and Refusal if the broker does not accept the user."""
    try:
        stream: trio.abc.Stream = await trio.open_tcp_stream(*address)
    except OSError as error:
        raise Unavailable(str(error)) from error
    try:
        if security.tls is not None:
            stream = await _encrypted(stream, security.tls, address[0])
        connection = Connection(stream)
        if security.login is not None:
            await connection.authenticate(security.login)
    except BaseException:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)
        raise
    return connection


async def _encrypted(stream: trio.abc.Stream, tls: ssl.SSLContext, host: str) -> trio.abc.Stream:
    encrypted = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
    try:
        await encrypted.do_handshake()
    except trio.BrokenResourceError as error:
        raise Unavailable(_reason("TLS handshake failed", error)) from error
    return encrypted


def _reason(what: str, error: BaseException) -> str:
    """Return ``what`` with the reason for a broken connection, if there is one."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{what}: the broker's certificate is not accepted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"{what}: {cause.reason or cause}"
    return what
