"""The limits of concurrent reads during a restore."""

import trio
from trio.testing import MockClock

from kafscale.objects.memory import Call, Fault
from tests.support.storage.harness import World, siblings
from tests.unit.recovery.restoring import acked, restored


async def test_partitions_are_read_concurrently_up_to_the_limit(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=9), 9)
        for ref in refs:
            await acked(caller, ref, b"0")
    under_way: set[str] = set()
    release = trio.Event()

    def plan(call: Call) -> Fault | None:
        if call.kind == "get_range" and not release.is_set():
            under_way.add(call.key)
            return Fault(hold=release)
        return None

    world.objects.plan = plan

    async def let_go() -> None:
        await trio.sleep(10)
        assert len(under_way) == 4
        release.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_go)
        rebuilt = await restored(world)
    assert [log.chain.end for log in rebuilt.topics[0].logs] == [1] * 9
