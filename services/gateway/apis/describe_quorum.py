"""DescribeQuorum (55), versions 0 to 2: the voters and observers of the KRaft quorum.

- 0: the leader and the replicas of the metadata log; flexible. 1: when replicas fetched last. 2: directories, and the
  addresses of controllers; error messages.

There is no KRaft quorum: cluster metadata is kept in etcd, or in SQLite. The answer is UNSUPPORTED_VERSION, which admin
clients raise as they do for a Kafka without KRaft, with a message from version 2 on.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from services.gateway.api import Api, Call, Work

KEY = 55


@dataclass(frozen=True, slots=True)
class _Reply:
    error_code: ErrorCode
    error_message: str | None = None
    topics: tuple[()] = ()
    nodes: tuple[()] = ()


def handle(call: Call) -> Work | None:
    codec.decode_request(KEY, call.version, call.request.body)
    message = "There is no KRaft quorum: cluster metadata is kept in etcd or SQLite."
    call.answer(_Reply(ErrorCode.unsupported_version, message))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "DescribeQuorum", range(3), handle, fail)
