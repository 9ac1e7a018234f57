"""Describes everything that is wrong with a segment or an index, whereas readers stop at the first fault."""

from collections.abc import Callable
from typing import TypeVar

from kafscale.errors import CorruptData
from kafscale.records.checksum import Buffer, crc32c
from kafscale.segment.chain import batch_at, link_fault
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, CorruptSegment, SegmentFooter, SegmentHeader
from kafscale.segment.index import Index, choose_entries
from kafscale.segment.reader import ParsedSegment, verify_batch

T = TypeVar("T")


def verify_segment(data: Buffer) -> list[str]:
    """Return a sentence for each fault of a segment file, none if ``parse_segment`` accepts it.

    The checksum of every batch is verified too. Flags and creation time cannot be verified.
    """
    findings: list[str] = []
    header = _try(findings, lambda: SegmentHeader.parse(data))
    footer = _try(findings, lambda: SegmentFooter.parse(data))
    if header is None:
        return findings
    # Without a footer, the file was probably truncated. Its batches are still worth checking.
    end = len(data) - FOOTER_SIZE if footer else len(data)
    if footer:
        computed = crc32c(memoryview(data)[HEADER_SIZE : max(end, HEADER_SIZE)])
        if computed != footer.crc:
            findings.append(f"checksum of the body is {computed:#010x}, the footer says {footer.crc:#010x}")
    messages, next_offset, whole = _verify_batches(data, header, end, findings)
    if not whole:
        return findings
    if messages != header.message_count:
        findings.append(f"{messages} messages, the header says {header.message_count}")
    if footer and next_offset != footer.last_offset + 1:
        findings.append(f"the last offset is {next_offset - 1}, the footer says {footer.last_offset}")
    return findings


def verify_index(index: Index, segment: ParsedSegment) -> list[str]:
    """Return a sentence for each mismatch between an index and its segment, none if the index is correct."""
    batches = dict(zip(segment.positions, segment.offsets, strict=True))
    findings = []
    for number, (offset, position) in enumerate(zip(index.offsets, index.positions, strict=True)):
        actual = batches.get(position)
        if actual is None:
            findings.append(f"entry {number} (offset {offset}) points to {position}, but no batch begins there")
        elif actual != offset:
            findings.append(f"entry {number} has offset {offset}, but the batch at {position} begins at {actual}")
    if not findings:
        due = [segment.offsets[number] for number in choose_entries(segment.offsets, index.interval)]
        if due != list(index.offsets):
            findings.append(
                f"{len(index.offsets)} entries, but interval {index.interval} requires {len(due)}, first for offsets"
                f" {', '.join(map(str, due[:3]))}"
            )
    return findings


def _verify_batches(data: Buffer, header: SegmentHeader, end: int, findings: list[str]) -> tuple[int, int, bool]:
    """Return the number of messages, the next offset, and whether the walk reached the end."""
    position, messages, expected, exact = HEADER_SIZE, 0, header.base_offset, True
    while position < end:
        try:
            found = batch_at(data, position, end)
        except CorruptSegment as error:
            findings.append(str(error))
            return messages, expected, False
        fault = link_fault(found, expected, header.epoch, exact=exact)
        if fault:
            findings.append(f"batch at {position} {fault}")
        _try(findings, lambda position=position, found=found: verify_batch(data, position, found))  # type: ignore[misc]
        messages += found.record_count
        expected, exact = found.next_offset, False
        position += found.size
    return messages, expected, True


def _try(findings: list[str], step: Callable[[], T]) -> T | None:
    try:
        return step()
    except CorruptData as error:
        findings.append(str(error))
        return None
