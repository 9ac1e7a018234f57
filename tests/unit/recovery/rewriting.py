"""Rewritten logs of a simulated cluster, while no service runs."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.records.batch import peek_one
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key, rewritten_prefix
from kafscale.rewritten.object import ObjectBuilder, parse_object
from kafscale.rewritten.root import Entry, Root, build_root, parse_root, stored_crc
from kafscale.segment.reader import ParsedSegment, parse_segment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState, RootRef
from tests.support.storage.harness import NAMESPACE, World, state_key
from tests.unit.recovery.restoring import state_of


async def rewrite(
    world: World,
    ref: PartitionRef,
    *bounds: int,
    keep: Callable[[int], bool] = lambda offset: True,
    first_dirty: int = 0,
    epoch: int = 0,
    attempt: int = 1,
    commit: bool = True,
) -> RootKey:
    """Store objects with the log between each of ``bounds`` and the next, and the root that names them.

    ``keep``: whether the batch at an offset stays. ``epoch``: 0 for that of the state. A root that is not committed is
    what a dead owner leaves behind.
    """
    state = await state_of(world, ref)
    epoch = epoch or state.epoch
    batches = [(base, batch) for base, batch in await _batches(world, ref, state) if bounds[0] <= base < bounds[-1]]
    entries = []
    for start, end in pairwise(bounds):
        builder = ObjectBuilder(start, epoch=epoch, attempt=attempt, created_ms=world.now_ms)
        for base, batch in batches:
            if start <= base < end and keep(base):
                builder.add(batch)
        built = builder.finish(end)
        if built is not None:
            name = RewrittenKey.of(built.entry, NAMESPACE, ref.topic, ref.partition)
            await world.objects.put_if_absent(str(name), built.data)
            await world.objects.put_if_absent(str(name.index), built.index)
        entries.append(Entry(start, end, built.entry if built is not None else None))
    epochs: list[EpochHistory.Entry] = []
    for base, batch in batches:
        found = peek_one(batch).leader_epoch
        if not epochs or epochs[-1].epoch != found:
            epochs.append(EpochHistory.Entry(epoch=found, first_offset=base if epochs else bounds[0]))
    root = Root(ref.topic_id, state.root.number + 1, entries, epochs, first_dirty=first_dirty)
    key = RootKey(NAMESPACE, ref.topic, ref.partition, root.number, epoch, attempt)
    data = build_root(root)
    await world.objects.put_if_absent(str(key), data)
    if commit:
        state.format = 3
        state.root.CopyFrom(
            RootRef(number=root.number, epoch=epoch, attempt=attempt, crc=stored_crc(data), through=root.through)
        )
        await world.metadata.txn([], [Put(state_key(ref), state.SerializeToString())])
    return key


async def delete_segments(world: World, ref: PartitionRef, through: int) -> None:
    """Delete the segments below ``through``, and their indexes, as an owner does some time after a commit."""
    prefix = paths.partition_prefix(NAMESPACE, ref.topic, ref.partition)
    listed = [paths.parse_segment_key_in(prefix, info.key) for info in await world.objects.list_from(prefix)]
    await world.objects.delete_many([str(key) for key in listed if key is not None and key.base_offset < through])


async def rewritten_keys(world: World, ref: PartitionRef) -> list[RewrittenKey]:
    """Return the keys of the rewritten objects of a partition, without indexes, in order."""
    listed = await world.objects.list_from(rewritten_prefix(NAMESPACE, ref.topic, ref.partition))
    keys = [parse_rewritten_key(info.key) for info in listed]
    return [key for key in keys if isinstance(key, RewrittenKey) and key.kind == "kfs"]


async def _batches(world: World, ref: PartitionRef, state: PartitionState) -> list[tuple[int, bytes]]:
    """Return the batches of the committed log with their base offsets."""
    found: list[tuple[int, bytes]] = []
    if state.HasField("root"):
        there = state.root
        key = RootKey(NAMESPACE, ref.topic, ref.partition, there.number, there.epoch, there.attempt)
        for entry in parse_root((await world.objects.get(str(key))).body).entries:
            if entry.found is not None:
                name = RewrittenKey.of(entry.found, NAMESPACE, ref.topic, ref.partition)
                found += _of(parse_object(entry.found, (await world.objects.get(str(name))).body))
    prefix = paths.partition_prefix(NAMESPACE, ref.topic, ref.partition)
    for info in await world.objects.list_from(prefix):
        segment = paths.parse_segment_key_in(prefix, info.key)
        if segment is not None and segment.kind == "kfs" and segment.base_offset >= state.root.through:
            found += _of(parse_segment((await world.objects.get(info.key)).body))
    return found


def _of(parsed: ParsedSegment) -> Sequence[tuple[int, bytes]]:
    return [
        (base, bytes(parsed.data[position:end]))
        for base, position, end in zip(parsed.offsets, parsed.positions, parsed.ends, strict=True)
    ]
