"""Whether a partition's segments are its log: one after the other from its start to its end. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.objects import Checked


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the metadata said of a partition around the listing.

    ``end_before`` and ``end_after``: the high watermark before and after it, None: not known. ``log_start`` was read
    after it; not ``start_known``: the log may begin later by now. So all that lies from ``log_start`` up to
    ``end_before`` must have been listed. ``topic_id`` empty: not known.
    """

    log_start: int
    start_known: bool = True
    end_before: int | None = None
    end_after: int | None = None
    topic_id: bytes = b""


def check_chain(topic: str, partition: int, segments: Iterable[Checked], bounds: Bounds) -> list[Finding]:
    """What is missing, out of order or left over among a partition's segments, given by ascending base offset."""
    findings: list[Finding] = []
    expected, epoch, last = bounds.log_start, 0, ""

    def found(kind: Kind, offset: int, key: str, detail: str) -> None:
        findings.append(Finding(kind, topic, partition, offset, key, detail))

    ordered = [segment for segment in segments if not segment.gone]
    # Of those that begin at or below the log start, the last one holds it.
    first = max((segment.base_offset for segment in ordered if segment.base_offset <= bounds.log_start), default=-1)
    if first < 0 and ordered and not bounds.start_known:
        expected = ordered[0].base_offset
    for number, segment in enumerate(ordered):
        following = ordered[number + 1].base_offset if number + 1 < len(ordered) else -1
        # Where damage hides the end, it is where the next one begins.
        end = segment.next_offset if segment.next_offset >= 0 else following
        useless = _useless(segment, end, first, expected, bounds)
        if useless:
            found(Kind.ORPHAN, segment.base_offset, segment.key, useless)
            continue
        if segment.base_offset > expected:
            detail = f"offsets {expected} to {segment.base_offset - 1} are in none"
            found(Kind.SEGMENTS_MISSING, expected, segment.key, detail)
        if 0 <= segment.epoch < epoch:
            found(Kind.EPOCHS_FALL, segment.base_offset, segment.key, f"epoch {segment.epoch} after {epoch}")
        epoch = max(epoch, segment.epoch)
        last = segment.key
        # The end of the last one, if damage hides it, is what the metadata says.
        expected = end if end >= 0 else max(bounds.end_before or 0, segment.base_offset + 1)
    before, after = bounds.end_before, bounds.end_after
    if before is not None and expected < before:
        found(Kind.END_DISAGREES, expected, last, f"the segments end at {expected}, the metadata says {before}")
    if after is not None and expected > after:
        found(Kind.END_DISAGREES, after, last, f"the segments end at {expected}, the metadata says {after}")
    return findings


def _useless(segment: Checked, end: int, first: int, expected: int, bounds: Bounds) -> str:
    """Why nobody needs a segment; empty: it is of the log."""
    if bounds.end_after is not None and segment.base_offset >= bounds.end_after:
        return f"the log ends at {bounds.end_after}"
    if segment.base_offset < first or 0 <= end <= bounds.log_start:
        return f"the log begins at {bounds.log_start}"
    if first < segment.base_offset < expected:
        return f"the log goes on at {expected} there"
    return ""
