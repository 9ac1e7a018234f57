"""ListPartitionReassignments (46), versions 0 to 0: partitions that are being moved to other brokers.

- 0: partitions, or null for all. Flexible.

Partitions are never reassigned, so the list is empty. As in Kafka, there is no error for partitions that do not exist.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER
from services.gateway.api import Api, Call, Work

KEY = 46


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topics: tuple[()] = ()
    throttle_time: int = 0


def handle(call: Call) -> Work | None:
    codec.decode_request(KEY, call.version, call.request.body)
    call.answer(_Reply())
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "ListPartitionReassignments", range(1), handle, fail, needs=DESCRIBE_CLUSTER)
