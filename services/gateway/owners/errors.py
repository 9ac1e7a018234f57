"""What a storage instance answers, as Kafka's error codes: the one table.

A code is chosen by what clients do with it. NOT_LEADER_OR_FOLLOWER: fetch metadata anew, then retry; nothing was kept.
NOT_ENOUGH_REPLICAS: retry after a pause, without new metadata, nothing was kept; that is what a full buffer needs.
NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT: retry, but the records may be in the log. KAFKA_STORAGE_ERROR: the
log cannot be read, at present or for good; readers retry.
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
"""For an append that reached no buffer."""
MAY_BE_KEPT = ErrorCode.not_enough_replicas_after_append
"""For an append that was in a buffer, or may have been, and was not seen to commit."""
TIMED_OUT = ErrorCode.request_timed_out
"""The same where the producer's own timeout is over, as in Kafka."""
OVERLOADED = ErrorCode.not_enough_replicas
"""For an append that found no room, or stood behind one that was refused."""


class RefusedPart(KafscaleError):
    """One topic or resource of a request is refused with Kafka's ``code``; the others are not touched."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(status: common_pb2.Status, *, by_id: bool = False) -> ErrorCode:
    """Kafka's error code for a `kafscale.v1.Status`; ``by_id``: the client names topics by their ids."""
    if by_id and status in (common_pb2.UNKNOWN_TOPIC, common_pb2.TOPIC_ID_MISMATCH):
        return ErrorCode.unknown_topic_id
    return _CODES.get(status, ErrorCode.unknown_server_error)


def append_code_of(status: common_pb2.Status) -> ErrorCode:
    """The same for an append, which was not kept: where a store does not answer, new metadata would not help."""
    return OVERLOADED if status == common_pb2.UNAVAILABLE else code_of(status)


def checked_epoch(told: int) -> int:
    """The leader epoch that a client sent as storage should check it; -1: not at all.

    Epochs here begin at 1. librdkafka sends 0 where it knows none.
    """
    return told if told > 0 else -1


def behind(code: ErrorCode) -> ErrorCode:
    """The code for what stands behind an append that was refused with ``code``: it was not looked at, so retriable."""
    return code if code.retriable else OVERLOADED
