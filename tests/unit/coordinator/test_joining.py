"""JoinGroup: accepted members, chosen protocols, and the time of replies."""

from typing import Any

import pytest

from kafscale.paths import GroupKeys
from services.coordinator.effects import Timer, TimerKind
from services.coordinator.limits import GroupLimits
from services.coordinator.table import State
from tests.support.coordinator.harness import E, World, subscription

SESSION = TimerKind.SESSION


def test_the_first_rebalance_waits_for_the_initial_delay_and_for_more_members() -> None:
    world = World()
    first = world.join()
    world.advance(2999)
    second = world.join()
    world.advance(1)
    assert not {first, second} & set(world.replies)
    world.advance(2999)
    assert first not in world.replies
    world.advance(1)
    assert world.joined(first).generation == world.joined(second).generation == 1


def test_new_members_prolong_the_first_rebalance_up_to_the_rebalance_timeout() -> None:
    world = World()
    first = world.join(rebalance_timeout_ms=8000)
    for _ in range(5):
        world.advance(1999)
        world.join(rebalance_timeout_ms=8000)
    assert first in world.replies
    assert world.now_ms <= 10_000


def test_a_delay_of_0_ends_the_first_rebalance_at_once() -> None:
    world = World(GroupLimits(initial_rebalance_delay_ms=0))
    ticket = world.join()
    world.advance(0)
    assert world.joined(ticket).generation == 1


def test_only_the_leader_gets_the_members_with_their_metadata() -> None:
    world = World()
    tickets = [world.join(metadata=subscription(f"t{n}"), instance_id=f"i{n}") for n in range(3)]
    world.advance(6000)
    leader, *others = [world.joined(ticket) for ticket in tickets]
    assert [m.metadata for m in leader.members] == [subscription(f"t{n}") for n in range(3)]
    assert [m.instance_id for m in leader.members] == ["i0", "i1", "i2"]
    assert leader.leader == leader.member_id
    assert all(not reply.members and reply.leader == leader.member_id for reply in others)


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ([("range", "sticky"), ("sticky", "range")], "range"),
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("a", "both"), ("both", "b")], "both"),
        ([("a", "b", "c"), ("b", "c", "a"), ("c", "b")], "b"),
    ],
)
def test_members_vote_for_their_first_common_protocol(lists: list[tuple[str, ...]], chosen: str) -> None:
    world = World()
    tickets = [world.join(names=names) for names in lists]
    world.advance(6000)
    assert {world.joined(ticket).protocol for ticket in tickets} == {chosen}


def test_members_without_a_common_protocol_or_type_are_refused() -> None:
    world = World()
    world.stable(2, names=("range",))
    assert world.joined(world.join(names=("sticky",))).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(world.join(protocol_type="connect")).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(world.join(group="new", names=())).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(world.join(group="new", protocol_type="")).error == E.INCONSISTENT_GROUP_PROTOCOL
    assert list(world.groups) == ["g"]


@pytest.mark.parametrize("timeout", [0, 5999, 1_800_001])
def test_session_timeouts_have_bounds(timeout: int) -> None:
    world = World()
    assert world.joined(world.join(session_timeout_ms=timeout)).error == E.INVALID_SESSION_TIMEOUT


def test_empty_group_ids_and_oversized_members_are_refused() -> None:
    world = World()
    assert world.joined(world.join(group="")).error == E.INVALID_GROUP_ID
    assert world.joined(world.join(metadata=bytes(1_000_001))).error == E.INVALID_REQUEST


def test_a_new_member_gets_an_id_first_which_expires_after_the_session_timeout() -> None:
    world = World()
    reply = world.joined(world.join(member_id_required=True))
    assert reply.error == E.MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("c-")
    assert world.writes == 0
    ticket = world.join(reply.member_id, member_id_required=True)
    world.advance(6000)
    assert world.joined(ticket).member_id == reply.member_id

    lost = world.joined(world.join(member_id_required=True)).member_id
    world.beat(reply.member_id, 1)
    world.advance(10_000)
    assert world.joined(world.join(lost)).error == E.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members() -> None:
    world = World()
    members = world.stable(1)
    pending = world.joined(world.join(member_id_required=True)).member_id
    again = world.join(members[0])
    assert again not in world.replies
    world.join(pending)
    assert world.joined(again).generation == 2


def test_static_members_join_without_an_id() -> None:
    world = World()
    ticket = world.join(member_id_required=True, instance_id="i")
    world.advance(6000)
    assert world.joined(ticket).member_id.startswith("i-")


def test_unknown_members_are_refused() -> None:
    world = World()
    assert world.joined(world.join("nobody")).error == E.UNKNOWN_MEMBER_ID
    world.stable(1)
    assert world.joined(world.join("nobody")).error == E.UNKNOWN_MEMBER_ID


def test_an_unchanged_follower_rejoins_its_generation_and_the_leader_starts_a_new_one() -> None:
    world = World()
    leader, follower = world.stable(2)
    writes = world.writes
    assert world.joined(world.join(follower)).generation == 1
    assert (world.state, world.writes) == (State.STABLE, writes)
    again = world.join(leader)
    assert world.state is State.PREPARING
    world.join(follower)
    assert world.joined(again).generation == 2


def test_a_follower_with_other_metadata_starts_a_rebalance() -> None:
    world = World()
    leader, follower = world.stable(2)
    ticket = world.join(follower, metadata=subscription("other"))
    assert world.state is State.PREPARING
    again = world.joined(world.join(leader))
    assert (again.generation, again.members[1].metadata) == (2, subscription("other"))
    assert world.joined(ticket).generation == 2


def test_members_may_rejoin_while_the_assignment_is_pending() -> None:
    world = World()
    tickets = [world.join(), world.join()]
    world.advance(6000)
    leader, follower = [world.joined(ticket).member_id for ticket in tickets]
    assert len(world.joined(world.join(leader)).members) == 2
    assert not world.joined(world.join(follower)).members
    waiting = world.sync(follower, 1)
    world.join(follower, metadata=subscription("other"))
    assert world.state is State.PREPARING
    assert world.synced(waiting).error == E.REBALANCE_IN_PROGRESS


def test_members_that_do_not_rejoin_within_the_rebalance_timeout_are_removed() -> None:
    world = World()
    leader, gone = world.stable(2, rebalance_timeout_ms=5000, session_timeout_ms=60_000)
    ticket = world.join(leader)
    world.advance(30_000)
    assert world.joined(ticket).generation == 2
    assert [m.member_id for m in world.joined(ticket).members] == [leader]
    assert ("g", Timer(SESSION, gone)) not in world.deadlines


def test_another_member_leads_when_the_leader_does_not_rejoin() -> None:
    world = World()
    leader, follower = world.stable(2)
    ticket = world.join(follower, metadata=subscription("other"))
    world.leave(leader)
    assert world.joined(ticket).leader == follower


def test_a_rebalance_timeout_of_0_evicts_no_member() -> None:
    world = World()
    members = world.stable(2, rebalance_timeout_ms=0)
    tickets = [world.join(member, rebalance_timeout_ms=0) for member in members]
    world.advance(0)
    assert [world.joined(ticket).error for ticket in tickets] == [E.NONE, E.NONE]
    assert world.joined(tickets[0]).generation == 2


def test_the_maximum_group_size_applies_to_new_members_only() -> None:
    world = World(GroupLimits(max_size=2))
    members = world.stable(2)
    refused = world.joined(world.join())
    assert (refused.error, refused.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert world.state is State.STABLE
    tickets = [world.join(member) for member in members]
    assert [world.joined(ticket).generation for ticket in tickets] == [2, 2]


def test_members_that_would_make_the_header_too_large_are_refused() -> None:
    world = World(GroupLimits(max_header_bytes=10_000))
    tickets = [world.join(client_id="c" * 2000) for _ in range(6)]
    world.advance(6000)
    replies = [world.joined(ticket) for ticket in tickets]
    assert [reply.error for reply in replies] == [E.NONE] * 4 + [E.GROUP_MAX_SIZE_REACHED] * 2
    assert 8_000 < len(world.store[GroupKeys("ns", "g").header]) - len(replies[0].leader) <= 10_000
    # Pending members take no place. The first one to join gets the place.
    world.leave(replies[0].member_id)
    first, second = (world.joined(world.join(client_id="c" * 2000, member_id_required=True)) for _ in range(2))
    assert (first.error, second.error) == (E.MEMBER_ID_REQUIRED, E.MEMBER_ID_REQUIRED)
    ticket = world.join(second.member_id, client_id="c" * 2000)
    assert world.joined(world.join(first.member_id, client_id="c" * 2000)).error == E.GROUP_MAX_SIZE_REACHED
    world.leave(first.member_id)
    for reply in replies[1:4]:
        world.join(reply.member_id)
    assert world.joined(ticket).error == E.NONE


@pytest.mark.parametrize(
    "fields",
    [
        {"client_id": "c" * 32_768},
        {"instance_id": "\N{SNOWMAN}" * 10_923},
        {"protocol_type": "c" * 32_768},
        {"names": ("c" * 32_768,)},
        {"names": tuple(f"{number:0>30000}" for number in range(40))},
        {"names": tuple(f"{number:\N{SNOWMAN}>10000}" for number in range(60))},
        {"names": tuple(map(str, range(101)))},
        {"metadata": b"x" * 1_000_000},
    ],
)
def test_joins_too_large_to_be_stored_are_refused(fields: dict[str, Any]) -> None:
    world = World()
    assert world.joined(world.join(**fields)).error == E.INVALID_REQUEST
    assert world.joined(world.join(group="g" * 32_768)).error == E.INVALID_GROUP_ID
    assert world.commit({("t", 0): 1}, group="g" * 32_768).error == E.INVALID_GROUP_ID
    assert not world.groups
    world.join(client_id="c" * 32_767, names=("n" * 32_767,), metadata=b"x" * 930_000)
    world.advance(3000)
    assert world.state is State.COMPLETING


def test_the_number_of_pending_members_is_bounded() -> None:
    world = World(GroupLimits(max_size=3))
    replies = [world.joined(world.join(member_id_required=True)) for _ in range(5)]
    assert [reply.error for reply in replies] == [E.MEMBER_ID_REQUIRED] * 5
    assert len(world.groups["g"].pending) == 3
    # The oldest ids are forgotten. They block nobody, and their clients request new ids.
    assert [world.joined(world.join(reply.member_id)).error for reply in replies[:2]] == [E.UNKNOWN_MEMBER_ID] * 2
    tickets = [world.join(reply.member_id) for reply in replies[2:]]
    world.advance(9000)
    assert [world.joined(ticket).error for ticket in tickets] == [E.NONE] * 3


def test_pending_members_are_bounded_in_bytes() -> None:
    world = World(GroupLimits(max_header_bytes=10_000))
    for _ in range(20):
        world.join(client_id="c" * 2000, member_id_required=True)
    group = world.groups["g"]
    assert (len(group.pending), group.pending_bytes <= 10_000) == (4, True)


def test_a_loaded_group_with_too_many_members_loses_the_last_ones_to_rejoin() -> None:
    world = World()
    members = world.stable(3)
    later = world.successor(max_size=2)
    assert later.state is State.PREPARING
    tickets = [later.join(member) for member in members]
    assert [later.joined(ticket).error for ticket in tickets] == [E.NONE, E.NONE, E.GROUP_MAX_SIZE_REACHED]


def test_a_member_that_joins_twice_gets_two_replies() -> None:
    world = World()
    leader, follower = world.stable(2)
    first = world.join(leader)
    second = world.join(leader)
    assert world.joined(first).error == E.REBALANCE_IN_PROGRESS
    world.join(follower)
    assert world.joined(second).generation == 2


def test_a_new_member_is_not_waited_for_longer_than_five_minutes() -> None:
    world = World()
    world.stable(1, session_timeout_ms=1_800_000, rebalance_timeout_ms=3_600_000)
    ticket = world.join(rebalance_timeout_ms=3_600_000)
    world.advance(300_000)
    assert world.joined(ticket).error == E.UNKNOWN_MEMBER_ID


def test_the_generation_and_its_members_are_persisted_before_join_group_is_answered() -> None:
    world = World()
    world.join()
    world.join()
    world.advance(6000)
    effects = world.last
    assert [record.key.split("/")[5] for record in effects.stage] == ["members", "members"]
    assert [record.key.split("/")[5] for record in effects.commit] == ["header"]
    assert len(effects.replies) == 2
