"""Maps the results of coordinators to Kafka's error codes, with the codes to use if no coordinator answers.

To clients, this gateway is the coordinator. After COORDINATOR_NOT_AVAILABLE they look up the coordinator and retry. Not
all clients handle this error of OffsetFetch, but they retry after COORDINATOR_LOAD_IN_PROGRESS. For the sake of old
clients, Kafka defines for each request whether it may return COORDINATOR_LOAD_IN_PROGRESS, and KafScale follows that.
"""

from kio.schema.errors import ErrorCode

from kafscale.v1.coordinator_pb2 import GroupError

NO_COORDINATOR = ErrorCode.coordinator_not_available
"""For a group whose coordinator is unknown, does not answer, or no longer has the group."""
NO_COORDINATOR_FOR_FETCH = ErrorCode.coordinator_load_in_progress
"""The equivalent for OffsetFetch."""


def group_code(error: "GroupError.Code") -> ErrorCode:
    """Return Kafka's error code, which has the same number."""
    try:
        return ErrorCode(error)
    except ValueError:
        return ErrorCode.unknown_server_error
