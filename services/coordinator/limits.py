"""The limits of consumer groups. Names and defaults are Kafka's."""

from dataclasses import dataclass

MAX_TEXT_BYTES = 32_767
"""The maximum size of a group id and of each name in a member's request: Kafka's longest string."""

MAX_PROTOCOLS = 100
"""The maximum number of protocols of a member. Clients have one for each assignor."""


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
    """The session timeout of a new member until its first JoinGroup is answered; a constant in Kafka."""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes"""
    metadata_total_bytes: int = 16 * 1024 * 1024
    """The maximum total metadata size of a group's offsets; Kafka has no such limit."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """offsets.retention.minutes"""
    max_member_bytes: int = 1_000_000
    """The maximum size of a member's JoinGroup, which has to fit into a value of the metadata store."""
    max_header_bytes: int = 1_200_000
    """The maximum size of a header's member references. It is one value too, next to long keys and names."""
