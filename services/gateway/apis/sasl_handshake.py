"""SaslHandshake (17), versions 0 to 1: the SASL mechanism that a client wants to authenticate with.

- 0: the mechanism. Only its refusals are supported.
- 1: SaslAuthenticate requests follow.

A mechanism that the listener does not offer is answered with UNSUPPORTED_SASL_MECHANISM and those that it offers, and
the connection is closed. On a listener without SASL, and after authentication unless clients must authenticate again,
the response is ILLEGAL_SASL_STATE without mechanisms, and clients report that they are configured for SASL while the
broker is not.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 17


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    mechanisms: tuple[str, ...] = ()


def handle(call: Call) -> Work | None:
    request = codec.decode_request(KEY, call.version, call.request.body)
    authentication = call.client.authentication
    if not authentication.may_begin:
        call.answer(_Reply(ErrorCode.illegal_sasl_state))
        return None
    if call.version == 0 or not authentication.choose(request.mechanism):
        call.answer(_Reply(ErrorCode.unsupported_sasl_mechanism, authentication.mechanisms))
        call.client.refuse()
        return None
    call.answer(_Reply(ErrorCode.none, authentication.mechanisms))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "SaslHandshake", range(2), handle, fail)
