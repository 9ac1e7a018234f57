"""Pages of a partition's catalog (``protos/kafscale/v1/catalog.proto``): descriptions of 64 segments per page.

A page is derived from segments and only a hint. `parse_page` returns its content, `misfit` checks it against the log.
"""

import struct
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from kafscale.errors import CorruptData
from kafscale.records.batch import LOG_APPEND_TIME_BIT
from kafscale.records.checksum import Buffer, crc32c
from kafscale.segment.format import MAX_OFFSET, SegmentHeader
from kafscale.v1.catalog_pb2 import CatalogContent, CatalogPage, CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef

SEGMENTS_PER_PAGE = 64
FORMAT = 1
_ID_BYTES = 16
_TIMES = struct.Struct(">21xh4xqq")  # of a batch's header: attributes, first and largest timestamp


class CorruptPage(CorruptData):
    """Bytes that are not a catalog page, or a page that is inconsistent."""


def describe(data: Buffer, positions: Sequence[int], next_offset: int) -> CatalogSegment:
    """Return the description of the segment ``data``, whose batches begin at ``positions``. Reads only headers."""
    header = SegmentHeader.parse(data)
    oldest = newest = -1
    for position in positions:
        attributes, first, latest = _TIMES.unpack_from(data, position)
        newest = max(newest, latest)
        # If the broker stamped the batch, the producer's timestamps do not count.
        first = latest if attributes & LOG_APPEND_TIME_BIT else first
        if first >= 0 and (oldest < 0 or first < oldest):
            oldest = first
    return CatalogSegment(
        base_offset=header.base_offset,
        next_offset=next_offset,
        size=len(data),
        records=header.message_count,
        min_timestamp=oldest,
        max_timestamp=newest,
        created_ms=header.created_ms,
        epoch=header.epoch,
    )


def age_from(segment: CatalogSegment) -> int:
    """Return the time from which a segment's age counts, in ms since 1970: its newest record's, or without timestamps
    that of its creation."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def build_page(partition: PartitionRef, epoch: int, segments: Sequence[CatalogSegment]) -> bytes:
    """Return the page of consecutive committed segments. ``epoch`` is the owner's current one. Raises CorruptPage."""
    content = CatalogContent(
        topic=partition.topic,
        topic_id=partition.topic_id,
        partition=partition.partition,
        epoch=epoch,
        segments=segments,
    )
    fault = _fault(content)
    if fault:
        raise CorruptPage(fault)
    body = content.SerializeToString(deterministic=True)
    return CatalogPage(format=FORMAT, crc=crc32c(body), content=body).SerializeToString(deterministic=True)


def parse_page(data: bytes) -> CatalogContent:
    """Return the content of a stored page, after verifying its checksum and chain. Raises CorruptPage."""
    try:
        page = CatalogPage.FromString(data)
        if page.format != FORMAT:
            raise CorruptPage(f"not a catalog page of format {FORMAT}")
        computed = crc32c(page.content)
        if computed != page.crc:
            raise CorruptPage(f"checksum of the content is {computed:#010x}, the page says {page.crc:#010x}")
        content = CatalogContent.FromString(page.content)
    except DecodeError as error:
        raise CorruptPage(f"not a catalog page: {error}") from error
    fault = _fault(content)
    if fault:
        raise CorruptPage(fault)
    return content


def is_page(data: bytes) -> bool:
    """Return whether these bytes begin like a page: format, checksum, content."""
    return len(data) > 8 and (data[:3], data[7]) == (bytes((0x08, FORMAT, 0x15)), 0x1A)


def misfit(
    content: CatalogContent,
    partition: PartitionRef,
    *,
    epochs: Sequence[tuple[int, int]],
    log_start: int,
    high_watermark: int,
) -> str | None:
    """Return why a page does not describe this log. If None, its segments from ``log_start`` on can be trusted.

    ``epochs`` is the epoch history as (epoch, first offset), ascending, read at the same revision as the high
    watermark. A segment belongs to the log if all its offsets were written in its epoch, as an epoch assigns each
    offset only once.
    """
    if content.topic_id != partition.topic_id:
        return "it belongs to another topic that had the same name"
    if (content.topic, content.partition) != (partition.topic, partition.partition):
        return f"it belongs to {content.topic}-{content.partition}"
    if content.segments[-1].next_offset > high_watermark:
        return f"it extends to offset {content.segments[-1].next_offset}, but the log ends at {high_watermark}"
    ends = [*(first for _, first in epochs[1:]), high_watermark]
    stretches = {epoch: (first, end) for (epoch, first), end in zip(epochs, ends, strict=False)}
    for segment in content.segments:
        if segment.next_offset <= log_start:
            continue
        first, end = stretches.get(segment.epoch, (MAX_OFFSET, 0))
        if not first <= segment.base_offset < segment.next_offset <= end:
            return f"epoch {segment.epoch} did not write offsets {segment.base_offset} to {segment.next_offset - 1}"
    return None


def _fault(content: CatalogContent) -> str | None:
    if len(content.topic_id) != _ID_BYTES or content.partition < 0:
        return f"a topic id of {len(content.topic_id)} bytes, partition {content.partition}"
    if not 1 <= len(content.segments) <= SEGMENTS_PER_PAGE:
        return f"{len(content.segments)} segments, not 1 to {SEGMENTS_PER_PAGE}"
    expected = content.segments[0].base_offset
    for segment in content.segments:
        if not 0 <= expected == segment.base_offset < segment.next_offset:
            return f"a segment with offsets {segment.base_offset} to {segment.next_offset - 1}, but {expected} is next"
        if not (segment.size and segment.records and segment.epoch >= 0):
            return (
                f"segment {segment.base_offset} has {segment.size} bytes, {segment.records} records, "
                f"epoch {segment.epoch}"
            )
        expected = segment.next_offset
    return None
