"""Describes what is in a segment or rewritten object and in its index, also if they are damaged. No IO."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafscale.errors import CorruptData
from kafscale.records.batch import BatchHeader
from kafscale.records.checksum import crc32c
from kafscale.records.codecs import codec_of
from kafscale.rewritten.index import parse_rewritten_index
from kafscale.rewritten.object import parse_object
from kafscale.rewritten.verify import verify_rewritten_index
from kafscale.segment.chain import batches_of
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, CorruptSegment, SegmentFooter, SegmentHeader
from kafscale.segment.index import parse_index
from kafscale.segment.reader import ParsedSegment, parse_segment
from kafscale.segment.verify import verify_index, verify_segment
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from kafscale.v1.segment_pb2 import (
    IndexedBatch,
    SegmentContents,
    SegmentFooterFields,
    SegmentHeaderFields,
    StoredBatch,
)

_MOST_FAULTS = 100


class StoredSegment(NamedTuple):
    """The bytes of a segment and its index, and their keys. ``index_data``: None if it is missing.

    ``rewritten``: the entry of the root, for a rewritten object.
    """

    key: str
    data: bytes
    index_key: str
    index_data: bytes | None
    rewritten: RewrittenEntry | None


def contents_of(stored: StoredSegment, epoch: int, first: int, limit: int) -> SegmentContents:
    """Return the contents with at most ``limit`` batches from number ``first`` on. ``epoch``: that of the log there.

    All checksums are verified, which takes CPU time.
    """
    data, rewritten = stored.data, stored.rewritten is not None
    contents = SegmentContents(
        object=stored.key,
        bytes=len(data),
        rewritten=rewritten,
        index_object=stored.index_key,
        has_index=stored.index_data is not None,
    )
    try:
        header = SegmentHeader.parse(data, may_be_empty=rewritten)
    except CorruptSegment as error:
        contents.faults.append(str(error))
        return contents
    contents.header.CopyFrom(
        SegmentHeaderFields(
            flags=header.flags,
            base_offset=header.base_offset,
            messages=header.message_count,
            created_ms=header.created_ms,
            epoch=header.epoch,
        )
    )
    end = _set_footer(contents, data)
    batches, _ = batches_of(data, HEADER_SIZE, end)
    contents.batch_count, contents.first_batch = len(batches), first
    page = batches[first : first + limit]
    contents.batches.extend(_described(page))
    faults = [] if rewritten or header.epoch == epoch else [f"epoch {header.epoch}, but the log has {epoch} there"]
    damage, parsed = _verified(stored)
    faults += damage + _set_index(contents, stored, page, parsed)
    contents.faults.extend(faults[:_MOST_FAULTS])
    return contents


def _set_footer(contents: SegmentContents, data: bytes) -> int:
    """Set the footer unless it is damaged, and return where the batches end."""
    try:
        footer = SegmentFooter.parse(memoryview(data)[HEADER_SIZE:])
    except CorruptSegment:
        # Probably the object was cut off. Its batches are still shown.
        return len(data)
    end = len(data) - FOOTER_SIZE
    correct = crc32c(memoryview(data)[HEADER_SIZE:end]) == footer.crc
    contents.footer.CopyFrom(SegmentFooterFields(last_offset=footer.last_offset, crc=footer.crc, crc_correct=correct))
    return end


def _described(page: Sequence[tuple[int, BatchHeader]]) -> Iterator[StoredBatch]:
    for position, header in page:
        yield StoredBatch(
            position=position,
            bytes=header.size,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            records=header.record_count,
            codec=_codec(header.attributes),
            epoch=header.leader_epoch,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            log_append_time=header.is_log_append_time,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            horizon=header.has_horizon,
        )


def _codec(attributes: int) -> str:
    try:
        return codec_of(attributes).name.lower()
    except CorruptData:
        return f"unknown {attributes & 7}"


def _verified(stored: StoredSegment) -> tuple[list[str], ParsedSegment | None]:
    """Return the faults of the object, and its batches if there are none."""
    if stored.rewritten is None:
        faults = verify_segment(stored.data)
        return faults, None if faults else parse_segment(stored.data)
    try:
        return [], parse_object(stored.rewritten, stored.data, check_batches=True)
    except CorruptData as error:
        return [str(error)], None


def _set_index(
    contents: SegmentContents,
    stored: StoredSegment,
    page: Sequence[tuple[int, BatchHeader]],
    parsed: ParsedSegment | None,
) -> list[str]:
    """Set the fields about the index, and return its faults. ``parsed``: the object, unless it is damaged."""
    if stored.index_data is None:
        return [f"{stored.index_key}: missing"]
    try:
        if stored.rewritten is None:
            index = parse_index(stored.index_data)
            offsets, positions, contents.index_interval = index.offsets, index.positions, index.interval
        else:
            rewritten = parse_rewritten_index(stored.index_data)
            # The last ones are the end of the object.
            offsets, positions = rewritten.offsets[:-1], rewritten.positions[:-1]
    except CorruptData as error:
        return [f"{stored.index_key}: {error}"]
    contents.index_entry_count = len(offsets)
    if page:
        first, last = page[0][0], page[-1][0]
        entries = zip(offsets, positions, strict=True)
        contents.index_entries.extend(IndexedBatch(offset=at, position=of) for at, of in entries if first <= of <= last)
    if parsed is None:
        return []
    faults = verify_index(index, parsed) if stored.rewritten is None else verify_rewritten_index(rewritten, parsed)
    return [f"{stored.index_key}: {fault}" for fault in faults]
