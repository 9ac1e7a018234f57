"""Describes what is wrong with the batches of an intake object, whose checksums `parse` has verified."""

from collections.abc import Iterator

from kafscale.errors import CorruptData
from kafscale.intake.format import Entry, IntakeObject
from kafscale.records.batch import verify_crc, walk


def verify_batches(found: IntakeObject) -> list[str]:
    """Return a sentence for each fault of a batch: its checksum, its epoch, and that no offset is missing."""
    return [
        f"{entry.partition.topic}-{entry.partition.partition} at offset {entry.base_offset}: {fault}"
        for entry in found.entries
        for fault in _faults(entry)
    ]


def _faults(entry: Entry) -> Iterator[str]:
    data, expected = b"".join(entry.batches), entry.base_offset
    try:
        for position, header in walk(data):
            if header.base_offset != expected:
                yield f"a batch begins at offset {header.base_offset}, but {expected} is next"
            if header.leader_epoch != entry.epoch:
                yield f"the batch at offset {header.base_offset} has epoch {header.leader_epoch}, not {entry.epoch}"
            verify_crc(data, position, header)
            expected = header.next_offset
    except CorruptData as error:
        yield str(error)
        return
    if expected != entry.next_offset:
        yield f"the batches end at {expected}, the table says {entry.next_offset}"
