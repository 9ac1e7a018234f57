"""Records that are only in intakes are part of a copy of a topic at an earlier time."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import CorruptData, Unavailable
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.objects.memory import Call, Fault
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.settings import StorageSettings
from tests.support.storage.harness import NAMESPACE, World, siblings, state_key
from tests.unit.recovery.copying import ALL, copied, new_topic, stored, timed

SLOW_SEGMENTS = StorageSettings(
    compression_codec="producer", retention_ms=-1, segment_interval_ms=3_600_000, segment_bytes=1024
)


def timed_values(*times: int) -> list[bytes]:
    return [b"%d" % time for time in times]


@pytest.mark.parametrize("owner", ["live", "dead", "recovering"])
async def test_records_that_are_only_in_intakes_are_copied(autojump_clock: MockClock, owner: str) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        ref, other, _ = siblings(await world.topic(catalog), 3)
        await stored(caller, ref, timed(10, 20))
        await caller.flush(ref)
        await stored(caller, ref, *(timed(30 + each) for each in range(30)), timed(60, 61, 62))
        await stored(caller, other, timed(10), timed(90))
        if owner == "live":
            made = await copied(world, 61)
    if owner == "dead":
        made = await copied(world, 61)
    if owner == "recovering":
        # The next owner has not recovered anything, because it cannot store segments.
        world.objects.plan = lambda call: Fault(error=Unavailable("no")) if "/segment-" in call.key else None
        async with world.service(graceful=False) as (caller, _):
            await trio.sleep(30)
            item = await world.metadata.get(state_key(ref))
            assert item is not None
            assert PartitionState.FromString(item.value).tail.end == 35
        world.objects.plan = None
        made = await copied(world, 61)
    assert [(log.start, log.end, log.left_out) for log in made] == [(0, 34, 1), (0, 1, 1), (0, 0, 0)]
    assert made[0].segments > 2, "the records become segments of the usual size"
    cluster = await world.metadata.get(paths.cluster_key(NAMESPACE))
    assert cluster is not None
    assert ClusterInfo.read(cluster).state_format == 2
    async with world.service() as (caller, catalog):
        first, second, _ = await new_topic(catalog, 3)
        assert await caller.read_all(first) == timed_values(10, 20, *range(30, 62))
        assert await caller.read_all(second) == timed_values(10)
        await stored(caller, first, timed(100))
        assert (await caller.read_all(first))[-2:] == timed_values(61, 100)
        await trio.sleep(30)
        assert (await caller.read_all(ref))[-1:] == timed_values(62)


async def test_records_that_become_segments_during_the_copy_are_copied_once(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service() as (caller, catalog):
        (ref,) = siblings(await world.topic(catalog, partitions=1), 1)
        await stored(caller, ref, timed(1))
        await caller.flush(ref)
        await stored(caller, ref, timed(2), timed(3))
        begun, hold = trio.Event(), trio.Event()

        def plan(call: Call) -> Fault | None:
            if call.kind == "get" and "~intake" in call.key:
                begun.set()
                return Fault(hold=hold)
            return None

        world.objects.plan = plan
        async with trio.open_nursery() as nursery:
            nursery.start_soon(copied, world, ALL)
            await begun.wait()
            await caller.flush(ref)
            await stored(caller, ref, timed(4))
            await trio.sleep(30)
            hold.set()
        (restored,) = await new_topic(catalog)
        assert (await caller.read_all(restored))[:3] == timed_values(1, 2, 3)


async def test_a_damaged_intake_prevents_only_copies_that_reach_it(autojump_clock: MockClock) -> None:
    world = World(SLOW_SEGMENTS, intake=True)
    async with world.service(graceful=False) as (caller, catalog):
        (ref,) = siblings(await world.topic(catalog, partitions=1), 1)
        await stored(caller, ref, timed(1), timed(2))
        await caller.flush(ref)
        await stored(caller, ref, timed(3))
        key = [call.key for call in world.objects.calls if call.kind == "put_if_absent" and "~intake" in call.key][-1]
    whole = (await world.objects.get(key)).body
    await world.objects.delete_many([key])
    await world.objects.put_if_absent(key, whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:])
    with pytest.raises(CorruptData, match="intake"):
        await copied(world, 2)
    (made,) = await copied(world, 1, into="earlier")
    assert (made.start, made.end) == (0, 1)
