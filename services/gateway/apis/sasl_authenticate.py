"""SaslAuthenticate (36), versions 0 to 2: a message of the SASL mechanism that SaslHandshake has named.

- 0: the message.
- 1: the response says after which time the client must authenticate again (KIP-368); 0: never. With OAUTHBEARER, that
  is at the latest when the token expires.
- 2: flexible.

A failure is answered with SASL_AUTHENTICATION_FAILED. The gateway then closes the connection when the client has closed
its end, at the latest after a second. The answer for a user that does not exist is that for a wrong password. It is
delayed by 100 ms. After several failures of a user from an address, the next check waits up to 5 seconds. A token that
is refused with OAUTHBEARER is first answered without an error, by the JSON of RFC 7628; the next message is then
answered with SASL_AUTHENTICATION_FAILED. A message without a preceding SaslHandshake is answered with
ILLEGAL_SASL_STATE.
"""

from dataclasses import dataclass
from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from kafscale.kafka import codec
from services.gateway.access.authentication import NotAuthenticated
from services.gateway.api import Api, Call, Work

KEY = 36

_FOREVER = i64Timedelta.parse(timedelta(0))


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime: i64Timedelta = _FOREVER


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    if not call.client.authentication.begun:
        call.answer(_Reply(ErrorCode.illegal_sasl_state, "SaslAuthenticate must follow SaslHandshake"))
        return None
    return _proceed(call, bytes(request.auth_bytes))


async def _proceed(call: Call, message: bytes) -> None:
    client = call.client
    before = client.authentication.principal
    try:
        answer = await client.authentication.proceed(message)
    except NotAuthenticated as error:
        call.answer(_Reply(ErrorCode.sasl_authentication_failed, str(error)))
        client.refuse()
        return
    if before is None and client.authentication.principal is not None:
        client.authenticated()
    lifetime = i64Timedelta.parse(timedelta(milliseconds=answer.session_ms))
    call.answer(_Reply(auth_bytes=answer.message, session_lifetime=lifetime))


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "SaslAuthenticate", range(3), handle, fail)
