"""The findings of an audit."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of findings. All are damage except orphans, unneeded objects that an owner will delete or has lost, and
    missing indexes. An index is stored after its segment is committed, or when a reader needs it."""

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
    INTAKE_DAMAGED = "intake object damaged"
    INTAKE_MISSING = "intake object missing"
    RECORDS_MISSING = "records missing"
    REWRITTEN_DAMAGED = "rewritten object damaged"
    REWRITTEN_MISSING = "rewritten object missing"
    ROOT_DAMAGED = "root damaged"
    TOPIC_DAMAGED = "topic object damaged"
    ORPHAN = "orphan"

    @property
    def is_damage(self) -> bool:
        return self not in (Kind.ORPHAN, Kind.INDEX_MISSING)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding. ``partition`` and ``offset`` are -1 if it concerns none."""

    kind: Kind
    topic: str
    partition: int
    offset: int
    key: str
    detail: str
