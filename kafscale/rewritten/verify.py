"""Compares the index of a rewritten object with the object."""

from itertools import pairwise

from kafscale.errors import CorruptData
from kafscale.rewritten.index import RewrittenIndex
from kafscale.segment.reader import ParsedSegment


def verify_rewritten_index(index: RewrittenIndex, parsed: ParsedSegment) -> list[str]:
    """Return what is wrong with the index of an object, which was verified."""
    if index.offsets[-1] != parsed.next_offset or index.positions[-1] != parsed.body_end:
        return [
            f"the index ends at offset {index.offsets[-1]} and position {index.positions[-1]}, the object at "
            f"{parsed.next_offset} and {parsed.body_end}"
        ]
    bases = dict(zip(parsed.positions, parsed.offsets, strict=True))
    faults: list[str] = []
    for number, (start, end) in enumerate(pairwise(index.positions)):
        if bases.get(start) != index.offsets[number]:
            begins = f"one of offset {bases[start]}" if start in bases else "no batch"
            faults.append(f"the index has offset {index.offsets[number]} at {start}, where {begins} begins")
            continue
        try:
            index.verify(memoryview(parsed.data)[start:end], number, number + 1)
        except CorruptData as error:
            faults.append(str(error))
    return faults
