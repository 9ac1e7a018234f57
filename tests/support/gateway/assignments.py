"""Assignments as a group's leader encodes them."""

from struct import pack


def assignment(**topics: tuple[int, ...]) -> bytes:
    """Return the assignment that a leader sends to a consumer."""
    named = b"".join(
        pack(">h", len(topic)) + topic.encode() + pack(f">i{len(partitions)}i", len(partitions), *partitions)
        for topic, partitions in topics.items()
    )
    return pack(">hi", 1, len(topics)) + named + pack(">i", -1)
