"""Whether the pages of a partition's catalog tell of its segments as they are. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import fields

from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.findings import Finding, Kind
from kafscale_spark.audit.objects import Checked, Entry


def check_pages(pages: Iterable[Checked], segments: Sequence[Checked], bounds: Bounds) -> list[Finding]:
    """What pages say wrongly, which is damage, and those that readers pass over; segments by ascending base offset.

    Of segments that are damaged or not there nothing is said: that is found by other means.
    """
    findings: list[Finding] = []
    whole = [segment for segment in segments if segment.entries]
    bases = [segment.base_offset for segment in whole]

    def found(kind: Kind, page: Checked, offset: int, detail: str) -> None:
        findings.append(Finding(kind, page.topic, page.partition, offset, page.key, detail))

    for page in pages:
        useless = _useless(page, bounds)
        for entry in page.entries if not useless else ():
            # The segment that holds the offset at which the entry has one begin.
            number = bisect_right(bases, entry.base_offset) - 1
            actual = whole[number].entries[0] if number >= 0 else None
            if actual is None or actual.next_offset <= entry.base_offset:
                continue
            if actual.epoch != entry.epoch:
                useless = f"segment {actual.base_offset} is of epoch {actual.epoch}, it tells of epoch {entry.epoch}"
                break
            if actual != entry:
                found(Kind.PAGE_WRONG, page, entry.base_offset, _difference(entry, actual))
        if useless:
            found(Kind.ORPHAN, page, page.base_offset, useless)
    return findings


def _useless(page: Checked, bounds: Bounds) -> str:
    """Why nobody reads a page, whatever the segments; empty: it may be of the log."""
    if not page.entries:
        return ""
    end = page.entries[-1].next_offset
    if bounds.topic_id and page.topic_id != bounds.topic_id:
        return "it is of an earlier topic of the name"
    if bounds.end_after is not None and end > bounds.end_after:
        return f"it goes on to offset {end}, the log ends at {bounds.end_after}"
    return f"the log begins at {bounds.log_start}" if end <= bounds.log_start else ""


def _difference(entry: Entry, actual: Entry) -> str:
    said = [
        f"{field.name} {getattr(entry, field.name)} instead of {getattr(actual, field.name)}"
        for field in fields(Entry)
        if getattr(entry, field.name) != getattr(actual, field.name)
    ]
    return f"of segment {actual.base_offset} it says {', '.join(said)}"
