"""Loading a group that another coordinator owned before."""

import pytest

from kafscale.errors import CorruptData
from kafscale.paths import GroupKeys
from services.coordinator.effects import Timer, TimerKind
from services.coordinator.groups import Groups
from services.coordinator.table import State
from tests.support.coordinator.harness import LIMITS, E, World, subscription


def test_a_stable_group_continues_without_a_rebalance_and_with_full_sessions() -> None:
    world = World()
    members = world.stable(3)
    world.commit({("t", 0): 7}, members[0], 1)
    world.advance(9999)
    later = world.successor()
    assert later.writes == 0
    assert (later.state, later.committed()) == (State.STABLE, {("t", 0): 7})
    later.advance(9999)
    assert [later.beat(member, 1) for member in members] == [E.NONE] * 3
    assert [m.assignment for m in later.describe().members] == [b"p0", b"p1", b"p2"]
    assert later.synced(later.sync(members[2], 1)).assignment == b"p2"


def test_sessions_start_again_when_a_group_is_loaded() -> None:
    world = World()
    world.stable(1)
    later = world.successor()
    later.advance(9999)
    assert later.state is State.STABLE
    later.advance(1)
    assert later.describe().state == "Empty"


def test_a_loaded_group_still_waits_for_its_assignment() -> None:
    world = World()
    tickets = [world.join(), world.join()]
    world.advance(6000)
    leader, follower = [world.joined(ticket).member_id for ticket in tickets]
    later = world.successor()
    assert later.state is State.COMPLETING
    assert ("g", Timer(TimerKind.SYNC)) in later.deadlines
    again = later.joined(later.join(leader))
    assert (again.generation, len(again.members)) == (1, 2)
    waiting = later.sync(follower, 1)
    later.sync(leader, 1, {follower: b"x"})
    assert later.synced(waiting).assignment == b"x"


def test_a_rebalance_in_progress_is_lost_with_its_coordinator() -> None:
    world = World()
    _, follower = world.stable(2)
    world.join(follower, metadata=subscription("new"))
    later = world.successor()
    assert later.state is State.STABLE
    later.join(follower, metadata=subscription("new"))
    assert later.describe().state == "PreparingRebalance"


def test_values_staged_for_a_missing_header_are_ignored_and_removed() -> None:
    world = World()
    leader, follower = world.stable(2)
    stored = dict(world.store)
    world.join(follower, metadata=subscription("new"))
    world.join(leader)
    staged = {record.key: record.value for record in world.last.stage}
    assert len(staged) == 1
    for key, value in staged.items():
        assert value is not None
        stored[key] = value.SerializeToString()
    world.store = stored
    later = world.successor()
    assert (later.state, later.groups["g"].generation) == (State.STABLE, 1)
    assert not staged.keys() & later.store.keys()
    assert later.joined(later.join(follower)).generation == 1


def test_two_coordinators_never_write_the_same_keys() -> None:
    world = World()
    leader, follower = world.stable(2)
    later = world.successor()
    for each in (world, later):
        each.join(follower, metadata=subscription("new"))
        each.join(leader)
    assert {r.key for r in world.last.stage}.isdisjoint({r.key for r in later.last.stage})


def test_unloading_a_group_answers_waiting_requests_and_writes_nothing() -> None:
    world = World()
    leader, _ = world.stable(2)
    join = world.join(leader)
    effects = world.groups.unload("g", world.now)
    assert [(r.ticket, r.message.error) for r in effects.replies] == [(join, E.NOT_COORDINATOR)]  # type: ignore[attr-defined]
    assert not effects.writes
    assert not effects.sweep
    assert set(effects.timers.values()) == {None}
    assert not world.groups


@pytest.mark.parametrize("part", ["header", "members", "assignments", "offsets"])
@pytest.mark.parametrize("damage", ["missing", "format", "torn"])
def test_damage_is_an_error(part: str, damage: str) -> None:
    world = World()
    members = world.stable(2)
    world.commit({("t", 0): 1}, members[0], 1)
    items = dict(world.store)
    key = next(key for key in items if key.split("/")[5] == part)
    if damage == "missing":
        if part in ("header", "offsets"):
            return
        del items[key]
    else:
        items[key] = b"\x08\x07" if damage == "format" else items[key][:-1]
    groups = Groups("ns", LIMITS, 5)
    with pytest.raises(CorruptData):
        groups.load("g", items.items(), 5, world.now)
    assert not groups


def test_values_without_a_header_are_removed() -> None:
    world = World()
    world.stable(2)
    del world.store[GroupKeys("ns", "g").header]
    groups = Groups("ns", LIMITS, 5)
    effects = groups.load("g", world.store.items(), 5, world.now)
    assert not groups
    assert sorted(effects.sweep) == sorted(world.store)
