"""What a coordinator answers, as Kafka's error codes, and what is answered when none does.

Clients take this gateway for the coordinator. COORDINATOR_NOT_AVAILABLE lets them look for it and ask again; not every
client knows that from OffsetFetch, where COORDINATOR_LOAD_IN_PROGRESS lets them ask again. Which of a group's requests
may be answered that it is being loaded is Kafka's rule for each, for the sake of old clients.
"""

from kio.schema.errors import ErrorCode

from kafscale.v1.coordinator_pb2 import GroupError

NO_COORDINATOR = ErrorCode.coordinator_not_available
"""For a group whose coordinator is not known, does not answer, or has it no more."""
NO_COORDINATOR_FOR_FETCH = ErrorCode.coordinator_load_in_progress
"""The same for OffsetFetch."""


def group_code(error: "GroupError.Code") -> ErrorCode:
    """Kafka's error code: numbers are the same."""
    try:
        return ErrorCode(error)
    except ValueError:
        return ErrorCode.unknown_server_error
