"""What an audit may find."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """``orphan``: nobody needs the object, and its owner will delete it or has lost it. All else is damage."""

    SEGMENT_DAMAGED = "segment damaged"
    SEGMENT_MISPLACED = "segment misplaced"
    SEGMENTS_MISSING = "segments missing"
    EPOCHS_FALL = "epochs fall"
    END_DISAGREES = "end disagrees with metadata"
    INDEX_MISSING = "index missing"
    INDEX_DAMAGED = "index damaged"
    INDEX_WRONG = "index wrong"
    PAGE_DAMAGED = "catalog page damaged"
    PAGE_WRONG = "catalog page wrong"
    TOPIC_DAMAGED = "topic object damaged"
    ORPHAN = "orphan"

    @property
    def is_damage(self) -> bool:
        return self is not Kind.ORPHAN


@dataclass(frozen=True, slots=True)
class Finding:
    """``offset``: where in the partition; -1: in none. ``partition`` -1: of none."""

    kind: Kind
    topic: str
    partition: int
    offset: int
    key: str
    detail: str
