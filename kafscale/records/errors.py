"""Errors in record bytes, by the Kafka error code that the client gets."""

from kafscale.errors import CorruptData


class CorruptBatch(CorruptData):
    """The bytes are not a complete, undamaged batch. Kafka's CORRUPT_MESSAGE (2)."""


class InvalidRecord(CorruptData):
    """A well-formed batch that a client must not send. Kafka's INVALID_RECORD (87)."""


class InvalidTimestamp(InvalidRecord):
    """A timestamp outside the topic's bounds, or a type that only the log may set. Kafka's INVALID_TIMESTAMP (32)."""
