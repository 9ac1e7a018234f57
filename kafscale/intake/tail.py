"""The records at the end of a partition's log that are in an intake, but not in segments. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kafscale.errors import CorruptData
from kafscale.intake.format import Entry
from kafscale.records.batch import BatchHeader, walk
from kafscale.v1.metadata_pb2 import SinkProgress


class TailContradicts(CorruptData):
    """The entries of an intake do not continue the log, so its metadata was rolled back or an entry is missing."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Consecutive batches with their headers, up to offset ``end``.

    ``sinks``: the progress of sink epochs, each with the offset up to which the log must be to have it.
    """

    batches: list[tuple[BatchHeader, memoryview]]
    end: int
    sinks: list[tuple[int, SinkProgress]]


def tail_of(entries: Iterable[Entry], *, epoch: int, start: int) -> Tail:
    """Return what a partition's entries have from offset ``start`` on, where its segments end.

    Entries that were put twice count once. Raises TailContradicts if an entry above ``start`` has another epoch than
    ``epoch``, or if offsets are missing.
    """
    above = sorted((entry for entry in entries if entry.next_offset > start), key=lambda entry: entry.base_offset)
    batches: list[tuple[BatchHeader, memoryview]] = []
    sinks: list[tuple[int, SinkProgress]] = []
    end = start
    for entry in above:
        if entry.epoch != epoch:
            raise TailContradicts(
                f"the intake has offsets {entry.base_offset} to {entry.next_offset - 1} of epoch {entry.epoch}, but "
                f"the log ends at {start} in epoch {epoch}"
            )
        if entry.base_offset > end:
            raise TailContradicts(f"the intake has offset {entry.base_offset}, but not those from {end} on")
        sinks += ((entry.next_offset, progress) for progress in entry.sinks)
        for piece in entry.batches:
            view = memoryview(piece)
            for position, header in walk(view):
                if header.base_offset == end:
                    batches.append((header, view[position : position + header.size]))
                    end = header.next_offset
        if entry.next_offset > end:
            raise TailContradicts(f"the entry at offset {entry.base_offset} ends at {end}, not {entry.next_offset}")
    return Tail(batches, end, sinks)
