"""The state format of a cluster is raised while runs live: those that started before that have no intake."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.topic_values import NEWEST_STATE_FORMAT
from kafscale.objects.memory import Call
from kafscale.objects.memory import Fault as ObjectFault
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import IntakeRegister
from services.gateway.admin.state_format import finalize_upgrade
from services.storage.settings import StorageSettings
from tests.support.storage.cluster import Cluster, Instance, cluster, until
from tests.support.storage.harness import NAMESPACE, World, batch, siblings
from tests.support.storage.sequences import numbered, numbers

SLOW_SEGMENTS = StorageSettings(
    compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000, lease_ttl_seconds=10
)


async def _raise(world: World) -> None:
    reply = await finalize_upgrade(world.metadata, NAMESPACE, pb.FinalizeUpgradeRequest())
    assert (reply.before, reply.state_format) == (1, NEWEST_STATE_FORMAT)


async def _has_intake(world: World, instance: Instance) -> bool:
    """Return whether the instance may have an intake, as its register says."""
    register = await world.metadata.get(paths.intake_register_key(NAMESPACE, instance.caller.run_id))
    assert register is not None
    return IntakeRegister.FromString(register.value).intake


async def _objects(world: World, instance: Instance) -> int:
    return len(await world.objects.list_from(paths.intake_prefix(NAMESPACE, instance.caller.run_id)))


async def _topic(there: Cluster, at: Instance, name: str = "orders") -> PartitionRef:
    """Create a topic of 20 partitions and return one that is assigned to an instance. All instances know it."""
    first = await there.world.topic(at.catalog, name, partitions=20)
    for instance in there.instances:
        while instance.catalog.view.live_by_id(first.topic_id) is None:
            await instance.catalog.changed()
    return next(ref for ref in siblings(first, 20) if there.assigned(ref) is at)


def _no_segments(call: Call) -> ObjectFault | None:
    return ObjectFault(hold=trio.Event()) if call.key.endswith(".kfs") and "put" in call.kind else None


async def _mixed(there: Cluster) -> tuple[Instance, Instance]:
    """Return an instance that started before the format was raised, and one that started after that."""
    before = there.instances[0]
    await _raise(there.world)
    after = await there.start("b:1")
    assert (await _has_intake(there.world, before), await _has_intake(there.world, after)) == (False, True)
    return before, after


async def test_a_run_keeps_the_format_that_it_started_with(autojump_clock: MockClock) -> None:
    async with cluster(world := World(SLOW_SEGMENTS, intake=False), "a:1") as there:
        before, after = await _mixed(there)
        old, new = await _topic(there, before), await _topic(there, after, "payments")
        for ref in (old, new):
            await there.append_durably(ref, numbered(0))
        assert ((await there.state(old)).format, (await there.state(new)).format) == (1, NEWEST_STATE_FORMAT)
        assert (await _objects(world, before), await _objects(world, after)) == (0, 1)


async def test_a_run_without_intake_recovers_the_intake_of_a_dead_one(autojump_clock: MockClock) -> None:
    async with cluster(world := World(SLOW_SEGMENTS, intake=False), "a:1") as there:
        before, after = await _mixed(there)
        ref = await _topic(there, after)
        for number in range(3):
            await there.append_durably(ref, numbered(number))
        assert (await there.state(ref)).high_watermark == 1, "the rest is only in the intake"
        await after.kill()
        await until(lambda: _at_assigned_owner(there, ref))
        assert await there.read_all(ref) == numbers(3)
        await there.append_durably(ref, numbered(2))
        await there.append_durably(ref, numbered(3))
        assert await there.read_all(ref) == numbers(4), "the repeated batch is not appended again"
        state = await there.state(ref)
        assert (state.format, state.high_watermark, state.HasField("tail")) == (NEWEST_STATE_FORMAT, 4, False)
        assert await _objects(world, before) == 0


@pytest.mark.parametrize("stops", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("next_format", [1, NEWEST_STATE_FORMAT])
async def test_a_tail_that_a_run_without_intake_has_not_stored_is_kept(
    next_format: int, stops: bool, autojump_clock: MockClock
) -> None:
    async with cluster(world := World(SLOW_SEGMENTS, intake=False), "a:1") as there:
        if next_format == 1:
            await there.start("c:1")
        _, after = await _mixed(there)
        ref = await _topic(there, after)
        for number in range(3):
            await there.append_durably(ref, numbered(number))
        world.objects.plan = _no_segments
        await after.kill()
        await until(lambda: _at_assigned_owner(there, ref))
        between = there.assigned(ref)
        assert not await _has_intake(world, between)
        assert await there.read_all(ref) == numbers(3)
        state = await there.state(ref)
        assert (state.format, state.high_watermark) == (NEWEST_STATE_FORMAT, 1)
        assert (state.tail.run_id, state.tail.end) == (after.caller.run_id, 3)
        await (between.stop() if stops else between.kill())
        if next_format > 1:
            await there.start("d:1")
        (successor,) = there.instances
        assert await _has_intake(world, successor) == (next_format > 1)
        world.objects.plan = None
        await until(lambda: _at_assigned_owner(there, ref))
        assert await there.read_all(ref) == numbers(3)
        await there.append_durably(ref, numbered(3))
        assert await there.read_all(ref) == numbers(4)


async def _at_assigned_owner(there: Cluster, ref: PartitionRef) -> bool:
    return await there.owner(ref) == there.assigned(ref).caller.run_id


async def test_a_run_with_an_intake_takes_over_from_a_dead_one_without(autojump_clock: MockClock) -> None:
    async with cluster(World(SLOW_SEGMENTS, intake=False), "a:1") as there:
        before, after = await _mixed(there)
        ref = await _topic(there, before)
        for number in range(3):
            await there.append_durably(ref, numbered(number))
        await before.caller.append(ref, batch(b"not acknowledged"))
        await before.kill()
        await until(lambda: _at_assigned_owner(there, ref))
        assert await there.read_all(ref) == numbers(3)
        for number in (3, 4):
            await there.append_durably(ref, numbered(number))
        state = await there.state(ref)
        assert (state.format, state.owner, state.high_watermark) == (NEWEST_STATE_FORMAT, after.caller.run_id, 4)
        assert await there.read_all(ref) == numbers(5), "the last record is in the intake"


async def test_a_rolling_restart_finishes_the_switch(autojump_clock: MockClock) -> None:
    addresses = ["a:1", "b:1", "c:1"]
    async with cluster(world := World(SLOW_SEGMENTS, intake=False), *addresses) as there:
        refs = siblings(await _topic(there, there.instances[0]), 20)
        for ref in refs:
            await there.append_durably(ref, numbered(0))
        await _raise(world)
        for round_, address in enumerate(addresses, 1):
            await next(each for each in there.instances if each.address == address).stop()
            await there.start(address)
            assert [await _has_intake(world, each) for each in there.instances].count(True) == round_
            for ref in refs:
                await there.append_durably(ref, numbered(round_))
        for ref in refs:
            assert await there.read_all(ref) == numbers(4)
            assert (await there.state(ref)).format == NEWEST_STATE_FORMAT
        assert all([await _objects(world, each) for each in there.instances])


async def test_a_run_that_starts_after_a_lost_lease_has_an_intake(autojump_clock: MockClock) -> None:
    async with cluster(world := World(SLOW_SEGMENTS, intake=False), "a:1") as there:
        (instance,) = there.instances
        ref = await _topic(there, instance)
        await there.append_durably(ref, numbered(0))
        await _raise(world)
        assert not await _has_intake(world, instance)
        members = await world.metadata.read_prefix(paths.members_prefix(NAMESPACE, "storage"))
        await world.metadata.revoke_lease(members.items[0].lease)
        await instance.caller.ended.wait()
        while len(instance.caller.runs) == 1 or not there.view.placed:  # noqa: ASYNC110  no event signals the next run
            await trio.sleep(1)
        await until(lambda: _at_assigned_owner(there, ref))
        assert await _has_intake(world, instance)
        assert await there.read_all(ref) == numbers(1)
