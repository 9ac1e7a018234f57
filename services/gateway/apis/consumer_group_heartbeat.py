"""ConsumerGroupHeartbeat (68), versions 0 to 1: membership in Kafka 4's consumer group protocol (KIP-848).

- 0: what has changed since the member's last heartbeat. Flexible.
- 1: adds a regular expression for topics. The client chooses its member id.

Groups use the classic protocol only. The response is UNSUPPORTED_VERSION, as from a Kafka broker with the new protocol
disabled. The API is advertised so that clients get this response: consumers with `group.protocol=consumer` then fail
with an error that names the cause. Otherwise librdkafka would silently wait for a broker that advertises the API.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import READ_GROUP
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
    request = codec.decode_request(KEY, call.version, call.request.body)
    call.client.authorization.check(READ_GROUP, request.group_id)
    message = "Consumer groups use the classic protocol only. Set group.protocol=classic."
    call.answer(_Reply(ErrorCode.unsupported_version, message))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "ConsumerGroupHeartbeat", range(2), handle, fail, asks=(READ_GROUP,))
