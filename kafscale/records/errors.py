"""What is wrong with record bytes, by what the caller answers to the client."""

from kafscale.errors import CorruptData


class CorruptBatch(CorruptData):
    """The bytes are not a whole, undamaged batch. Kafka's CORRUPT_MESSAGE (2)."""


class InvalidRecord(CorruptData):
    """A well-formed batch that a client must not send. Kafka's INVALID_RECORD (87)."""


class InvalidTimestamp(InvalidRecord):
    """A timestamp out of the topic's bounds, or a type that only the log may set. Kafka's INVALID_TIMESTAMP (32)."""
