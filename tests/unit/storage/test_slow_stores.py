"""What is slow or cold holds up nothing else: neither the appends nor the records of other partitions."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.metadata.memory import no_answer
from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import PartitionAppend
from tests.unit.storage.harness import batch, siblings, state_key
from tests.unit.storage.test_illness import IllWorld, slow_down


async def test_a_slow_take_over_holds_up_the_appends_of_other_partitions_once(autojump_clock: MockClock) -> None:
    world = IllWorld()
    world.wrapped()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        here, slow = siblings(ref, 2)
        # A take-over that takes its time within the wait refuses nobody.
        world.bare.plan = lambda call: Fault(delay=0.3)
        assert (await caller.append(here, batch(b"first"))).status == Status.OK
        world.bare.plan = slow_down
        began, longest = trio.current_time(), []
        while trio.current_time() < began + 60:
            sent = trio.current_time()
            refused, taken = (
                await caller.send(
                    PartitionAppend(partition=slow, records=batch(b"refused")),
                    PartitionAppend(partition=here, records=batch(b"taken")),
                )
            ).results
            assert (refused.status, taken.status) == (Status.UNAVAILABLE, Status.OK)
            longest.append(trio.current_time() - sent)
            await trio.sleep(0.1)
        assert longest[0] == pytest.approx(0.5)
        assert max(longest[1:]) == pytest.approx(0)
        # It goes on by itself meanwhile, and is not asked for by an append again.
        world.bare.plan = None
        await trio.sleep(30)
        before = trio.current_time()
        assert (await caller.append(slow, batch(b"kept"))).status == Status.OK
        assert trio.current_time() == before


async def test_after_a_take_over_that_failed_long_ago_the_next_one_is_waited_for(autojump_clock: MockClock) -> None:
    world = IllWorld()
    world.wrapped()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await trio.sleep(1)
        world.metadata.faults.append(no_answer(key=state_key(ref)))
        assert (await caller.append(ref, batch(b"refused"))).status == Status.UNAVAILABLE
        await trio.sleep(60)
        world.bare.plan = lambda call: Fault(delay=0.3)
        assert (await caller.append(ref, batch(b"taken"))).status == Status.OK
