"""A stuck sink does not delay others, and causes few requests."""

import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.interface import Delete, Put
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import Stage
from services.storage.settings import StorageSettings
from tests.support.storage.harness import NAMESPACE, Caller, World, batch
from tests.support.storage.sinking import commit, no_segments, sink_record, stage_keys, staged

SINK_KEY = paths.sink_key(NAMESPACE, "s")
EXPIRY_MS = StorageSettings().stage_expiry_ms


async def _commit_and_lose_objects(world: World, caller: Caller, ref: PartitionRef) -> Stage:
    """Commit epoch 0 of sink "s", lose all its objects except one stage, and return that stage."""
    lost, kept = [await staged(caller, ref, batch(value)) for value in (b"lost", b"kept")]
    world.objects.plan = no_segments
    assert not (await commit(caller, lost, kept, wait_ms=0)).applied
    await world.objects.delete_many([(await sink_record(world)).manifest, lost.key])
    world.objects.plan = None
    return kept


async def test_an_unreadable_manifest_keeps_only_the_stages_of_its_own_sink(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(stage_check_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        remaining = await _commit_and_lose_objects(world, caller, ref)
        await world.metadata.txn([], [Put(paths.sink_key(NAMESPACE, "of another release"), b"\xff")])
        kept = await staged(caller, ref, batch(b"kept"), sink="of another release")
        await staged(caller, ref, batch(b"old"), sink="other")
        world.now_ms += EXPIRY_MS + 1
        await trio.sleep(11)
        assert set(await stage_keys(world)) == {remaining.key, kept.key}


async def test_a_stuck_sink_continues_when_its_record_is_deleted(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(stage_check_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        await _commit_and_lose_objects(world, caller, ref)
        made = await staged(caller, ref, batch(b"1"), epoch=1)
        assert (await commit(caller, made, epoch=1)).status == Status.UNAVAILABLE
        await world.metadata.txn([], [Delete(SINK_KEY)])
        assert (await commit(caller, made, epoch=1)).applied
        assert await caller.read_all(ref) == [b"1"]
        world.now_ms += EXPIRY_MS + 1
        await trio.sleep(11)
        assert await stage_keys(world) == []


async def test_reads_of_a_lost_manifest_back_off(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _commit_and_lose_objects(world, caller, ref)
        calls = len(world.objects.calls)
        await trio.sleep(600)
        assert 9 <= sum(call.key.endswith(".manifest") for call in world.objects.calls[calls:]) <= 20
