"""SyncGroup, Heartbeat, LeaveGroup, and timers of members and rebalances."""

import pytest

from services.coordinator.effects import Timer, TimerKind
from services.coordinator.table import State
from tests.support.coordinator.harness import E, World, subscription


def joined(world: World, count: int = 2) -> list[str]:
    """Form generation 1, whose members wait for their assignment. Return their ids."""
    tickets = [world.join() for _ in range(count)]
    world.advance(6000)
    return [world.joined(ticket).member_id for ticket in tickets]


def test_followers_get_the_leaders_assignment_after_it_is_persisted() -> None:
    world = World()
    leader, follower = joined(world)
    waiting = world.sync(follower, 1)
    assert waiting not in world.replies
    ticket = world.sync(leader, 1, {leader: b"\x00", follower: b"\xff\x00any bytes"})
    assert [record.key.split("/")[5] for record in world.last.stage] == ["assignments"]
    assert len(world.last.commit) == 1
    assert {reply.ticket for reply in world.last.replies} == {waiting, ticket}
    assert world.synced(waiting).assignment == b"\xff\x00any bytes"
    assert world.synced(ticket).protocol == "range"


def test_members_get_their_own_part_of_the_assignment() -> None:
    world = World()
    leader, second, third = joined(world, 3)
    world.sync(leader, 1, {leader: b"a", third: b"c", "stranger": b"x"})
    assert world.synced(world.sync(second, 1)).assignment == b""
    assert world.synced(world.sync(third, 1)).assignment == b"c"
    assert world.state is State.STABLE


def test_sync_group_is_validated() -> None:
    world = World()
    assert world.synced(world.sync("m", 1)).error == E.UNKNOWN_MEMBER_ID
    leader, _ = joined(world)
    assert world.synced(world.sync("m", 1)).error == E.UNKNOWN_MEMBER_ID
    assert world.synced(world.sync(leader, 0)).error == E.ILLEGAL_GENERATION
    assert world.synced(world.sync(leader, 1, protocol="sticky")).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.synced(world.sync(leader, 1, protocol_type="connect")).error == E.INCONSISTENT_GROUP_PROTOCOL
    ticket = world.sync(leader, 1, {}, protocol="range", protocol_type="consumer")
    assert world.synced(ticket).error == E.NONE
    world.join(leader)
    assert world.synced(world.sync(leader, 1)).error == E.REBALANCE_IN_PROGRESS


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_removed() -> None:
    world = World()
    leader, silent = joined(world)
    world.sync(leader, 1, {leader: b"a"})
    for _ in range(10):
        world.beat(silent, 1)
        world.beat(leader, 1)
        world.advance(3000)
    assert world.state is State.PREPARING
    assert world.beat(silent, 1) == E.UNKNOWN_MEMBER_ID
    assert world.joined(world.join(leader)).generation == 2


def test_heartbeats_keep_the_session_and_write_nothing() -> None:
    world = World()
    leader, follower = world.stable(2)
    writes = world.writes
    for _ in range(20):
        world.advance(9000)
        assert world.beat(leader, 1) == world.beat(follower, 1) == E.NONE
    assert world.writes == writes
    world.advance(9999)
    assert world.beat(leader, 1) == E.NONE
    world.advance(1)
    assert world.beat(leader, 1) == E.REBALANCE_IN_PROGRESS
    assert world.beat(follower, 1) == E.UNKNOWN_MEMBER_ID


def test_heartbeats_are_validated() -> None:
    world = World()
    assert world.beat("m", 1) == E.UNKNOWN_MEMBER_ID
    assert world.beat("m", 1, group="") == E.INVALID_GROUP_ID
    leader, _ = world.stable(2)
    assert world.beat(leader, 0) == E.ILLEGAL_GENERATION
    assert world.beat(leader, 2) == E.ILLEGAL_GENERATION
    world.advance(9999)
    world.beat(leader, 0)
    world.advance(1)
    assert world.beat(leader, 1) == E.UNKNOWN_MEMBER_ID


def test_a_heartbeat_before_the_assignment_succeeds() -> None:
    world = World()
    leader, follower = joined(world)
    assert world.beat(leader, 1) == world.beat(follower, 1) == E.NONE


def test_waiting_members_need_no_heartbeats_and_get_a_full_session_afterwards() -> None:
    world = World()
    leader, follower = world.stable(2, session_timeout_ms=6000, rebalance_timeout_ms=60_000)
    ticket = world.join(leader, session_timeout_ms=6000, rebalance_timeout_ms=60_000)
    for _ in range(10):
        world.advance(5000)
        world.beat(follower, 1)
    world.join(follower, session_timeout_ms=6000, rebalance_timeout_ms=60_000)
    assert world.joined(ticket).generation == 2
    world.advance(5999)
    assert world.beat(leader, 2) == E.NONE


def test_several_members_leave_with_one_rebalance() -> None:
    world = World()
    members = world.stable(4)
    reply = world.leave(members[0], members[1], "nobody")
    assert [m.error for m in reply.members] == [E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert world.state is State.PREPARING
    tickets = [world.join(member) for member in members[2:]]
    assert [m.member_id for m in world.joined(tickets[0]).members] == members[2:]


def test_the_last_member_leaves_an_empty_group_with_its_generation() -> None:
    world = World()
    members = world.stable(2)
    world.leave(*members)
    assert (world.state, world.groups["g"].generation) == (State.EMPTY, 2)
    assert list(world.store) == [world.groups["g"].keys.header]
    assert not world.deadlines
    assert world.successor().state is State.EMPTY


def test_leave_group_is_validated() -> None:
    world = World()
    assert [m.error for m in world.leave("m").members] == [E.UNKNOWN_MEMBER_ID]
    assert world.leave("m", group="").error == E.INVALID_GROUP_ID
    world.stable(1)
    world.leave("nobody")
    assert world.state is State.STABLE


def test_a_pending_member_leaves_without_a_rebalance() -> None:
    world = World()
    world.stable(2)
    pending = world.joined(world.join(member_id_required=True)).member_id
    assert [m.error for m in world.leave(pending).members] == [E.NONE]
    assert world.state is State.STABLE
    assert ("g", Timer(TimerKind.SESSION, pending)) not in world.deadlines


def test_a_waiting_request_of_a_member_that_leaves_is_answered() -> None:
    world = World()
    leader, _ = world.stable(2)
    ticket = world.join(leader)
    world.leave(leader)
    assert (world.joined(ticket).error, world.joined(ticket).member_id) == (E.UNKNOWN_MEMBER_ID, "")
    other = World()
    _, waits = joined(other)
    sync = other.sync(waits, 1)
    other.leave(waits)
    assert other.synced(sync).error == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("cooperative", [False, True])
def test_eager_and_cooperative_members_rebalance_in_the_same_way(cooperative: bool) -> None:
    """The only difference is that cooperative members rejoin with their owned partitions after they revoked some."""
    world = World()
    names = ("cooperative-sticky",) if cooperative else ("range",)
    leader, follower = world.stable(2, names=names)
    new = world.join(names=names)
    for member in (leader, follower):
        world.join(member, names=names, metadata=subscription("t", owned=b"1") if cooperative else subscription("t"))
    members = [leader, follower, world.joined(new).member_id]
    world.finish(members, 2)
    if cooperative:
        ticket = world.join(follower, names=names, metadata=subscription("t"))
        assert world.beat(leader, 2) == E.REBALANCE_IN_PROGRESS
        for member in (leader, members[2]):
            world.join(member, names=names)
        assert world.joined(ticket).generation == 3


def test_assignments_of_any_size_are_stored_in_chunks() -> None:
    world = World()
    members = joined(world, 3)
    assignments = {member: bytes([number]) * 700_000 for number, member in enumerate(members)}
    for member in reversed(members):
        world.sync(member, 1, assignments)
    assert len([key for key in world.store if "/assignments/" in key]) == 5
    assert max(len(value) for value in world.store.values()) < 600_000
    later = world.successor()
    assert [m.assignment for m in later.describe().members] == list(assignments.values())
