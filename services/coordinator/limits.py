"""What a coordinator holds its groups to, as values; names and defaults are Kafka's."""

from dataclasses import dataclass

MAX_TEXT_BYTES = 32_767
"""Of a group's id, and of each name that a member says: Kafka's longest string."""

MAX_PROTOCOLS = 100
"""That one member may name; clients have one for each assignor."""


def is_too_long(text: str) -> bool:
    return len(text) > MAX_TEXT_BYTES or len(text.encode()) > MAX_TEXT_BYTES


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Times are in milliseconds."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    max_size: int = (1 << 31) - 1
    """group.max.size"""
    new_member_join_timeout_ms: int = 300_000
    """How long a member that has not yet been told its id is waited for; a constant in Kafka."""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes"""
    metadata_total_bytes: int = 16 * 1024 * 1024
    """Of all of a group's offsets together; Kafka has no such bound."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes"""
    max_member_bytes: int = 1_000_000
    """What one member says of itself: a value of the metadata store has to hold it."""
    max_header_bytes: int = 1_200_000
    """What a group's header says of all members: a value of the metadata store too, with long keys and names."""
