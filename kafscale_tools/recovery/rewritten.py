"""Determines the rewritten part of a partition's log if only the objects are left. This module does no IO.

It relies on these facts:

- An owner stores a root after the objects that it names, which have the content of committed objects. So a root proves
  that the log is committed up to the root's end, even if the root itself was never committed.
- What a root replaces is deleted only after the next root was committed. So the newest root whose objects are there is
  the log. Its first objects may be missing, because retention deletes the oldest objects first.
- A root leaves out what is below the log start.
- The names of objects say which offsets they stand for. So objects whose names tile a range are enough if all roots are
  damaged. A range in which no record is left has no object, and looks like a missing one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.root import Entry, Root
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from kafscale_tools.recovery.chain import Chain, Found, Hole
from services.storage.log.partition import is_earlier_topics


class StoredObject(NamedTuple):
    """A rewritten object, by its header and footer. ``size`` in bytes."""

    size: int
    crc: int
    created_ms: int


class RootFound(NamedTuple):
    """A root and its checksum."""

    key: RootKey
    crc: int
    root: Root


class Described(NamedTuple):
    """A rewritten object that was read completely, and the epochs of its batches with their first offsets."""

    entry: RewrittenEntry
    epochs: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class RewrittenObjects:
    """The rewritten objects of a partition, and its roots.

    ``unreadable``: objects without a valid header or footer. ``damaged``: why roots cannot be read.
    """

    objects: dict[RewrittenKey, StoredObject] = field(default_factory=dict)
    unreadable: set[RewrittenKey] = field(default_factory=set)
    roots: list[RootFound] = field(default_factory=list)
    damaged: dict[RootKey, str] = field(default_factory=dict)

    def of_topic(self, topic_id: bytes, floor: int) -> "RewrittenObjects":
        """Return those of the topic, without those of earlier topics of its name. The newest root comes first."""
        ours = [
            found
            for found in self.roots
            if found.root.topic_id == topic_id and not is_earlier_topics(found.key.epoch, floor)
        ]
        return RewrittenObjects(
            {key: found for key, found in self.objects.items() if not is_earlier_topics(key.epoch, floor)},
            {key for key in self.unreadable if not is_earlier_topics(key.epoch, floor)},
            sorted(ours, key=lambda found: _age(found.key), reverse=True),
            {key: fault for key, fault in self.damaged.items() if not is_earlier_topics(key.epoch, floor)},
        )

    @property
    def highest_number(self) -> int:
        """The highest number of a root, 0 if there is none."""
        return max([0, *(found.key.number for found in self.roots), *(key.number for key in self.damaged)])

    def damaged_after(self, key: RootKey | None) -> list[str]:
        """Return the faults of damaged roots that are newer than the one with ``key``, or of all."""
        return [
            f"object {each}: {fault}" for each, fault in self.damaged.items() if key is None or _age(each) > _age(key)
        ]


@dataclass(frozen=True, slots=True)
class RewrittenPart:
    """The part of a log below ``root.through``.

    ``key`` is None if the root must be stored. ``start`` is where the log begins, unless that is above the part.
    ``objects`` are those that are there, and ``lost`` those that are missing or damaged, from ``start`` on. ``holes``
    are offsets whose objects are lost.
    """

    root: Root
    key: RootKey | None
    crc: int
    start: int
    objects: tuple[RewrittenEntry, ...]
    lost: tuple[RewrittenKey, ...]
    holes: tuple[Hole, ...]

    @property
    def compacted_below(self) -> int:
        """The offset up to which the log was compacted at least once; 0 if it was not."""
        reached = self.root.compaction.next_offset if self.root.compaction is not None else 0
        return max(self.root.first_dirty, reached)

    def following(self, segments: Iterable[Found]) -> list[Found]:
        """Return the segments that may follow the part.

        Batches of a higher epoch in the part prove that no segment of a lower one follows.
        """
        last_epoch = self.root.epochs[-1].epoch
        return [each for each in segments if each.base >= self.root.through and each.epoch >= last_epoch]

    def before(self, chain: Chain) -> Chain:
        """Return the whole log, of which ``chain`` has the segments from ``root.through`` on."""
        through = self.root.through
        epochs = tuple((one.epoch, one.first_offset) for one in self.root.epochs)
        if self.start >= through:
            return replace(chain, epochs=epochs)
        gap = [Hole(through, chain.start)] if chain.start > through else []
        return replace(chain, start=self.start, holes=(*self.holes, *gap, *chain.holes), epochs=epochs)

    def renumbered(self, number: int) -> "RewrittenPart":
        """Return the part with a root of that number, which must be stored."""
        return replace(self, root=replace(self.root, number=number, obsolete=()), key=None, crc=0)


def part_of(found: RootFound, objects: Mapping[RewrittenKey, StoredObject], least: int) -> RewrittenPart:
    """Return the part that a root describes. The log begins at ``least`` or later."""
    root, key = found.root, found.key
    there: list[RewrittenEntry] = []
    lost: list[RewrittenKey] = []
    holes: list[Hole] = []
    start = max(root.start, least)
    for entry in root.entries:
        if entry.found is None or entry.end <= start:
            continue
        name = RewrittenKey.of(entry.found, key.namespace, key.topic, key.partition)
        stated = StoredObject(entry.found.size, entry.found.crc, entry.found.created_ms)
        if objects.get(name) == stated:
            there.append(entry.found)
        elif there:
            lost.append(name)
            holes.append(Hole(max(entry.start, start), entry.end))
        else:
            start = entry.end
    return RewrittenPart(root, key, found.crc, start, tuple(there), tuple(lost), tuple(holes))


def tiles(objects: Iterable[RewrittenKey], least: int) -> list[RewrittenKey]:
    """Return objects that follow each other, as far as possible without missing offsets.

    They begin with the first object that reaches beyond ``least``. Of objects that lead equally far, the newest is
    taken.
    """
    by_base: dict[int, list[RewrittenKey]] = {}
    for key in objects:
        if key.next_offset > least:
            by_base.setdefault(key.base_offset, []).append(key)
    reached: dict[int, int] = {}
    for base in sorted(by_base, reverse=True):
        reached[base] = max(_leads(key, reached) for key in by_base[base])
    path: list[RewrittenKey] = []
    position = 0
    for base in sorted(by_base):
        if base >= position:
            path.append(max(by_base[base], key=lambda key: (_leads(key, reached), key.epoch, key.attempt)))
            position = path[-1].next_offset
    return path


def parts_of_tiles(described: Sequence[Described], topic_id: bytes) -> list[RewrittenPart]:
    """Return parts without stored roots, from objects in the order of `tiles`: all of them, or up to missing offsets.

    Segments may have what follows. The longest part comes first.
    """
    gaps = [number for number in range(1, len(described)) if _end(described[number - 1]) < _base(described[number])]
    return [_of_tiles(described[:count], topic_id) for count in (len(described), *reversed(gaps)) if count]


def _of_tiles(described: Sequence[Described], topic_id: bytes) -> RewrittenPart:
    entries: list[Entry] = []
    epochs: list[tuple[int, int]] = []
    holes: list[Hole] = []
    for one in described:
        if entries and entries[-1].end < _base(one):
            holes.append(Hole(entries[-1].end, _base(one)))
            entries.append(Entry(entries[-1].end, _base(one), None))
        entries.append(Entry(_base(one), _end(one), one.entry))
        epochs += [each for each in one.epochs if not epochs or each[0] > epochs[-1][0]]
    epochs[0] = epochs[0][0], entries[0].start
    history = [EpochHistory.Entry(epoch=epoch, first_offset=first) for epoch, first in epochs]
    # Its number is set when it is stored.
    root = Root(topic_id, 1, entries, history)
    return RewrittenPart(root, None, 0, root.start, tuple(one.entry for one in described), (), tuple(holes))


def _base(one: Described) -> int:
    return one.entry.base_offset


def _end(one: Described) -> int:
    return one.entry.next_offset


def _leads(key: RewrittenKey, reached: Mapping[int, int]) -> int:
    """Return how far the objects from ``key`` on lead. ``reached``: how far those at higher base offsets do."""
    return reached.get(key.next_offset, key.next_offset)


def _age(key: RootKey) -> tuple[int, int, int]:
    return key.epoch, key.number, key.attempt
