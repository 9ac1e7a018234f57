"""Checks of the stores.

The committed objects of a partition are contiguous from its start to its end: those that the root of its rewritten log
names, then segments. Objects of other clusters are kept, and the stages of a sink are eventually deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.interface import MetadataStore
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.rewritten.keys import RewrittenKey, RootKey, rewritten_prefix, roots_prefix
from kafscale.rewritten.object import index_of, parse_object
from kafscale.rewritten.root import parse_root, stored_crc
from kafscale.segment.reader import parse_segment
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState


@dataclass(frozen=True, slots=True)
class Stored:
    """A segment, or an entry of a root. ``key``: empty if the entry has no object."""

    key: str
    epoch: int
    base_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class _Log:
    state: PartitionState
    # Epochs with their first offsets.
    epochs: list[tuple[int, int]]

    @classmethod
    async def read(cls, metadata: MetadataStore, namespace: str, topic: str, partition: int) -> "_Log | None":
        state_item = await metadata.get(paths.partition_state_key(namespace, topic, partition))
        history_item = await metadata.get(paths.epoch_history_key(namespace, topic, partition))
        if state_item is None:
            return None
        history = EpochHistory() if history_item is None else EpochHistory.FromString(history_item.value)
        return cls(
            PartitionState.FromString(state_item.value),
            [(entry.epoch, entry.first_offset) for entry in history.entries],
        )


async def faults_of(
    metadata: MetadataStore, objects: ObjectStore, namespace: str, topic: str, partition: int
) -> list[str]:
    """Return the errors of a partition when nothing is in progress."""
    log = await _Log.read(metadata, namespace, topic, partition)
    if log is None:
        return []
    epochs, state = log.epochs, log.state
    if epochs != sorted(set(epochs)) or [first for _, first in epochs] != sorted(first for _, first in epochs):
        return [f"the epochs do not increase: {epochs}"]
    expected = -1
    try:
        segments = await segments_of(metadata, objects, namespace, topic, partition)
    except CorruptData as error:
        return [str(error)]
    for segment in segments:
        if expected < 0 and segment.base_offset > state.log_start:
            return [f"the log starts at {state.log_start}, its first segment at {segment.base_offset}"]
        if expected >= 0 and segment.base_offset != expected:
            return [f"a segment starts at {segment.base_offset} instead of {expected}"]
        expected = segment.next_offset
    if expected not in (-1, state.high_watermark) or (expected < 0 and state.log_start < state.high_watermark):
        return [f"the segments end at {expected}, the log at {state.high_watermark}"]
    return []


async def segments_of(
    metadata: MetadataStore, objects: ObjectStore, namespace: str, topic: str, partition: int
) -> list[Stored]:
    """Return the rewritten objects and the committed segments of a log in order. Raise CorruptData with the key."""
    log = await _Log.read(metadata, namespace, topic, partition)
    if log is None:
        return []
    found = await _rewritten(objects, namespace, topic, partition, log.state)
    prefix = paths.partition_prefix(namespace, topic, partition)
    for info in await objects.list_from(prefix):
        key = paths.parse_segment_key_in(prefix, info.key)
        if key is None or key.kind != "kfs":
            continue
        if not log.state.root.through <= key.base_offset < log.state.high_watermark:
            continue
        try:
            segment = parse_segment((await objects.get(info.key)).body)
        except CorruptData as error:
            raise CorruptData(f"{info.key}: {error}") from error
        belongs = max((epoch for epoch, first in log.epochs if first <= key.base_offset), default=-1)
        # Otherwise a dead owner's, or below the log start, where an unfinished deletion will continue later.
        if segment.header.epoch == belongs and segment.next_offset > log.state.log_start:
            found.append(Stored(info.key, belongs, key.base_offset, segment.next_offset))
    return found


async def last_segment(metadata: MetadataStore, namespace: str, topic: str, partition: int) -> int:
    """Return where the last segment of a log begins."""
    log = await _Log.read(metadata, namespace, topic, partition)
    return 0 if log is None else log.state.last_segment.base_offset


async def nothing_is_replaced(
    metadata: MetadataStore, objects: ObjectStore, namespace: str, topic: str, partition: int
) -> bool:
    """Return whether the root of a log lists no objects that were replaced, except for former roots."""
    log = await _Log.read(metadata, namespace, topic, partition)
    if log is None or not log.state.HasField("root"):
        return True
    try:
        root = parse_root((await objects.get(_root_key(namespace, topic, partition, log.state))).body)
    except ObjectNotFound:
        # It has just been replaced, or it is missing, which `faults_of` reports.
        return False
    return all("/roots/" in key for key in root.obsolete)


def _root_key(namespace: str, topic: str, partition: int, state: PartitionState) -> str:
    return str(RootKey(namespace, topic, partition, state.root.number, state.root.epoch, state.root.attempt))


async def _rewritten(
    objects: ObjectStore, namespace: str, topic: str, partition: int, state: PartitionState
) -> list[Stored]:
    """Return what the root of a state names above the log start, after verifying it. Raise CorruptData with the key."""
    if not state.HasField("root"):
        return []
    name = _root_key(namespace, topic, partition, state)
    found = []
    try:
        data = (await objects.get(name)).body
        root = parse_root(data)
        stated = (state.topic_id, state.root.number, state.root.through, state.root.crc)
        if (root.topic_id, root.number, root.through, stored_crc(data)) != stated:
            raise CorruptData("it is not the root of the state")
        for entry in root.entries:
            if entry.end <= state.log_start:
                continue
            name = ""
            if entry.found is not None:
                key = RewrittenKey.of(entry.found, namespace, topic, partition)
                name = str(key)
                parsed = parse_object(entry.found, (await objects.get(name)).body, check_batches=True)
                name = str(key.index)
                if (await objects.get(name)).body != index_of(parsed):
                    raise CorruptData("not the index of its object")
            found.append(Stored(name, state.root.epoch, entry.start, entry.end))
    except (CorruptData, ObjectNotFound) as error:
        raise CorruptData(f"{name}: {type(error).__name__}: {error}") from error
    return found


async def staged(objects: ObjectStore, namespace: str, sink: str = "", epoch: int = -1) -> list[str]:
    """Return the keys of the stages of all sinks, or of one epoch of a sink."""
    prefix = paths.stages_prefix(namespace)
    if sink:
        prefix += f"{paths.sink_segment(sink)}/{epoch:020d}/"
    return [info.key for info in await objects.list_from(prefix)]


async def lost(objects: ObjectStore, foreign: Mapping[str, bytes]) -> list[str]:
    """Return the keys of objects of other clusters that are missing or changed."""
    found = []
    for key, body in foreign.items():
        try:
            if (await objects.get(key)).body == body:
                continue
        except ObjectNotFound:
            pass
        found.append(key)
    return found


async def left(objects: ObjectStore, namespace: str, topic: str, partitions: int) -> list[str]:
    """Return the keys of remaining objects of a deleted topic when nothing is in progress."""
    found = []
    for index in range(partitions):
        for prefix in (
            paths.partition_prefix(namespace, topic, index),
            paths.producers_prefix(namespace, topic, index),
            paths.catalog_prefix(namespace, topic, index),
            rewritten_prefix(namespace, topic, index),
            roots_prefix(namespace, topic, index),
        ):
            found += [info.key for info in await objects.list_from(prefix) if "/" not in info.key.removeprefix(prefix)]
    return found
