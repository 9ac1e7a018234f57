"""Restarts, take-overs, fencing and deletion: which run may write, and what the log contains afterwards."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.errors import Refused, Unavailable
from kafscale.metadata import memory
from kafscale.metadata.interface import Delete, LeaseNotFound, Put
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import Member
from services.storage.log.partition import settled
from tests.support.storage.harness import NAMESPACE, World, batch, siblings, state_key


async def test_acked_records_and_no_others_survive_a_kill(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False, flush_interval_ms=60_000) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"acked")))
        await caller.append(ref, batch(b"only buffered"))
    await trio.sleep(60)
    async with world.service() as (caller, _):
        assert await caller.read_all(ref) == [b"acked"]
        assert (await caller.append(ref, batch(b"next"))).base_offset == 1


async def test_only_so_many_partitions_are_taken_over_at_the_same_time(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(take_overs_in_flight=2) as (caller, catalog):
        ref = await world.topic(catalog, partitions=6)
        refs = [PartitionRef(topic=ref.topic, topic_id=ref.topic_id, partition=number) for number in range(6)]
        world.objects.calls.clear()
        world.objects.plan = lambda call: Fault(delay=1) if call.kind == "list_from" else None
        async with trio.open_nursery() as nursery:
            for one in refs:
                nursery.start_soon(caller.fetch, one, 0)
            await trio.sleep(0.5)
            # Each lists segments and roots.
            assert len({call.key for call in world.objects.calls if call.kind == "list_from"}) == 4
        assert [(await caller.fetch(one, 0)).status for one in refs] == 6 * [Status.OK]


async def test_segments_of_new_owners_wait_while_take_overs_wait_for_each_other(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(take_overs_in_flight=1) as (caller, catalog):
        ref = await world.topic(catalog, partitions=20)
        old, new, planned, *others = siblings(ref, 20)
        assert await caller.durable(await caller.append(old, batch(b"first")), old)
        await trio.sleep(6)
        world.objects.calls.clear()
        world.objects.plan = lambda call: Fault(delay=0.5) if call.kind == "list_from" else None

        def stored() -> set[int]:
            puts = (call.key for call in world.objects.calls if call.kind == "put_if_absent")
            keys = [paths.parse_segment_key(key) for key in puts]
            return {key.partition for key in keys if key is not None and key.kind == "kfs"}

        async with trio.open_nursery() as nursery:
            for one in (new, planned, *others):
                nursery.start_soon(caller.fetch, one, 0)
                await wait_all_tasks_blocked()
            await trio.sleep(1.2)
            for one in (old, new, planned):
                assert await caller.durable(await caller.append(one, batch(b"second")), one)
            await trio.sleep(1)
            assert stored() == {0}
            await caller.plan(planned)
            assert stored() == {0, 2}
            # They do not wait until all are taken over.
            await trio.sleep(4)
            assert stored() == {0, 1, 2}


async def test_a_recreated_topic_is_empty(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        old = await world.topic(catalog)
        appended = await caller.append(old, batch(b"old"))
        await caller.durable(appended)
        buffered = await caller.append(old, batch(b"buffered"))
        await catalog.mark_deleting("orders")
        await catalog.wait_free("orders")
        assert not await caller.durable(buffered)
        assert await world.objects.list_from(f"{NAMESPACE}/orders/") == []
        new = await world.topic(catalog)
        first = await caller.append(new, batch(b"new"))
        assert (first.base_offset, first.epoch > appended.epoch) == (0, True)
        await caller.durable(first)
        assert await caller.read_all(new) == [b"new"]
        assert (await caller.fetch(old, 0)).status == Status.TOPIC_ID_MISMATCH


async def test_a_deletion_waits_for_requests_that_may_still_apply(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)

        def plan(call: Call) -> Fault | None:
            if call.kind == "put_if_absent" and call.key.endswith(".kfs"):
                return Fault(error=Unavailable("timeout"), applied="later")
            return None

        world.objects.plan = plan
        await caller.append(ref, batch(b"x"))
        await trio.sleep(1)
        world.objects.plan = None
        await catalog.mark_deleting("orders")
        await trio.sleep(5)
        assert "orders" in catalog.view.by_name
        world.objects.land_stray()
        await catalog.wait_free("orders")
        assert await world.objects.list_from(f"{NAMESPACE}/orders/") == []


@pytest.mark.parametrize("taken_over", [True, False])
async def test_a_deletion_waits_for_requests_of_a_dead_owner(autojump_clock: MockClock, taken_over: bool) -> None:
    world = World(settle_seconds=15)
    ref = await _die_with_a_stray_put(world)
    await trio.sleep(60)
    async with world.service() as (caller, catalog):
        if taken_over:
            assert (await caller.fetch(ref, 0)).status == Status.OK
        await catalog.mark_deleting("orders")
        await trio.sleep(14)
        assert "orders" in catalog.view.by_name
        world.objects.land_stray()
        await catalog.wait_free("orders")
        assert await world.objects.list_from(f"{NAMESPACE}/orders/") == []


async def test_a_deletion_waits_for_an_owner_with_a_valid_lease(autojump_clock: MockClock) -> None:
    world = World(settle_seconds=15)
    await _die_with_a_stray_put(world)
    async with world.service(lease_ttl_seconds=10) as (_, catalog):
        await catalog.mark_deleting("orders")
        await trio.sleep(21)
        assert "orders" in catalog.view.by_name
        world.objects.land_stray()
        await catalog.wait_free("orders")
        assert await world.objects.list_from(f"{NAMESPACE}/orders/") == []


async def test_an_instance_that_missed_a_deletion_leaves_the_recreated_topic_alone(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        old = await world.topic(catalog)
        assert await caller.durable(await caller.append(old, batch(b"old")))
        other = paths.member_key(NAMESPACE, "storage", "another")
        await world.metadata.txn((), [Put(other, Member(run_id="another", address="there").SerializeToString())])
        await world.seize(old)
        await catalog.mark_deleting("orders")
        await trio.sleep(5)
        # Between two of our attempts the other instance deletes everything, and the topic is created again.
        await world.objects.delete_many(info.key for info in await world.objects.list_from(f"{NAMESPACE}/orders/"))
        await catalog.finish_delete("orders", old.topic_id, 10, deleter=other)
        await world.metadata.txn((), [Delete(other)])
        new = await world.topic(catalog)
        assert await caller.durable(await caller.append(new, batch(b"new")))
        await trio.sleep(10)
        assert await caller.read_all(new) == [b"new"]
        assert await caller.durable(await caller.append(new, batch(b"more")))


async def _die_with_a_stray_put(world: World) -> PartitionRef:
    """Create a topic whose owner dies within a second of its first upload, which has not been applied yet."""

    def plan(call: Call) -> Fault | None:
        if call.kind == "put_if_absent" and call.key.endswith(".kfs"):
            return Fault(error=Unavailable("timeout"), applied="later")
        return None

    async with world.service(graceful=False, lease_ttl_seconds=10) as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = plan
        await caller.append(ref, batch(b"x"))
        await trio.sleep(0.5)
    world.objects.plan = None
    return ref


async def test_a_changed_state_fences_and_fails_buffered_appends(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.durable(await caller.append(ref, batch(b"mine")))
        await world.seize(ref)
        appended = await caller.append(ref, batch(b"too late"))
        assert not await caller.durable(appended)


def test_settled_history_drops_epochs_that_are_empty_or_below_the_log_start() -> None:
    assert settled([], epoch=1, first_offset=0, log_start=0) == [(1, 0)]
    assert settled([(1, 0)], epoch=2, first_offset=0, log_start=0) == [(2, 0)]
    assert settled([(1, 0), (2, 10)], epoch=3, first_offset=20, log_start=0) == [(1, 0), (2, 10), (3, 20)]
    assert settled([(1, 0), (2, 10)], epoch=3, first_offset=20, log_start=12) == [(2, 10), (3, 20)]


async def test_a_lost_lease_ends_the_commit_stream_and_the_next_run_serves(autojump_clock: MockClock) -> None:
    world = World()
    with trio.fail_after(500):
        async with world.service() as (caller, catalog):
            ref = await world.topic(catalog)
            await caller.durable(await caller.append(ref, batch(b"kept")))
            members = await world.metadata.read_prefix(paths.members_prefix(NAMESPACE, "storage"))
            await world.metadata.revoke_lease(members.items[0].lease)
            await caller.ended.wait()
            while len(caller.runs) == 1:  # noqa: ASYNC110  no event signals the next run
                await trio.sleep(1)
            await trio.sleep(1)
            assert (await caller.fetch(ref, 0)).epoch == 2
            assert await caller.read_all(ref) == [b"kept"]


async def test_appends_while_a_run_ends_fail_without_a_crash(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    keep_alive, lost = world.metadata.keep_alive, trio.Event()

    async def watched(lease: int) -> None:
        try:
            await keep_alive(lease)
        except LeaseNotFound:
            lost.set()
            raise

    monkeypatch.setattr(world.metadata, "keep_alive", watched)
    async with world.service(flush_interval_ms=0) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"kept")))
        members = await world.metadata.read_prefix(paths.members_prefix(NAMESPACE, "storage"))
        await world.metadata.revoke_lease(members.items[0].lease)
        await lost.wait()
        answers = set()
        # At every step of the run's end. Each append begins a flush, which is a task of the run.
        for _ in range(100):
            try:
                answers.add((await caller.append(ref, batch(b"late"))).status)
            except Unavailable:
                break
        assert answers <= {Status.OK, Status.NOT_OWNER}
        assert len(caller.runs) <= 2


async def test_a_take_over_that_etcd_refuses_is_retried_and_logged_once(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        denied = Refused("etcdserver: permission denied")
        world.metadata.faults.append(memory.Fault(method="txn", key=state_key(ref), times=3, before=denied))
        answers = []
        with capture_logs() as logged:
            for _ in range(4):
                answers.append((await caller.append(ref, batch(b"v"))).status)
                await trio.sleep(1)
        assert answers == [Status.UNAVAILABLE] * 3 + [Status.OK]
        assert [line["refused"] for line in logged if line["log_level"] == "error"] == [str(denied)]


async def test_a_read_cut_off_by_the_end_of_its_run_gets_not_owner(autojump_clock: MockClock) -> None:
    world = World()
    held = trio.Event()
    answers: list[Status] = []
    async with trio.open_nursery() as nursery:
        async with world.service(cache_size=0, index_cache_size=0) as (caller, catalog):
            ref = await world.topic(catalog)
            await caller.fill(ref, 2)
            world.objects.plan = lambda call: Fault(hold=held) if call.kind.startswith("get") else None

            async def read() -> None:
                answers.append((await caller.fetch(ref, 0)).status)

            nursery.start_soon(read)
            await trio.sleep(0.5)
            assert not answers
        world.objects.plan = None
    assert answers == [Status.NOT_OWNER]
