"""ConsumerGroupHeartbeat (68), versions 0 to 1: membership by the consumer group protocol of Kafka 4 (KIP-848).

- 0: what changed of a member since its last heartbeat; flexible. 1: a regular expression for topics; the client chooses
  its member id.

Groups run by the classic protocol only. The answer is UNSUPPORTED_VERSION, as in a Kafka with that protocol switched
off. The API is advertised for the sake of that answer: consumers with `group.protocol=consumer` then end with an error
that says so, while librdkafka waits without a word for a broker that advertises it.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 68


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval: int = 0
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    codec.decode_request(KEY, call.version, call.request.body)
    message = "Consumer groups run by the classic protocol only: set group.protocol=classic."
    call.answer(_Reply(ErrorCode.unsupported_version, message))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "ConsumerGroupHeartbeat", range(2), handle, fail)
