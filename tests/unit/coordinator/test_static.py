"""Static members: group.instance.id."""

from kafscale.v1.coordinator_pb2 import LeaveGroupReply
from services.coordinator.effects import Timer, TimerKind
from services.coordinator.limits import GroupLimits
from services.coordinator.table import State
from tests.support.coordinator.harness import E, World, subscription


def statics(world: World, count: int = 2) -> list[str]:
    tickets = [world.join(instance_id=f"i{n}") for n in range(count)]
    world.advance(6000)
    members = [world.joined(ticket).member_id for ticket in tickets]
    world.finish(members, 1)
    return members


def test_a_returning_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    world = World()
    leader, follower = statics(world)
    back = world.joined(world.join(instance_id="i1", metadata=subscription("t", owned=b"other"), client_host="/new"))
    assert (back.error, back.generation, back.leader) == (E.NONE, 1, leader)
    assert back.member_id != follower
    assert world.state is State.STABLE
    assert world.beat(leader, 1) == E.NONE
    assert world.synced(world.sync(back.member_id, 1)).assignment == b"p1"
    assert [m.client_host for m in world.describe().members] == ["/10.0.0.1", "/new"]
    later = world.successor()
    assert later.synced(later.sync(back.member_id, 1)).assignment == b"p1"
    assert later.beat(follower, 1) == E.UNKNOWN_MEMBER_ID


def test_the_former_member_id_is_fenced_in_every_request() -> None:
    world = World()
    leader, old = statics(world)
    new = world.joined(world.join(instance_id="i1")).member_id
    assert world.beat(old, 1, "i1") == E.FENCED_INSTANCE_ID
    assert world.synced(world.sync(old, 1, instance_id="i1")).error == E.FENCED_INSTANCE_ID
    assert world.joined(world.join(old, instance_id="i1")).error == E.FENCED_INSTANCE_ID
    assert world.commit({("t", 0): 1}, old, 1, instance_id="i1").error == E.FENCED_INSTANCE_ID
    assert world.leave((old, "i1")).members[0].error == E.FENCED_INSTANCE_ID
    assert world.beat(old, 1) == E.UNKNOWN_MEMBER_ID
    assert world.beat(new, 1, "i1") == E.NONE
    assert ("g", Timer(TimerKind.SESSION, old)) not in world.deadlines
    assert world.beat(leader, 1, "nobody's") == E.UNKNOWN_MEMBER_ID


def test_a_returning_leader_leads_again_and_assigns_nothing() -> None:
    world = World()
    old, _ = statics(world)
    back = world.joined(world.join(instance_id="i0", skips_assignment=True))
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert len(back.members) == 2
    assert back.member_id != old


def test_a_returning_leader_with_an_older_client_does_not_lead() -> None:
    world = World()
    old, _ = statics(world)
    back = world.joined(world.join(instance_id="i0"))
    assert (back.leader, back.skip_assignment, len(back.members)) == (old, False, 0)
    assert world.state is State.STABLE


def test_a_changed_subscription_of_a_returning_static_member_starts_a_rebalance() -> None:
    world = World()
    statics(world)
    world.join(instance_id="i1", metadata=subscription("t", "more"))
    assert world.state is State.PREPARING
    other = World()
    tickets = [other.join(instance_id="i0", names=("a", "b")), other.join(instance_id="i1", names=("a", "b"))]
    other.advance(6000)
    other.finish([other.joined(ticket).member_id for ticket in tickets], 1)
    other.join(instance_id="i1", names=("b",))
    assert other.state is State.PREPARING


def test_a_static_member_replaced_while_joining_is_fenced() -> None:
    world = World()
    old = world.join(instance_id="i")
    new = world.join(instance_id="i")
    assert world.joined(old).error == E.FENCED_INSTANCE_ID
    world.advance(6000)
    assert world.joined(new).generation == 1


def test_a_static_member_replaced_before_the_assignment_starts_a_rebalance() -> None:
    world = World()
    tickets = [world.join(instance_id=f"i{n}") for n in range(2)]
    world.advance(6000)
    leader, old = [world.joined(ticket).member_id for ticket in tickets]
    waiting = world.sync(old, 1)
    world.join(instance_id="i1")
    assert world.synced(waiting).error == E.FENCED_INSTANCE_ID
    assert world.state is State.PREPARING
    assert world.joined(world.join(leader, instance_id="i0")).generation == 2


def test_absent_static_members_stay_until_their_session_ends() -> None:
    world = World()
    leader, absent = statics(world)
    ticket = world.join(leader, instance_id="i0", rebalance_timeout_ms=5000, session_timeout_ms=600_000)
    for _ in range(10):
        world.beat(absent, 1, "i1")
        world.advance(3000)
    assert [m.member_id for m in world.joined(ticket).members] == [leader, absent]
    assert world.joined(ticket).generation == 2


def test_a_rebalance_without_returning_static_members_ends_with_their_sessions() -> None:
    world = World()
    statics(world, 3)
    world.leave(("", "i0"))
    world.advance(60_000)
    assert world.state is State.EMPTY


def test_static_members_leave_by_instance_id_alone() -> None:
    world = World()
    _, follower = statics(world)
    reply = world.leave(("", "i1"), ("", "nobody's"), "nobody")
    assert [m.error for m in reply.members] == [E.NONE, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert isinstance(reply, LeaveGroupReply)
    assert world.state is State.PREPARING
    assert world.beat(follower, 1) == E.UNKNOWN_MEMBER_ID


def test_a_returning_static_member_keeps_its_place_in_a_full_group() -> None:
    world = World(GroupLimits(max_size=2))
    statics(world)
    assert world.joined(world.join(instance_id="i1")).error == E.NONE
