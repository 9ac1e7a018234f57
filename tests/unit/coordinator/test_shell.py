"""Coordinators on an in-memory store and a virtual clock: stored values, ownership of groups, and answers."""

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
from kafscale.v1 import coordinator_pb2 as pb
from kafscale.v1.groups_pb2 import GroupShard
from tests.support.coordinator.harness import E, topic_id
from tests.support.coordinator.shell import (
    LEASE_SECONDS,
    NAMESPACE,
    TIMEOUT,
    Consumer,
    Coordinators,
    coordinators,
    stable,
)

HEADER = paths.GroupKeys(NAMESPACE, "g").header
SHARD = paths.group_shard("g")


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


async def shards(store: MemoryMetadataStore) -> dict[int, GroupShard]:
    snapshot = await store.read_prefix(paths.group_shards_prefix(NAMESPACE))
    return {int(item.key.rsplit("/", 1)[1]): GroupShard.FromString(item.value) for item in snapshot.items}


async def described(made: Coordinators, group: str = "g") -> pb.DescribedGroup:
    reply: pb.DescribeGroupsReply = await made.ask("describe_groups", pb.DescribeGroupsRequest(groups=[group]), group)
    return reply.groups[0]


async def test_a_group_forms_commits_and_is_listed(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        members = await stable(made, nursery, 3)
        assert sorted(member.assignment for member in members) == [b"p0", b"p1", b"p2"]
        reply = await made.commit({0: 5, 1: 6}, member_id=members[0].member_id, generation=members[0].generation)
        assert list(reply.errors) == [E.NONE, E.NONE]
        assert await made.offsets() == {0: 5, 1: 6}
        assert (await described(made)).state == "Stable"
        [instance] = made.instances
        listed = await instance.client.list_groups(pb.ListGroupsRequest(), timeout=TIMEOUT)
        assert [(group.group, group.state) for group in listed.groups] == [("g", "Stable")]
        assert list(listed.shards) == list(range(paths.GROUP_SHARDS))
        await trio.sleep(120)
        assert [member.joins for member in members] == [[1]] * 3
        nursery.cancel_scope.cancel()


async def test_a_stable_group_keeps_its_generation_when_its_coordinator_dies(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1", "b:1") as made, trio.open_nursery() as nursery:
        members = await stable(made, nursery)
        await made.commit({0: 7}, member_id=members[0].member_id, generation=1)
        before = {member.name: (member.member_id, member.assignment) for member in members}
        first = made.assigned("g")
        await first.kill()
        await trio.sleep(LEASE_SECONDS + 20)
        assert made.assigned("g") is not first
        assert [await member.beat() for member in members] == [E.NONE, E.NONE]
        assert {member.name: (member.member_id, member.assignment) for member in members} == before
        assert [(member.joins, member.errors) for member in members] == [([1], [])] * 2
        assert await made.offsets() == {0: 7}
        # A session without heartbeats also ends at the new coordinator.
        nursery.cancel_scope.cancel()
    async with coordinators(store, "c:1") as made:
        await trio.sleep(LEASE_SECONDS + 45)
        assert (await described(made)).state == "Empty"


async def test_groups_move_to_a_new_coordinator_and_back_when_it_stops(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        groups = [f"g{number}" for number in range(20)]
        members = [(await stable(made, nursery, 1, group))[0] for group in groups]
        for group in groups:
            await made.commit({0: 1}, group, members[groups.index(group)].member_id, 1)
        (first,) = made.instances
        newcomer = await made.start("b:1")
        await trio.sleep(10)
        owners = {shard: value.owner for shard, value in (await shards(store)).items()}
        assert len(owners) == paths.GROUP_SHARDS
        assert set(owners.values()) == {first.run_id, newcomer.run_id}
        moved = [group for group in groups if made.assigned(group) is newcomer]
        assert moved
        assert first.deps.counters.hand_overs == newcomer.deps.counters.take_overs > 0
        for group in groups:
            assert (await made.serving(group)).address == made.assigned(group).address
        began = trio.current_time()
        await newcomer.stop()
        assert trio.current_time() - began < 1
        for group in groups:
            assert await made.offsets(group) == {0: 1}
        assert trio.current_time() - began < 3
        await trio.sleep(60)
        assert [(member.joins, member.errors) for member in members] == [([1], [])] * len(members)
        nursery.cancel_scope.cancel()


async def test_a_waiting_join_is_redirected_to_the_next_owner(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1", group_initial_rebalance_delay_ms=30_000) as made, trio.open_nursery() as n:
        (first,) = made.instances
        waiting = Consumer(made, "c")
        n.start_soon(waiting.join)
        await trio.sleep(1)
        assert first.service.current is not None
        assert len(first.service.current.tickets) == 1
        newcomer = await made.start("b:1", group_initial_rebalance_delay_ms=1_000)
        await first.stop()
        with trio.fail_after(20):
            while not waiting.assignment:  # noqa: ASYNC110  it has no event for it
                await trio.sleep(0.1)
        assert await made.serving() is newcomer
        assert E.NOT_COORDINATOR in made.refusals


async def _commit(made: Coordinators, at: int, offset: int) -> "E.Code":
    request = pb.OffsetCommitRequest(group="g", generation=-1, retention_ms=-1)
    request.offsets.add(topic="t", topic_id=topic_id("t"), partition=0, offset=offset, leader_epoch=1)
    return (await made.instances[at].client.offset_commit(request, timeout=TIMEOUT)).error


async def test_a_coordinator_without_a_proven_lease_answers_no_heartbeats(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1", "b:1") as made, trio.open_nursery() as nursery:
        members = await stable(made, nursery)
        stale = made.assigned("g")
        stale.gate.shut()
        beat = pb.MemberHeartbeat(group="g", member_id=members[0].member_id, generation=1)
        request = pb.HeartbeatRequest(heartbeats=[beat])
        answered = []
        for _ in range(3 * LEASE_SECONDS):
            reply = await stale.client.heartbeat(request, timeout=TIMEOUT)
            served = [i for i in made.instances if i is not stale and i.service.current and await _serves(i)]
            answered.append((reply.results[0].error, bool(served)))
            await trio.sleep(1)
        assert (E.NONE, False) in answered
        assert (E.NOT_COORDINATOR, True) in answered
        assert (E.NONE, True) not in answered
        nursery.cancel_scope.cancel()


async def _serves(instance: object) -> bool:
    run = instance.service.current  # type: ignore[attr-defined]
    return SHARD in run.shards and run.proven


async def test_a_commit_of_unknown_outcome_cannot_apply_after_a_later_one(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made:
        await made.commit({0: 1})
        [instance] = made.instances
        late: list[Callable[[], Awaitable[object]]] = []
        txn = store.txn

        async def hold(compares, then, otherwise=()):  # type: ignore[no-untyped-def]
            if not late and any("/offsets/" in operation.key for operation in then):
                late.append(lambda: txn(compares, then, otherwise))
                raise Unavailable("no answer; it applies later")
            return await txn(compares, then, otherwise)

        store.txn = hold  # type: ignore[method-assign]
        assert await _commit(made, 0, 100) == E.COORDINATOR_LOAD_IN_PROGRESS
        await made.commit({0: 200})
        await late[0]()
        assert await made.offsets() == {0: 200}
        await instance.kill()
        await made.start("b:1")
        assert await made.offsets() == {0: 200}


async def test_a_stale_coordinator_cannot_change_anything(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1", "b:1") as made, trio.open_nursery() as nursery:
        members = await stable(made, nursery)
        stale = made.assigned("g")
        run = stale.service.current
        assert run is not None
        shard = run.shards[SHARD]
        stale.gate.shut()
        await trio.sleep(3 * LEASE_SECONDS)
        assert [await member.beat() for member in members] == [E.NONE, E.NONE]
        before = await store.read_prefix(paths.group_shard_prefix(NAMESPACE, SHARD))
        # It resumes where it was suspended, and tries to write.
        stale.gate.open()
        shard.closed = False
        with pytest.raises(Exception, match="claimed again"):
            await shard._write("g", [Put(HEADER, b"")])
        shard.closed = True
        await trio.sleep(60)
        after = await store.read_prefix(paths.group_shard_prefix(NAMESPACE, SHARD))
        assert after.items == before.items
        assert [(member.joins, member.errors) for member in members] == [([1], [])] * 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fault", [lost_answer(key=HEADER), no_answer("txn", key=HEADER)])
async def test_a_rebalance_whose_write_has_an_unknown_outcome_is_repeated(
    store: MemoryMetadataStore, autojump_clock: object, fault: Fault
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        await made.commit({5: 5})
        epoch = (await shards(store))[SHARD].epoch
        store.faults.append(fault)
        members = await stable(made, nursery)
        assert sorted(member.assignment for member in members) == [b"p0", b"p1"]
        assert (await shards(store))[SHARD].epoch == epoch + 1
        assert await made.offsets() == {5: 5}
        assert [await member.beat() for member in members] == [E.NONE, E.NONE]
        nursery.cancel_scope.cancel()


async def test_an_outage_of_the_store_ends_no_session(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        members = await stable(made, nursery)
        # The lease stays valid, as in an etcd that comes back with another leader, but the coordinator does not know.
        store.faults.append(lost_answer("keep_alive", times=40))
        await trio.sleep(60)
        assert made.refusals.count(E.NOT_COORDINATOR) > 100
        await trio.sleep(120)
        assert store.faults[0].times == 0
        assert made.instances[0].deps.counters.leases_lost == 0
        assert [(member.joins, member.errors) for member in members] == [([1], [])] * 2
        nursery.cancel_scope.cancel()


async def test_a_group_forms_with_as_many_members_as_fit_into_its_header(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    longest = "\N{SNOWMAN}" * 10_922
    async with coordinators(store, "a:1") as made:
        instance = await made.serving(longest)
        errors: Counter[int] = Counter()

        async def join() -> None:
            request = pb.JoinGroupRequest(group=longest, client_id="c" * 32_767, protocol_type="consumer")
            request.session_timeout_ms, request.rebalance_timeout_ms = 30_000, 60_000
            request.protocols.add(name="n" * 32_767, metadata=b"x" * 900_000)
            errors[(await instance.client.join_group(request, timeout=TIMEOUT)).error] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(60):
                nursery.start_soon(join)
        assert errors == {E.NONE: 36, E.GROUP_MAX_SIZE_REACHED: 24}
        assert (await described(made, longest)).state == "CompletingRebalance"


async def test_a_damaged_group_does_not_affect_others_of_its_shard(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    other = next(name for number in range(10_000) if paths.group_shard(name := f"h{number}") == SHARD)
    async with coordinators(store, "a:1") as made:
        await made.commit({0: 1})
        await made.commit({0: 2}, other)
        await made.instances[0].kill()
        await store.txn([], [Put(HEADER, b"\xff\xff")])
        second = await made.start("b:1")
        assert await made.offsets(other) == {0: 2}
        assert await _commit(made, 0, 5) == E.COORDINATOR_NOT_AVAILABLE
        assert second.service.current is not None
        assert second.service.current.shards[SHARD].damaged == {"g"}
        listed = await second.client.list_groups(pb.ListGroupsRequest(), timeout=TIMEOUT)
        assert {(group.group, group.state) for group in listed.groups} == {("g", "Unknown"), (other, "Empty")}
        chosen = await second.client.list_groups(pb.ListGroupsRequest(states=["Empty"]), timeout=TIMEOUT)
        assert [group.group for group in chosen.groups] == [other]


async def test_another_coordinator_names_the_owner_of_a_group(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1", "b:1") as made:
        owner = await made.serving()
        [other] = [instance for instance in made.instances if instance is not owner]
        beat = pb.HeartbeatRequest(heartbeats=[pb.MemberHeartbeat(group="g", member_id="m", generation=1)])
        [result] = (await other.client.heartbeat(beat, timeout=TIMEOUT)).results
        assert (result.error, result.owner) == (E.NOT_COORDINATOR, owner.run_id)


async def test_a_shard_is_not_taken_from_a_live_owner(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1", group_handover_timeout_ms=20_000) as made, trio.open_nursery() as nursery:
        (first,) = made.instances
        await made.commit({0: 1})
        # The first coordinator cannot store a commit, so it does not release the shards of the new one.
        others = [f"b:{number}" for number in range(1, 9)]
        store.faults.append(Fault(method="txn", key=HEADER, delay=15))
        nursery.start_soon(made.commit, {0: 2})
        await trio.sleep(0.01)
        newcomers = [await made.start(address) for address in others]
        await trio.sleep(1)
        newcomer = made.assigned("g")
        assert newcomer in newcomers
        assert await _commit(made, made.instances.index(newcomer), 9) == E.COORDINATOR_LOAD_IN_PROGRESS
        await trio.sleep(4)
        assert await _commit(made, made.instances.index(newcomer), 9) == E.NOT_COORDINATOR
        await trio.sleep(15)
        assert await made.offsets() == {0: 2}
        assert (await made.serving()) is newcomer
        assert first.deps.counters.writes["unknown"] == 0


async def test_only_a_group_with_a_changed_header_is_reloaded(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        members = await stable(made, nursery)
        header = await store.get(HEADER)
        assert header is not None
        await store.txn([], [Put(HEADER, header.value)])
        epoch = (await shards(store))[SHARD].epoch
        assert await _commit(made, 0, 1) == E.UNKNOWN_MEMBER_ID
        await made.commit({0: 4}, member_id=members[0].member_id, generation=1)
        assert made.refusals[-1] == E.COORDINATOR_LOAD_IN_PROGRESS
        assert await made.offsets() == {0: 4}
        assert (await shards(store))[SHARD].epoch == epoch
        assert [await member.beat() for member in members] == [E.NONE, E.NONE]
        nursery.cancel_scope.cancel()


async def test_a_shard_is_not_listed_while_a_group_is_reloaded(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        await made.commit({0: 1})
        client = made.instances[0].client
        header = await store.get(HEADER)
        assert header is not None
        await store.txn([], [Put(HEADER, header.value)])
        store.faults.append(Fault(method="read_prefix", key=HEADER.removesuffix("header"), delay=3))
        nursery.start_soon(made.commit, {0: 4})
        await trio.sleep(1)
        # A list with the shard but without the group would be mistaken for complete.
        listed = await client.list_groups(pb.ListGroupsRequest(), timeout=TIMEOUT)
        assert (len(listed.groups), sorted({*range(64)} - {*listed.shards})) == (0, [SHARD])
        await trio.sleep(3)
        listed = await client.list_groups(pb.ListGroupsRequest(), timeout=TIMEOUT)
        assert ([group.group for group in listed.groups], len(listed.shards)) == (["g"], 64)


async def test_queued_writes_are_bounded(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1", group_queue_bytes=100_000) as made, trio.open_nursery() as nursery:
        await made.commit({0: 0})
        store.faults.append(Fault(method="txn", key=HEADER, delay=1))
        refused = []

        async def commit() -> None:
            refused.append(await _commit(made, 0, 1) == E.COORDINATOR_NOT_AVAILABLE)

        for _ in range(1000):
            nursery.start_soon(commit)
        await trio.sleep(0.5)
        assert 85_000 < made.instances[0].deps.counters.queued_bytes <= 102_000
        await trio.sleep(1)
        assert 800 < sum(refused) < 950
        assert made.instances[0].deps.counters.queued_bytes == 0


async def test_a_cancelled_caller_leaves_nothing_behind(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1") as made:
        await made.commit({0: 0})
        run = made.instances[0].service.current
        assert run is not None
        with trio.move_on_after(0.5):
            await Consumer(made, "c").join(member_id_required=False)
        assert len(run.tickets) == 0
        await trio.sleep(2)
        assert len(run.tickets) == 0


async def test_a_restarted_process_gets_its_groups_after_its_former_lease_expires(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made:
        await made.commit({0: 1})
        await made.instances[0].kill()
        began = trio.current_time()
        await made.start("a:1")
        await trio.sleep(5)
        # Clients are not redirected to the former run, which is gone.
        assert await _commit(made, 0, 2) == E.COORDINATOR_LOAD_IN_PROGRESS
        assert await made.offsets() == {0: 1}
        assert trio.current_time() - began < LEASE_SECONDS + 2
