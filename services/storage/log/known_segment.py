"""What is known of an object of a log."""

from dataclasses import dataclass

from kafscale.v1.rewritten_pb2 import RewrittenEntry

UNKNOWN_TIME = -2
"""``max_timestamp`` of a segment that was not read yet (-1 is Kafka's "no timestamp")."""


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """A segment, or a rewritten object if ``rewritten`` describes it. ``size`` is the size of the object in bytes."""

    base_offset: int
    size: int
    max_timestamp: int
    rewritten: RewrittenEntry | None = None
