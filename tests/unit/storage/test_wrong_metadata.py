"""Metadata that does not match the objects: older, of another cluster, missing, or unavailable.

Such metadata never causes acked records to be overwritten or deleted.
"""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import ConfigError, Unavailable
from kafscale.metadata.interface import Delete, Put, Unchanged
from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Fault, MemoryObjectStore
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.settings import MOST_FLUSHES_IN_FLIGHT
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, state_key


async def _committed(caller: Caller, ref: PartitionRef, *values: bytes) -> None:
    """Commit one segment for each value."""
    for value in values:
        assert await caller.durable(await caller.append(ref, batch(value)))


async def _objects(world: World) -> dict[str, bytes]:
    return {info.key: (await world.objects.get(info.key)).body for info in await world.objects.list_from("")}


async def _state(world: World, ref: PartitionRef) -> PartitionState:
    item = await world.metadata.get(state_key(ref))
    assert item is not None
    return PartitionState.FromString(item.value)


async def _revert_state(world: World, ref: PartitionRef, old: PartitionState) -> None:
    item = await world.metadata.get(state_key(ref))
    assert item is not None
    done = await world.metadata.txn(
        [Unchanged(state_key(ref), item.mod_revision)], [Put(state_key(ref), old.SerializeToString())]
    )
    assert done.succeeded


async def _is_offline(world: World, ref: PartitionRef, because: str) -> bool:
    """Return whether the partition refuses appends and fetches with a message that contains ``because``."""
    before = await _objects(world)
    async with world.service() as (caller, _):
        refused = await caller.append(ref, batch(b"another"))
        fetched = await caller.fetch(ref, 0)
        (flushed,) = (await caller.flush(ref)).results
        await trio.sleep(60)
    assert await _objects(world) == before
    damaged = {refused.status, fetched.status, flushed.status} == {Status.DAMAGED}
    return damaged and because in refused.detail and because in flushed.detail


async def test_metadata_of_an_older_epoch_puts_the_partition_offline(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _committed(caller, ref, b"x")
        old = await _state(world, ref)
    old.owner, old.epoch, old.high_watermark = "", 0, 0
    await _revert_state(world, ref, old)
    assert await _is_offline(world, ref, "epoch")


async def test_a_partition_with_older_metadata_stays_offline_after_every_take_over(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
    keys = [state_key(ref), paths.epoch_history_key(NAMESPACE, ref.topic, ref.partition)]
    async with world.service() as (caller, _):
        await _committed(caller, ref, b"x")
    # A backup from before the partition's first owner.
    assert (await world.metadata.txn((), [Delete(key) for key in keys])).succeeded
    for _ in range(3):
        assert await _is_offline(world, ref, "epoch")


async def test_metadata_of_the_same_epoch_with_an_older_end_puts_the_partition_offline(
    autojump_clock: MockClock,
) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _committed(caller, ref, b"first")
        old = await _state(world, ref)
        await _committed(caller, ref, *(b"%d" % number for number in range(MOST_FLUSHES_IN_FLIGHT + 1)))
        assert (await _state(world, ref)).epoch == old.epoch
    old.owner = ""
    await _revert_state(world, ref, old)
    # The next owner's epoch is above that of all objects. They are recognized by exceeding what a dead owner leaves.
    assert await _is_offline(world, ref, f"more than {MOST_FLUSHES_IN_FLIGHT} whole segments")


@pytest.mark.parametrize("deleting", [False, True], ids=["empty", "another's"])
async def test_another_clusters_metadata_deletes_nothing(autojump_clock: MockClock, *, deleting: bool) -> None:
    world, other = World(intake=False), World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _committed(caller, ref, b"ours")
    if deleting:
        # A topic of the same name is about to be deleted in the other cluster.
        async with other.service(graceful=False) as (_, catalog):
            await other.topic(catalog)
            other.objects.plan = lambda call: Fault(error=Unavailable("down"))
            await catalog.mark_deleting("orders")
        await trio.sleep(60)
    before = await _objects(world)
    with pytest.RaisesGroup(ConfigError, flatten_subgroups=True):
        async with world.service(metadata=other.metadata, retention_check_ms=1_000):
            await trio.sleep(60)
    assert await _objects(world) == before
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"ours"]


async def test_objects_above_the_end_stay_while_no_commit_is_answered(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, configs={"retention.bytes": "1000000"})
        await _committed(caller, ref, b"first")
    async with world.service(graceful=False, segment_bytes=1) as (caller, _):
        await caller.fetch(ref, 0)
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        for _ in range(4):
            await caller.append(ref, batch(b"lost"))
        await trio.sleep(1)
    world.metadata.faults.clear()
    await trio.sleep(60)
    async with world.service(retention_check_ms=1_000) as (caller, _):
        assert (await caller.fetch(ref, 0)).high_watermark == 1
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        # Its segment replaces the dead owner's with the same key.
        ours = await caller.append(ref, batch(b"ours"))
        await trio.sleep(30)
        keys = {info.key for info in await world.objects.list_from(f"{NAMESPACE}/orders/")}
        assert {paths.segment_key(NAMESPACE, ref.topic, 0, base) for base in range(5)} <= keys
        world.metadata.faults.clear()
        assert await caller.durable(ours)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"first", b"ours"]


async def test_a_state_of_a_newer_release_is_not_changed(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _committed(caller, ref, b"kept")
    newer = await _state(world, ref)
    newer.format = 4
    await _revert_state(world, ref, newer)
    async with world.service() as (caller, _):
        refused = await caller.append(ref, batch(b"another"))
        assert refused.status == Status.UNAVAILABLE
        assert "format 4" in refused.detail
        assert await _state(world, ref) == newer


async def test_a_start_on_another_bucket_is_refused_and_loses_no_records(autojump_clock: MockClock) -> None:
    world, other = World(), MemoryObjectStore()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _committed(caller, ref, b"a", b"b")
    missing = pytest.RaisesExc(ConfigError, match=f"{paths.cluster_mark_key(NAMESPACE)} is missing")
    with pytest.RaisesGroup(missing, flatten_subgroups=True):
        async with world.service(objects=other):
            await trio.sleep(60)
    assert not await other.list_from("")
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"a", b"b"]
