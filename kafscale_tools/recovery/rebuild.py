"""Rebuilds metadata from the objects in the bucket. The result is shown to the user before it is written.

The bucket determines the topics and the ends of logs. A snapshot adds what no object contains: groups and their
offsets, sinks, broker ids. Every partition begins a new epoch, far above all epochs seen. An epoch without records left
no object, but clients may know it and would not accept a lower one.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kafscale import paths
from kafscale.catalog.topic_object import TopicObject
from kafscale.errors import CorruptData
from kafscale.intake.format import Entry
from kafscale.metadata.topic_values import INTAKE_STATE_FORMAT, REWRITE_STATE_FORMAT, ClusterInfo, TopicInfo
from kafscale.objects.interface import ObjectNotFound
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.root import build_root, stored_crc
from kafscale.v1.metadata_pb2 import EpochHistory, IntakeRegister, PartitionState, ProducerIds, RootRef, SinkProgress
from kafscale_tools.recovery.bucket import Bucket, PartitionObjects, together
from kafscale_tools.recovery.chain import Chain, chain_of
from kafscale_tools.recovery.intakes import (
    Intakes,
    RecoveredTail,
    TopicSeen,
    first_above,
    recovered,
    without_contradicted,
)
from kafscale_tools.recovery.known import Known
from kafscale_tools.recovery.rewritten import (
    Described,
    RewrittenObjects,
    RewrittenPart,
    part_of,
    parts_of_tiles,
    tiles,
)
from services.storage.log.partition import settled
from services.storage.owning.snapshots import SEGMENTS_BETWEEN
from services.storage.settings import MOST_FLUSHES_IN_FLIGHT

_FORMAT = 1
EPOCH_STEP = 1000
_MOST_EPOCH = 2**31 - 1 - EPOCH_STEP
_WITHOUT_SNAPSHOT = SEGMENTS_BETWEEN + 2 * MOST_FLUSHES_IN_FLIGHT
"""The maximum number of segments with batches that no producer snapshot covers. The last ones may be uncommitted."""
_PRODUCER_ID_BITS = 20
"""New producer ids begin at the current time in milliseconds, shifted by this: a million ids per millisecond."""


@dataclass(slots=True)
class Reading:
    """The progress: ``done`` of ``partitions`` are complete, and ``segments`` have been read."""

    partitions: int
    done: int = 0
    segments: int = 0


Report = Callable[[Reading], None]


@dataclass(frozen=True, slots=True)
class LogFound:
    """A partition: its log in segments, the keys of unreadable objects, and its producer snapshot.

    ``tail``: the records behind the segments that are only in an intake. ``rewritten``: what precedes the segments.
    """

    partition: int
    chain: Chain
    unreadable: tuple[str, ...]
    producer_snapshot: str
    producers_from: int
    tail: RecoveredTail | None = None
    rewritten: RewrittenPart | None = None

    @property
    def end(self) -> int:
        """The high watermark."""
        return self.chain.end if self.tail is None else self.tail.tail.end


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A topic. ``adopted``: it had records, but no topic object."""

    info: TopicInfo
    logs: tuple[LogFound, ...]
    adopted: bool = False


@dataclass(slots=True)
class Rebuilt:
    """The rebuilt metadata. ``undecided`` has the names that have records, but no topic object.

    ``state_format`` is that of the states that instances write. ``roots`` has the keys and bytes of roots that must be
    stored.
    """

    cluster_id: str
    epoch: int = 0
    topics: list[TopicFound] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    next_producer_id: int = 0
    # Runs with intakes that are not removed yet.
    runs: list[str] = field(default_factory=list)
    state_format: int = 1
    roots: dict[str, bytes] = field(default_factory=dict)

    @property
    def damaged(self) -> list[str]:
        """What is missing or damaged, as text. A log with a hole can be read except for the hole."""
        logs = [(topic.info.name, log) for topic in self.topics for log in topic.logs]
        holes = [
            f"{name}-{log.partition}: objects of offsets {hole.start} to {hole.end - 1} are missing"
            for name, log in logs
            for hole in log.chain.holes
        ]
        return [*self.faults, *holes, *(f"object {key} is unreadable" for _, log in logs for key in log.unreadable)]


async def rebuild(
    bucket: Bucket,
    known: Known,
    cluster_id: str,
    intakes: Intakes,
    *,
    adopt: Collection[str],
    ignore: Collection[str],
    now_ms: int,
    report: Report = lambda _: None,
) -> Rebuilt:
    """Rebuild the metadata without writing anything. Raises CorruptData, Unavailable, Refused."""
    stored, faults = await bucket.topic_objects()
    rewritten = await bucket.topics_with_rewritten_objects()
    counts = {name: highest + 1 for name, highest in (await bucket.topics_with_segments()).items()}
    counts |= {name: max(topic.partitions, counts.get(name, 0)) for name, topic in rewritten.items()}
    seen = dict(intakes.topics)
    for name, topic in rewritten.items():
        # All epochs of a topic are higher than those of earlier topics of its name.
        if topic.id and topic.epoch > (seen[name].epoch if name in seen else -1):
            same = name in seen and seen[name].id == topic.id
            seen[name] = topic if not same else replace(topic, partitions=max(topic.partitions, seen[name].partitions))
    # An object may be of an earlier topic of the name, whose epochs are not higher than the floor of the later one.
    stored = {
        name: topic
        for name, topic in stored.items()
        if name not in seen or seen[name].id == topic.id or seen[name].epoch <= topic.epoch_floor
    }
    with_records = counts.keys() | seen.keys()
    rebuilt = Rebuilt(cluster_id, faults=[*faults, *intakes.faults], runs=sorted(intakes.spans))
    rebuilt.undecided = sorted(with_records - stored.keys() - set(adopt) - set(ignore))
    highest = max([known.highest_epoch, known.epoch_floor, *(topic.epoch for topic in seen.values())])
    names = sorted(stored.keys() | (with_records & set(adopt)))
    infos = [_info(name, stored, known, seen.get(name), cluster_id=cluster_id, now_ms=now_ms) for name in names]
    topics = [
        replace(info, partitions=max(info.partitions, counts.get(info.name, 0), _partitions(info, seen)))
        for info in infos
    ]
    read_logs: dict[tuple[str, int], tuple[LogFound, int]] = {}
    reading = Reading(sum(info.partitions for info in topics))

    def advance(segments: int) -> None:
        reading.segments += segments
        report(reading)

    async def read(info: TopicInfo, number: int) -> None:
        objects = await bucket.partition(info.name, number, advance)
        before = known.partition(info.id, info.name, number)
        topic = stored.get(info.name)
        least = max(before.log_start, topic.log_starts[number] if topic and number < topic.partitions else 0)
        entries = intakes.of((info.id, number), info.epoch_floor)
        found = await _log(
            bucket,
            number,
            objects,
            info,
            entries=entries,
            faults=rebuilt.faults,
            least=least,
            proven_end=before.high_watermark,
        )
        highest_entry = max((entry.epoch for _, entry in entries), default=-1)
        read_logs[info.name, number] = found, max(objects.highest_epoch, info.epoch_floor, highest_entry)
        reading.done += 1
        report(reading)

    await together(
        bucket.partitions, (partial(read, info, number) for info in topics for number in range(info.partitions))
    )
    highest = max([highest, *(epoch for _, epoch in read_logs.values())])
    for info in topics:
        logs = tuple(read_logs[info.name, number][0] for number in range(info.partitions))
        rebuilt.topics.append(TopicFound(info, logs, adopted=info.name not in stored))
    for name in set(ignore) & counts.keys() - stored.keys():
        for number in range(counts[name]):
            highest = max(highest, (await bucket.partition(name, number, advance)).highest_epoch)
    if highest > _MOST_EPOCH:
        raise CorruptData(f"epoch {highest} is too high for another restore")
    rebuilt.epoch = highest + EPOCH_STEP
    _name_roots(rebuilt, bucket.namespace)
    # Intakes and rewritten objects show it too.
    with_intakes = INTAKE_STATE_FORMAT if intakes.any or intakes.spans else known.state_format
    rebuilt.state_format = REWRITE_STATE_FORMAT if rewritten else max(with_intakes, known.state_format)
    rebuilt.next_producer_id = max(known.next_producer_id, now_ms << _PRODUCER_ID_BITS)
    return rebuilt


def _partitions(info: TopicInfo, seen: Mapping[str, TopicSeen]) -> int:
    topic = seen.get(info.name)
    return topic.partitions if topic is not None and topic.id == info.id else 0


def _info(
    name: str,
    stored: Mapping[str, TopicObject],
    known: Known,
    seen: TopicSeen | None,
    *,
    cluster_id: str,
    now_ms: int,
) -> TopicInfo:
    """Return the topic from its object, from the snapshot if that is of a later topic of the name, or a new one.

    ``seen``: the topic of the name in intakes or roots.
    """
    found, before = stored.get(name), known.topics.get(name)
    if found is None:
        if before is not None and (seen is None or seen.id == before.id or seen.epoch <= before.epoch_floor):
            return before
        if seen is not None:
            return TopicInfo(name, seen.id, seen.partitions, {}, True, 0, now_ms)
        # Deterministic, so that repeated restores use the same id.
        topic_id = hashlib.blake2b(f"{cluster_id}/{name}".encode(), digest_size=16).digest()
        return TopicInfo(name, topic_id, 1, {}, True, 0, now_ms)
    if before is not None and before.id == found.id:
        # The object is newer than the snapshot, but does not record that the topic is being deleted.
        partitions = max(found.partitions, before.partitions)
        return TopicInfo(name, found.id, partitions, found.configs, before.live, found.epoch_floor, found.created_ms)
    if before is not None and before.created_ms > found.created_ms:
        return before
    return TopicInfo(name, found.id, found.partitions, found.configs, True, found.epoch_floor, found.created_ms)


async def _log(
    bucket: Bucket,
    number: int,
    objects: PartitionObjects,
    info: TopicInfo,
    *,
    entries: Sequence[tuple[str, Entry]],
    faults: list[str],
    least: int,
    proven_end: int,
) -> LogFound:
    ours = objects.rewritten.of_topic(info.id, info.epoch_floor)
    least = max([least, *(found.root.start for found in ours.roots)])
    parts = [part_of(found, ours.objects, least) for found in ours.roots]
    # Producer snapshots only cover committed segments.
    snapshots = [(end, key) for end, epoch, key in objects.producers if epoch > info.epoch_floor]
    believed = without_contradicted(objects.segments, entries)

    def chain_up_to(part: RewrittenPart | None, proven_end: int) -> Chain:
        through = part.root.through if part is not None else 0
        chain = chain_of(
            part.following(believed) if part is not None else believed,
            unreadable=[base for base in sorted(objects.unreadable) if base >= through],
            log_start=max(least, through),
            floor=info.epoch_floor,
            proven_end=proven_end,
            in_flight=MOST_FLUSHES_IN_FLIGHT,
        )
        return part.before(chain) if part is not None else chain

    proven_end = max([proven_end, *(part.root.through for part in parts), *(end for end, _ in snapshots)])
    candidates: list[RewrittenPart | None] = list(parts)
    if ours.highest_number <= 1:
        # The only root may be a dead owner's, and what it names may be deleted.
        candidates.append(None)
    if not parts and ours.objects:
        candidates += parts_of_tiles(await _described(bucket, ours, least), info.id)
    chain, part = min(
        ((chain_up_to(part, proven_end), part) for part in candidates),
        key=lambda each: (each[0].missing + (_hidden(ours, each[0], least) if each[1] is None else 0), each[0].start),
        default=(chain_up_to(None, proven_end), None),
    )
    # A number that is two below another one looks like old metadata.
    if part is not None and (part.key is None or part.root.number + 1 < ours.highest_number):
        part = part.renumbered(ours.highest_number + 1)
    faults += ours.damaged_after(part.key if part is not None else None)
    tail = None
    try:
        if (proven := first_above(entries, chain.end)) > chain.end:
            chain = chain_up_to(part, proven)
        tail = recovered(entries, chain.end)
    except CorruptData as error:
        faults.append(f"{info.name}-{number}: {error}")
    unsaved = chain.segments[-_WITHOUT_SNAPSHOT:]
    producers_from, snapshot = (unsaved[0].base if unsaved else chain.end), ""
    for end, key in reversed(snapshots):
        if end <= chain.end and await bucket.is_producer_snapshot(key):
            producers_from, snapshot = max(producers_from, end), key
            break
    unreadable = [objects.unreadable[base] for base in chain.unreadable]
    unreadable += [str(key) for key in (part.lost if part is not None else ()) if key in ours.unreadable]
    return LogFound(number, chain, tuple(unreadable), snapshot, max(producers_from, chain.start), tail, part)


async def _described(bucket: Bucket, ours: RewrittenObjects, least: int) -> list[Described]:
    """Read the objects of a log whose roots are lost, as far as they are not damaged."""
    keys, read = set(ours.objects), dict[RewrittenKey, Described]()
    while (path := tiles(keys, least)) and (unread := [key for key in path if key not in read]):
        try:
            read[unread[0]] = await bucket.described(unread[0])
        except (CorruptData, ObjectNotFound):
            keys.discard(unread[0])
            ours.unreadable.add(unread[0])
    return [read[key] for key in path]


def _hidden(ours: RewrittenObjects, chain: Chain, least: int) -> int:
    """Return how many offsets below ``chain`` are in rewritten objects."""
    hidden, position = 0, least
    for key in sorted(ours.objects, key=lambda key: key.base_offset):
        start, end = max(key.base_offset, position), min(key.next_offset, chain.start)
        hidden += max(end - start, 0)
        position = max(position, end)
    return hidden


def _name_roots(rebuilt: Rebuilt, namespace: str) -> None:
    """Give the roots that must be stored keys of the new epoch."""
    for position, topic in enumerate(rebuilt.topics):
        logs: list[LogFound] = []
        for log in topic.logs:
            part = log.rewritten
            if part is not None and part.key is None:
                key = RootKey(namespace, topic.info.name, log.partition, part.root.number, rebuilt.epoch, 1)
                data = build_root(part.root)
                rebuilt.roots[str(key)] = data
                part = replace(part, key=key, crc=stored_crc(data))
            logs.append(replace(log, rewritten=part))
        rebuilt.topics[position] = replace(topic, logs=tuple(logs))


def topic_values(
    rebuilt: Rebuilt, topic: TopicFound, namespace: str, progress: Mapping[tuple[bytes, int], list[SinkProgress]]
) -> list[tuple[str, bytes]]:
    """Return the stored keys and values of a topic and its partitions."""
    info = topic.info
    values = [(paths.topic_key(namespace, info.name), info.value())]
    for log in topic.logs:
        chain, last = log.chain, log.chain.last
        state = PartitionState(
            format=_FORMAT,
            topic_id=info.id,
            epoch=rebuilt.epoch,
            log_start=chain.start,
            high_watermark=chain.end,
            producer_snapshot=log.producer_snapshot,
            producers_from=log.producers_from,
            # Requests of former owners may still take effect.
            unclean=True,
            sinks=progress.get((info.id, log.partition), []),
        )
        if log.rewritten is not None and log.rewritten.key is not None:
            state.format, part, key = REWRITE_STATE_FORMAT, log.rewritten, log.rewritten.key
            state.root.CopyFrom(
                RootRef(
                    number=key.number, epoch=key.epoch, attempt=key.attempt, crc=part.crc, through=part.root.through
                )
            )
        if log.tail is not None:
            state.format = max(state.format, INTAKE_STATE_FORMAT)
            state.tail.run_id, state.tail.epoch, state.tail.end = log.tail.run_id, log.tail.epoch, log.end
        if last is not None:
            state.last_segment.base_offset, state.last_segment.size, state.last_segment.crc = (
                last.base,
                last.size,
                last.crc,
            )
        entries = settled(chain.history(), epoch=rebuilt.epoch, first_offset=chain.end, log_start=chain.start)
        history = EpochHistory(
            format=_FORMAT,
            entries=[EpochHistory.Entry(epoch=epoch, first_offset=first) for epoch, first in entries],
            topic_id=info.id,
        )
        values += [
            (paths.partition_state_key(namespace, info.name, log.partition), state.SerializeToString()),
            (paths.epoch_history_key(namespace, info.name, log.partition), history.SerializeToString()),
        ]
    return values


def cluster_values(rebuilt: Rebuilt, namespace: str) -> list[tuple[str, bytes]]:
    """Return the keys and values that exist once per cluster. The cluster's own key is the last one."""
    ids = ProducerIds(format=_FORMAT, next=rebuilt.next_producer_id)
    sealed = IntakeRegister(format=_FORMAT, sealed=True, intake=True).SerializeToString()
    cluster = ClusterInfo(rebuilt.cluster_id, rebuilt.epoch, rebuilt.state_format)
    return [
        (paths.producer_ids_key(namespace), ids.SerializeToString()),
        *((paths.intake_register_key(namespace, run_id), sealed) for run_id in rebuilt.runs),
        (paths.cluster_key(namespace), cluster.value()),
    ]


def topic_object(topic: TopicFound, revision: int) -> TopicObject:
    """Return the topic object. Its ``revision`` is that of the new metadata store, where revisions restart."""
    info = topic.info
    return TopicObject(
        name=info.name,
        id=info.id,
        configs=info.configs,
        epoch_floor=info.epoch_floor,
        created_ms=info.created_ms,
        log_starts=tuple(log.chain.start for log in topic.logs),
        metadata_revision=revision,
    )
