"""Checks that the catalog pages of a partition describe its segments correctly. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import fields

from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.objects import Checked, Entry


def check_pages(pages: Iterable[Checked], segments: Sequence[Checked], bounds: Bounds) -> list[Finding]:
    """Return findings of wrong entries, which are damage, and of pages that readers ignore, which are orphans.

    ``segments`` must be sorted by base offset. Entries of damaged and missing segments are not checked, because other
    checks find these.
    """
    findings: list[Finding] = []
    whole = [segment for segment in segments if segment.entries]
    bases = [segment.base_offset for segment in whole]

    def found(kind: Kind, page: Checked, offset: int, detail: str) -> None:
        findings.append(Finding(kind, page.topic, page.partition, offset, page.key, detail))

    for page in pages:
        reason = _why_orphan(page, bounds)
        for entry in page.entries if not reason else ():
            # Compare with the segment that contains the base offset of the entry.
            number = bisect_right(bases, entry.base_offset) - 1
            actual = whole[number].entries[0] if number >= 0 else None
            if actual is None or actual.next_offset <= entry.base_offset:
                continue
            if actual.epoch != entry.epoch:
                reason = f"segment {actual.base_offset} has epoch {actual.epoch}, but the page says epoch {entry.epoch}"
                break
            if actual != entry:
                found(Kind.PAGE_WRONG, page, entry.base_offset, _difference(entry, actual))
        if reason:
            found(Kind.ORPHAN, page, page.base_offset, reason)
    return findings


def _why_orphan(page: Checked, bounds: Bounds) -> str:
    """Return why readers ignore a page, regardless of segments, or an empty string if it may be part of the log."""
    if not page.entries:
        return ""
    end = page.entries[-1].next_offset
    if bounds.topic_id and page.topic_id != bounds.topic_id:
        return "it belongs to a deleted topic with the same name"
    if bounds.end_after is not None and end > bounds.end_after:
        return f"it ends at offset {end}, but the log ends at {bounds.end_after}"
    return f"the log begins at {bounds.log_start}" if end <= bounds.log_start else ""


def _difference(entry: Entry, actual: Entry) -> str:
    differences = [
        f"{field.name} {getattr(entry, field.name)} instead of {getattr(actual, field.name)}"
        for field in fields(Entry)
        if getattr(entry, field.name) != getattr(actual, field.name)
    ]
    return f"the entry of segment {actual.base_offset} has {', '.join(differences)}"
