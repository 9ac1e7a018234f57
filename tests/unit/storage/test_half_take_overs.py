"""Take-overs that fail after their fence. The run is the owner already, so no other run can take the partition."""

from functools import partial

import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from services.storage.owning.takeover import NotAvailable
from tests.support.storage.cluster import Cluster, cluster, until
from tests.support.storage.harness import NAMESPACE, World, batch, siblings, state_key


async def _used_topic(one: Cluster, partitions: int) -> list[PartitionRef]:
    refs = siblings(await one.world.topic(one.instances[0].catalog, partitions=partitions), partitions)
    for ref in refs:
        await one.append_durably(ref, batch(b"%d" % ref.partition))
    return refs


async def _restart_without_listings(one: Cluster, address: str) -> None:
    """Kill the only instance, and restart it while the object store cannot list partitions."""

    def plan(call: Call) -> Fault | None:
        return Fault(error=Unavailable("503")) if call.kind == "list_from" and "~" not in call.key else None

    await one.instances[0].kill()
    await trio.sleep(60)
    one.world.objects.plan = plan
    await one.start(address)
    await trio.sleep(2)


async def test_a_partition_reassigned_meanwhile_is_taken_over_and_handed_over(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1") as one:
        refs = await _used_topic(one, 8)
        await _restart_without_listings(one, "a:1")
        newcomer = await one.start("b:1")
        await trio.sleep(5)
        one.world.objects.plan = None

        async def settled() -> bool:
            owners = await one.owners()
            assigned = {state_key(ref): one.view.owner(ref.topic_id, ref.partition) for ref in refs}
            return all(live is not None and owners[key] == live.run_id for key, live in assigned.items())

        await until(settled)
        assert newcomer.caller.run_id in (await one.owners()).values()
        for ref in refs:
            assert await one.read_all(ref) == [b"%d" % ref.partition]


async def test_a_partition_deleted_meanwhile_is_released(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1") as one:
        refs = await _used_topic(one, 8)
        await _restart_without_listings(one, "a:1")
        newcomer = await one.start("b:1")
        await newcomer.catalog.mark_deleting(refs[0].topic_id)
        await trio.sleep(5)
        one.world.objects.plan = None
        with trio.fail_after(60):
            await newcomer.catalog.wait_free(refs[0].topic)
        assert await one.world.objects.list_from(paths.partition_prefix(NAMESPACE, refs[0].topic, 0)) == []


async def test_unavailable_partitions_do_not_block_other_take_overs(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1", moves_in_flight=2) as two:
        refs = await _used_topic(two, 24)
        dead, survivor = two.instances
        lost = sorted((ref for ref in refs if two.assigned(ref) is dead), key=state_key)
        await dead.kill()
        bad, good = lost[:4], lost[4:]
        for ref in bad:
            state = await two.state(ref)
            state.format = 99
            await two.metadata.txn((), [Put(state_key(ref), state.SerializeToString())])

        async def taken(refs: list[PartitionRef]) -> bool:
            owners = await two.owners()
            return all(owners[state_key(ref)] == survivor.caller.run_id for ref in refs)

        await until(partial(taken, good), seconds=60)
        # A membership change starts the same search again.
        await (await two.start("c:1")).kill()
        await trio.sleep(60)
        for ref in bad:
            state = await two.state(ref)
            state.format = 1
            await two.metadata.txn((), [Put(state_key(ref), state.SerializeToString())])
        await until(partial(taken, lost))


async def test_a_superseded_take_over_puts_nothing_offline(autojump_clock: MockClock) -> None:
    world = World()
    held, listed = trio.Event(), trio.Event()

    def plan(call: Call) -> Fault | None:
        if call.kind != "list_from" or not call.key.startswith(f"{NAMESPACE}/orders/") or listed.is_set():
            return None
        listed.set()
        return Fault(hold=held)

    world.objects.plan = plan
    async with world.service() as (caller, catalog), trio.open_nursery() as nursery:
        ref = await world.topic(catalog)
        refused: list[Status] = []

        async def superseded() -> None:
            try:
                await world.take_over("dead", ref)
            except NotAvailable as error:
                refused.append(error.status)

        nursery.start_soon(superseded)
        await listed.wait()
        assert await caller.durable(await caller.append(ref, batch(b"of the next epoch")))
        held.set()
        await trio.sleep(1)
        assert refused == [Status.NOT_OWNER]
