"""DescribeQuorum (55), versions 0 to 2: the voters and observers of the KRaft quorum.

- 0: the leader and the replicas of the metadata log. Flexible.
- 1: adds the time of each replica's last fetch.
- 2: adds directories, the addresses of controllers, and error messages.

There is no KRaft quorum, because cluster metadata is kept in etcd or SQLite. The response is UNSUPPORTED_VERSION, with
a message from version 2 on. Admin clients report this error as they do for a Kafka cluster without KRaft.
"""

from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from kafscale.kafka import codec
from kafscale.security.asks import DESCRIBE_CLUSTER
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
    message = "There is no KRaft quorum because cluster metadata is kept in etcd or SQLite."
    call.answer(_Reply(ErrorCode.unsupported_version, message))
    return None


def fail(call: Call, error: ErrorCode) -> None:
    call.answer(_Reply(error))


API = Api(KEY, "DescribeQuorum", range(3), handle, fail, needs=DESCRIBE_CLUSTER)
