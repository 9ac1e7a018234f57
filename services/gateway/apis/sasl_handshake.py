"""SaslHandshake (17), versions 0 to 1: the SASL mechanism that a client wants to authenticate with.

- 0: the mechanism.
- 1: no changes.

No listener supports SASL. As on a plaintext or SSL listener of Kafka, the response is ILLEGAL_SASL_STATE without
mechanisms, and clients report that they are configured for SASL while the broker is not.
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
    codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply(ErrorCode.illegal_sasl_state))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "SaslHandshake", range(2), handle, fail)
