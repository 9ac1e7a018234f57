"""Checks that a partition's segments are contiguous from the start to the end of its log. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.objects import Checked


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's metadata, read before and after the listing of the bucket.

    ``end_before`` and ``end_after`` are the high watermarks before and after it, or None if unknown. ``log_start`` was
    read after it; unless ``start_known``, the log may begin later by now. The listing must thus have all offsets from
    ``log_start`` up to ``end_before``. ``topic_id`` is empty if unknown.
    """

    log_start: int
    start_known: bool = True
    end_before: int | None = None
    end_after: int | None = None
    topic_id: bytes = b""


def check_chain(topic: str, partition: int, segments: Iterable[Checked], bounds: Bounds) -> list[Finding]:
    """Return findings of missing, misordered and leftover segments. They must be sorted by base offset."""
    findings: list[Finding] = []
    expected, epoch, last = bounds.log_start, 0, ""

    def found(kind: Kind, offset: int, key: str, detail: str) -> None:
        findings.append(Finding(kind, topic, partition, offset, key, detail))

    ordered = [segment for segment in segments if not segment.gone]
    # The last segment that begins at or below the log start contains it.
    first = max((segment.base_offset for segment in ordered if segment.base_offset <= bounds.log_start), default=-1)
    if first < 0 and ordered and not bounds.start_known:
        expected = ordered[0].base_offset
    for number, segment in enumerate(ordered):
        following = ordered[number + 1].base_offset if number + 1 < len(ordered) else -1
        # If damage hides the end, use the start of the next segment.
        end = segment.next_offset if segment.next_offset >= 0 else following
        reason = _why_orphan(segment, end, first, expected, bounds)
        if reason:
            found(Kind.ORPHAN, segment.base_offset, segment.key, reason)
            continue
        if segment.base_offset > expected:
            detail = f"no segment has offsets {expected} to {segment.base_offset - 1}"
            found(Kind.SEGMENTS_MISSING, expected, segment.key, detail)
        if 0 <= segment.epoch < epoch:
            found(Kind.EPOCHS_FALL, segment.base_offset, segment.key, f"epoch {segment.epoch} after {epoch}")
        epoch = max(epoch, segment.epoch)
        last = segment.key
        # If damage hides the end of the last segment, use that of the metadata.
        expected = end if end >= 0 else max(bounds.end_before or 0, segment.base_offset + 1)
    before, after = bounds.end_before, bounds.end_after
    if before is not None and expected < before:
        found(Kind.END_DISAGREES, expected, last, f"the segments end at {expected}, but the metadata says {before}")
    if after is not None and expected > after:
        found(Kind.END_DISAGREES, after, last, f"the segments end at {expected}, but the metadata says {after}")
    return findings


def _why_orphan(segment: Checked, end: int, first: int, expected: int, bounds: Bounds) -> str:
    """Return why a segment is not part of the log, or an empty string if it is."""
    if bounds.end_after is not None and segment.base_offset >= bounds.end_after:
        return f"the log ends at {bounds.end_after}"
    if segment.base_offset < first or 0 <= end <= bounds.log_start:
        return f"the log begins at {bounds.log_start}"
    if first < segment.base_offset < expected:
        return f"the log has other segments up to offset {expected}"
    return ""
