"""Random names that this gateway gives."""

import uuid


def new_topic_id() -> bytes:
    """16 bytes that no other topic has: a random UUID, as in Kafka."""
    return uuid.uuid4().bytes
