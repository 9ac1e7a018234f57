"""Which objects of a chain count, from a listing of them. Pure.

A run R puts the objects 1, 2, 3 ... create-only, and begins object n only when all objects up to n - ``WINDOW`` are
known to be stored. Each object names a checkpoint: the lowest number whose records are needed. R deletes objects only
below a checkpoint that a stored object names. An object counts if all objects from the checkpoint up to it are stored.
A seal at the first missing number ends the chain: everything below it counts, and nothing at or above it ever does.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

WINDOW = 4
"""How many objects of a chain may be on their way to the store at the same time."""


@dataclass(frozen=True, slots=True)
class Span:
    """The objects of a chain that count and are needed: from number ``start`` up to ``end``, exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a chain.

    ``records`` has the sizes of record objects in bytes, by number. ``seals`` has the numbers of seals. ``checkpoint``
    is the one that the newest record object names, 1 if there is none. ``removed``: the mark is there that the chain
    was removed.
    """

    records: Mapping[int, int]
    seals: Set[int]
    checkpoint: int
    removed: bool = False

    @property
    def span(self) -> Span:
        """What counts. The end is the first number from the checkpoint on that is not the number of a record object."""
        end = self.checkpoint
        while end in self.records:
            end += 1
        return Span(self.checkpoint, end)

    @property
    def sealed(self) -> bool:
        """Whether a seal ends the chain, so that no more objects will count."""
        return self.span.end in self.seals

    @property
    def has_gap(self) -> bool:
        """Whether the object at the end is missing although the run knew that it was stored.

        It is lost only if a later listing shows this too: the run may have deleted it below a newer checkpoint.
        """
        return not self.sealed and any(number >= self.span.end + WINDOW for number in self.records)
