"""Checks a single segment with its index, or a single catalog page."""

from dataclasses import dataclass, field, replace

from kafscale.catalog.page import describe, parse_page
from kafscale.errors import CorruptData
from kafscale.paths import SegmentKey, parse_catalog_page_key, parse_segment_key
from kafscale.segment.format import SegmentFooter, SegmentHeader
from kafscale.segment.index import parse_index
from kafscale.segment.reader import ParsedSegment, parse_segment
from kafscale.segment.verify import verify_index, verify_segment
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale_spark.audit.bucket import Bucket
from kafscale_spark.audit.findings import Finding, Kind


@dataclass(frozen=True, slots=True)
class Entry:
    """A segment's entry in a catalog page, as stored or as expected: the fields of a `CatalogSegment`."""

    base_offset: int
    next_offset: int
    size: int
    records: int
    min_timestamp: int
    max_timestamp: int
    created_ms: int
    epoch: int

    @classmethod
    def of(cls, segment: CatalogSegment) -> "Entry":
        return cls(
            segment.base_offset,
            segment.next_offset,
            segment.size,
            segment.records,
            segment.min_timestamp,
            segment.max_timestamp,
            segment.created_ms,
            segment.epoch,
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking one object. ``gone`` means that it was deleted after the listing.

    For a segment, ``next_offset`` and ``epoch`` are -1 if damage hides them, and ``entries`` has its expected entry in
    catalog pages, or none if damage hides it. For a page, ``entries`` and ``topic_id`` are those of the page.
    """

    key: str
    topic: str
    partition: int
    base_offset: int
    next_offset: int = -1
    epoch: int = -1
    size: int = 0
    records: int = 0
    gone: bool = False
    topic_id: bytes = b""
    entries: list[Entry] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def check_object(bucket: Bucket, key: str) -> Checked:
    """Check a segment or a catalog page."""
    return check_segment(bucket, key) if parse_segment_key(key) else check_page(bucket, key)


def check_segment(bucket: Bucket, key: str) -> Checked:
    """Read and check a segment and its index. Raises ValueError for another key."""
    name = parse_segment_key(key)
    if name is None:
        raise ValueError(f"{key} is not the key of a segment")
    checked = Checked(key, name.topic, name.partition, name.base_offset)
    data = bucket.get(key)
    if data is None:
        return replace(checked, gone=True)
    findings = [_finding(checked, Kind.SEGMENT_DAMAGED, fault) for fault in verify_segment(data)]
    findings += _misplaced(checked, data)
    # The content of a damaged segment is unreliable.
    parsed = None if findings else parse_segment(data)
    findings += _check_index(bucket, checked, parsed)
    header, footer = _header(data), _footer(data)
    in_place = header is not None and header.base_offset == checked.base_offset
    return replace(
        checked,
        next_offset=footer.last_offset + 1 if footer and in_place else -1,
        epoch=header.epoch if header else -1,
        size=len(data),
        records=header.message_count if header else 0,
        entries=[Entry.of(describe(data, parsed.positions, parsed.next_offset))] if parsed else [],
        findings=findings,
    )


def check_page(bucket: Bucket, key: str) -> Checked:
    """Check that a catalog page is valid and belongs to the partition of its key. Raises ValueError for another key."""
    name = parse_catalog_page_key(key)
    if name is None:
        raise ValueError(f"{key} is not the key of a catalog page")
    checked = Checked(key, name.topic, name.partition, name.base_offset)
    data = bucket.get(key)
    if data is None:
        return replace(checked, gone=True)
    checked = replace(checked, size=len(data))
    try:
        content = parse_page(data)
    except CorruptData as error:
        return replace(checked, findings=[_finding(checked, Kind.PAGE_DAMAGED, str(error))])
    first = content.segments[0].base_offset
    if (content.topic, content.partition, first) != (name.topic, name.partition, name.base_offset):
        detail = f"it belongs to {content.topic}-{content.partition} from offset {first}"
        return replace(checked, findings=[_finding(checked, Kind.PAGE_DAMAGED, detail)])
    return replace(checked, topic_id=content.topic_id, entries=[Entry.of(each) for each in content.segments])


def _misplaced(checked: Checked, data: bytes) -> list[Finding]:
    header = _header(data)
    if header is None or header.base_offset == checked.base_offset:
        return []
    return [_finding(checked, Kind.SEGMENT_MISPLACED, f"it begins at offset {header.base_offset}, unlike its key")]


def _check_index(bucket: Bucket, checked: Checked, segment: ParsedSegment | None) -> list[Finding]:
    name = parse_segment_key(checked.key)
    key = str(SegmentKey(name.namespace, name.topic, name.partition, name.base_offset, "index")) if name else ""
    content = bucket.get(key)
    if content is None:
        return [_finding(checked, Kind.INDEX_MISSING, "the segment has no index", key)]
    try:
        index = parse_index(content)
    except CorruptData as error:
        return [_finding(checked, Kind.INDEX_DAMAGED, str(error), key)]
    faults = verify_index(index, segment) if segment else []
    return [_finding(checked, Kind.INDEX_WRONG, fault, key) for fault in faults]


def _finding(checked: Checked, kind: Kind, detail: str, key: str = "") -> Finding:
    return Finding(kind, checked.topic, checked.partition, checked.base_offset, key or checked.key, detail)


def _header(data: bytes) -> SegmentHeader | None:
    try:
        return SegmentHeader.parse(data)
    except CorruptData:
        return None


def _footer(data: bytes) -> SegmentFooter | None:
    try:
        return SegmentFooter.parse(data)
    except CorruptData:
        return None
