"""A blocked sink does not hold up others, and costs little while it waits."""

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


async def _stuck(world: World, caller: Caller, ref: PartitionRef) -> Stage:
    """Commit epoch 0 of sink "s" and lose all its objects except for one stage. Return that stage."""
    lost, left = [await staged(caller, ref, batch(value)) for value in (b"lost", b"left")]
    world.objects.plan = no_segments
    assert not (await commit(caller, lost, left, wait_ms=0)).applied
    await world.objects.delete_many([(await sink_record(world)).manifest, lost.key])
    world.objects.plan = None
    return left


async def test_a_manifest_that_cannot_be_read_keeps_what_its_own_sink_staged_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.service(stage_check_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        left = await _stuck(world, caller, ref)
        await world.metadata.txn([], [Put(paths.sink_key(NAMESPACE, "of another release"), b"\xff")])
        kept = await staged(caller, ref, batch(b"kept"), sink="of another release")
        await staged(caller, ref, batch(b"old"), sink="other")
        world.now_ms += EXPIRY_MS + 1
        await trio.sleep(11)
        assert set(await stage_keys(world)) == {left.key, kept.key}


async def test_a_sink_that_is_stuck_goes_on_when_its_record_is_deleted(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(stage_check_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        await _stuck(world, caller, ref)
        made = await staged(caller, ref, batch(b"1"), epoch=1)
        assert (await commit(caller, made, epoch=1)).status == Status.UNAVAILABLE
        await world.metadata.txn([], [Delete(SINK_KEY)])
        assert (await commit(caller, made, epoch=1)).applied
        assert await caller.read_all(ref) == [b"1"]
        world.now_ms += EXPIRY_MS + 1
        await trio.sleep(11)
        assert await stage_keys(world) == []


async def test_what_does_not_mend_itself_is_asked_for_less_and_less_often(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _stuck(world, caller, ref)
        calls = len(world.objects.calls)
        await trio.sleep(600)
        assert 9 <= sum(call.key.endswith(".manifest") for call in world.objects.calls[calls:]) <= 20
