"""Cut a log's stretches into splits of equal bytes. No I/O."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kafscale.v1.storage_pb2 import Split

MAX_SPLITS = 100_000
"""Per partition, which is about 2 MB of a reply."""


class TooManySplits(Exception):
    """The request would result in more than `MAX_SPLITS` splits."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets from ``start`` up to ``end``, whose segments have about ``size`` bytes.

    ``newest``: the largest timestamp, or None if it is unknown.
    """

    start: int
    end: int
    size: int
    newest: int | None

    def part(self, start: int, end: int) -> "Stretch":
        """Return the part from ``start`` to ``end``, assuming that bytes are spread evenly over offsets."""
        start, end = max(start, self.start), min(end, self.end)
        return replace(self, start=start, end=end, size=self.size * (end - start) // (self.end - self.start))


def cut(stretches: Iterable[Stretch], *, split_bytes: int, split_records: int) -> list[Split]:
    """Cut ascending stretches into splits. Offsets between stretches may be in a split. Raises TooManySplits.

    Splits begin and end at the bounds of stretches, except in a stretch twice as large as a split or if
    ``split_records`` requires it.
    """
    kept = list(stretches)
    total = sum(stretch.size for stretch in kept)
    count = max(round(total / split_bytes), 1) if split_bytes else 1
    if count > MAX_SPLITS:
        raise TooManySplits
    step = max(total / count, 1)
    splits: list[Split] = []
    before, number = 0, -1
    for part in _parts(kept, step):
        # Assign each part by its middle, so that rounding errors do not add up.
        middle = int((before + part.size / 2) / step)
        if middle > number:
            splits.append(Split(start=part.start, end=part.end, bytes=part.size))
            number = middle
        else:
            splits[-1].end, splits[-1].bytes = part.end, splits[-1].bytes + part.size
        before += part.size
    if not split_records:
        return splits
    if sum((split.end - split.start - 1) // split_records + 1 for split in splits) > MAX_SPLITS:
        raise TooManySplits
    return [part for split in splits for part in _with_records(split, split_records)]


def _parts(stretches: Iterable[Stretch], step: float) -> Iterator[Stretch]:
    for stretch in stretches:
        offsets = stretch.end - stretch.start
        for start, end in _evenly(stretch.start, stretch.end, min(int(stretch.size / step), offsets) or 1):
            yield stretch.part(start, end)


def _with_records(split: Split, limit: int) -> Iterator[Split]:
    offsets = split.end - split.start
    for start, end in _evenly(split.start, split.end, (offsets - 1) // limit + 1):
        yield Split(start=start, end=end, bytes=split.bytes * (end - start) // offsets)


def _evenly(start: int, end: int, parts: int) -> Iterator[tuple[int, int]]:
    for i in range(parts):
        yield start + (end - start) * i // parts, start + (end - start) * (i + 1) // parts
