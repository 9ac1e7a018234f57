"""Reads the intakes in the bucket: the records that were acknowledged and are not in segments yet.

An entry that counts is in the log at its offset. So it contradicts all segments of lower epochs that reach beyond its
base offset, which were stored and not committed.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from kafscale import paths
from kafscale.errors import CorruptData, Unavailable
from kafscale.intake.format import Entry
from kafscale.intake.listing import Span
from kafscale.intake.tail import Tail, tail_of
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale_tools.recovery.chain import Found
from services.storage.intake.chain import Chain, DamagedChain
from services.storage.intake.known import runs_with_intakes

Key = tuple[bytes, int]
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class RecoveredTail:
    """What the intake of run ``run_id`` has behind the segments of a partition, in one epoch."""

    run_id: str
    epoch: int
    tail: Tail


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic with entries: its id, the number of partitions up to the highest one, and the highest epoch."""

    id: bytes
    partitions: int
    epoch: int


@dataclass(slots=True)
class Intakes:
    """The intakes that are needed. ``spans``: what counts of each, by run. ``entries``: by topic id and partition.

    ``any``: there are intakes, or what remains of removed ones. ``topics`` has the latest topic of each name.
    """

    spans: dict[str, Span] = field(default_factory=dict)
    entries: dict[Key, list[tuple[str, Entry]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    any: bool = False
    topics: dict[str, TopicSeen] = field(default_factory=dict)

    def add(self, run_id: str, entry: Entry) -> None:
        ref = entry.partition
        self.entries.setdefault((ref.topic_id, ref.partition), []).append((run_id, entry))
        seen = self.topics.get(ref.topic, TopicSeen(ref.topic_id, 0, -1))
        if ref.topic_id == seen.id:
            partitions, epoch = max(seen.partitions, ref.partition + 1), max(seen.epoch, entry.epoch)
            self.topics[ref.topic] = TopicSeen(seen.id, partitions, epoch)
        elif entry.epoch > seen.epoch:
            # All epochs of a topic are higher than those of earlier topics of its name.
            self.topics[ref.topic] = TopicSeen(ref.topic_id, ref.partition + 1, entry.epoch)

    def of(self, key: Key, floor: int) -> list[tuple[str, Entry]]:
        """Return the entries of a partition above the topic's epoch floor."""
        return [each for each in self.entries.get(key, ()) if each[1].epoch > floor]


async def read_intakes(objects: ObjectStore, namespace: str, registered: Collection[str], *, now_ms: int) -> Intakes:
    """Read all intakes without changing anything. Raises Unavailable, Refused.

    ``registered``: runs that may begin an intake although they have no object yet.
    """
    found = Intakes()
    async with aclosing(runs_with_intakes(objects, namespace)) as run_ids:
        runs = {run_id async for run_id in run_ids}
    found.any = bool(runs)
    for run_id in sorted(runs.union(registered)):
        if not await _is_removed(objects, namespace, run_id):
            await _read_intake(found, objects, namespace, run_id, now_ms)
    return found


async def _read_intake(found: Intakes, objects: ObjectStore, namespace: str, run_id: str, now_ms: int) -> None:
    chain = Chain(objects, namespace, run_id, now_ms=lambda: now_ms)
    try:
        try:
            span = await chain.checked_span()
        except DamagedChain as error:
            # What is below the missing object can still be read.
            found.faults.append(f"intake of run {run_id}: {error}")
            span = await chain.span()
        found.spans[run_id] = span
        async for one in chain.read(span):
            for entry in one.entries:
                found.add(run_id, entry)
    except (DamagedChain, ObjectNotFound) as error:
        found.faults.append(f"intake of run {run_id}: {error}")


async def entries_of_topic(
    objects: ObjectStore, namespace: str, run_id: str, topic_id: bytes, *, now_ms: int
) -> dict[int, list[tuple[str, Entry]]]:
    """Return what the intake of a run, which may go on, has of a topic by now, by partition.

    Raises DamagedChain, Unavailable, Refused.
    """
    chain = Chain(objects, namespace, run_id, now_ms=lambda: now_ms)
    for _ in range(_ATTEMPTS):
        found: dict[int, list[tuple[str, Entry]]] = {}
        try:
            async for one in chain.read(await chain.checked_span()):
                for entry in one.entries:
                    if entry.partition.topic_id == topic_id:
                        # Copied, so that the rest of the object is freed.
                        kept = replace(entry, batches=[b"".join(entry.batches)])
                        found.setdefault(entry.partition.partition, []).append((run_id, kept))
            return found
        except ObjectNotFound:
            # The run has moved its checkpoint.
            continue
    raise Unavailable(f"the intake of run {run_id} keeps changing")


async def seal_intakes(objects: ObjectStore, namespace: str, intakes: Intakes, *, now_ms: int) -> None:
    """Seal the intakes, so that no process that may still run acknowledges more.

    Raises Unavailable, also if one has grown since it was read; Refused.
    """
    for run_id, span in intakes.spans.items():
        chain = Chain(objects, namespace, run_id, now_ms=lambda: now_ms)
        try:
            sealed = await chain.seal()
        except DamagedChain:
            # Reported as a fault when it was read.
            continue
        if sealed.end != span.end:
            raise Unavailable(
                f"run {run_id} has acknowledged records since the bucket was read: stop all processes and try again"
            )


def without_contradicted(segments: Iterable[Found], entries: Sequence[tuple[str, Entry]]) -> list[Found]:
    """Return the segments that no entry of a higher epoch contradicts."""
    first: dict[int, int] = {}
    for _, entry in entries:
        first[entry.epoch] = min(first.get(entry.epoch, entry.base_offset), entry.base_offset)
    return [
        segment
        for segment in segments
        if not any(epoch > segment.epoch and base < segment.next for epoch, base in first.items())
    ]


def first_above(entries: Sequence[tuple[str, Entry]], end: int) -> int:
    """Return the lowest offset from ``end`` on that an entry has; ``end`` if none has one."""
    return max(end, min((entry.base_offset for _, entry in entries if entry.next_offset > end), default=end))


def recovered(entries: Sequence[tuple[str, Entry]], end: int) -> RecoveredTail | None:
    """Return what the entries have from offset ``end`` on, where the segments end, or None. Raises CorruptData."""
    above = [(run_id, entry) for run_id, entry in entries if entry.next_offset > end]
    if not above:
        return None
    owners = {(run_id, entry.epoch) for run_id, entry in above}
    if len(owners) > 1:
        raise CorruptData(f"several runs or epochs have records above offset {end} in their intakes: {sorted(owners)}")
    ((run_id, epoch),) = owners
    return RecoveredTail(run_id, epoch, tail_of((entry for _, entry in above), epoch=epoch, start=end))


async def _is_removed(objects: ObjectStore, namespace: str, run_id: str) -> bool:
    try:
        await objects.head(str(paths.IntakeKey(namespace, run_id, None)))
    except ObjectNotFound:
        return False
    return True
