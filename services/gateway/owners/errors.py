"""Maps the results of storage instances to Kafka's error codes.

A code is chosen by how clients react to it:

- NOT_LEADER_OR_FOLLOWER: nothing was kept; clients refresh metadata and retry.
- NOT_ENOUGH_REPLICAS: nothing was kept; clients retry after a pause without new metadata, as a full buffer requires.
- NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT: clients retry, but the records may be in the log.
- KAFKA_STORAGE_ERROR: the log cannot be read, temporarily or permanently; readers retry.
"""

from kio.schema.errors import ErrorCode

from kafscale.errors import KafscaleError
from kafscale.v1 import common_pb2

_CODES = {
    common_pb2.OK: ErrorCode.none,
    common_pb2.NOT_OWNER: ErrorCode.not_leader_or_follower,
    common_pb2.UNKNOWN_TOPIC: ErrorCode.unknown_topic_or_partition,
    common_pb2.TOPIC_ID_MISMATCH: ErrorCode.unknown_topic_or_partition,
    common_pb2.BUFFER_FULL: ErrorCode.not_enough_replicas,
    common_pb2.OFFSET_OUT_OF_RANGE: ErrorCode.offset_out_of_range,
    common_pb2.DAMAGED: ErrorCode.kafka_storage_error,
    common_pb2.UNAVAILABLE: ErrorCode.kafka_storage_error,
    common_pb2.REFUSED_BEHIND: ErrorCode.not_enough_replicas,
    common_pb2.FENCED_EPOCH: ErrorCode.fenced_leader_epoch,
    common_pb2.UNKNOWN_EPOCH: ErrorCode.unknown_leader_epoch,
    common_pb2.INVALID: ErrorCode.invalid_request,
    common_pb2.TOO_LARGE: ErrorCode.message_too_large,
    common_pb2.OUT_OF_ORDER_SEQUENCE: ErrorCode.out_of_order_sequence_number,
    common_pb2.UNKNOWN_PRODUCER: ErrorCode.unknown_producer_id,
    common_pb2.FENCED_PRODUCER: ErrorCode.invalid_producer_epoch,
}

NEVER_KEPT = ErrorCode.not_leader_or_follower
"""For an append that did not reach a buffer."""
MAY_BE_KEPT = ErrorCode.not_enough_replicas_after_append
"""For an append that was or may have been in a buffer and was not seen to commit."""
TIMED_OUT = ErrorCode.request_timed_out
"""Like MAY_BE_KEPT, if the producer's own timeout has expired; the same code as in Kafka."""
OVERLOADED = ErrorCode.not_enough_replicas
"""For an append that found no space, or was queued behind a refused one."""


class RefusedPart(KafscaleError):
    """One topic or resource of a request is refused with Kafka's ``code``. The others are not affected."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(status: common_pb2.Status, *, by_id: bool = False) -> ErrorCode:
    """Return Kafka's error code for a `kafscale.v1.Status`. ``by_id``: the client identifies topics by id."""
    if by_id and status in (common_pb2.UNKNOWN_TOPIC, common_pb2.TOPIC_ID_MISMATCH):
        return ErrorCode.unknown_topic_id
    return _CODES.get(status, ErrorCode.unknown_server_error)


def append_code_of(status: common_pb2.Status) -> ErrorCode:
    """Return Kafka's error code for an append that was not kept. New metadata would not help if a store is down."""
    return OVERLOADED if status == common_pb2.UNAVAILABLE else code_of(status)


def checked_epoch(sent: int) -> int:
    """Return the leader epoch that storage should check for a client that ``sent`` this one; -1 means no check.

    Epochs begin at 1. librdkafka sends 0 if it does not know the epoch.
    """
    return sent if sent > 0 else -1


def behind(code: ErrorCode) -> ErrorCode:
    """Return the code for appends queued behind one that was refused with ``code``. It is always retriable."""
    return code if code.retriable else OVERLOADED
