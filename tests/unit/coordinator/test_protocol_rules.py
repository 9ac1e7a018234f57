"""Rules of the group protocol, tested on the state machine alone."""

from kafscale.v1.coordinator_pb2 import ListGroupsRequest
from tests.support.coordinator.harness import E, World


def test_the_leaders_assignment_is_passed_on_unchanged() -> None:
    world = World()
    tickets = [world.join(protocol_type="any", names=("x",)) for _ in range(2)]
    world.advance(6000)
    leader, follower = [world.joined(ticket).member_id for ticket in tickets]
    assignments = {leader: bytes(range(256)), follower: b"\x00not a consumer's assignment"}
    waiting = world.sync(follower, 1)
    own = world.sync(leader, 1, assignments)
    assert world.synced(own).assignment == assignments[leader]
    assert world.synced(waiting).assignment == assignments[follower]
    assert [m.assignment for m in world.successor().describe().members] == list(assignments.values())


def test_a_missing_offset_is_minus_1() -> None:
    world = World()
    for group in ("nobody's", "g"):
        [found] = world.fetch(("t", 0), group=group).offsets
        assert (found.offset, found.leader_epoch, found.metadata) == (-1, -1, "")
        world.commit({("t", 1): 0})
    assert world.committed() == {("t", 1): 0}


def test_offsets_are_fetched_for_all_topics_and_committed_without_membership() -> None:
    world = World()
    offsets = {("t", 0): 1, ("t", 1): 2, ("u", 5): 3}
    assert list(world.commit(offsets).errors) == [E.NONE] * 3
    assert world.committed() == offsets
    members = world.stable(1)
    assert world.committed() == offsets
    world.leave(*members)
    assert world.commit({("t", 0): 0}).error == E.NONE
    assert world.committed() == {**offsets, ("t", 0): 0}


def test_join_group_waits_for_the_rebalance_and_leaves_no_phantom_member() -> None:
    world = World()
    leader, follower = world.stable(2)
    waiting = world.join(leader)
    pending = world.joined(world.join(member_id_required=True)).member_id
    forgotten = world.joined(world.join(member_id_required=True)).member_id
    new = world.join(pending, member_id_required=True)
    world.join(follower)
    assert not {waiting, new} & set(world.replies)
    world.advance(10_000)
    members = [m.member_id for m in world.joined(waiting).members]
    assert sorted(members) == sorted([leader, follower, pending])
    assert forgotten not in members


def test_heartbeats_write_nothing() -> None:
    world = World()
    members = world.stable(3)
    stored, writes = dict(world.store), world.writes
    for _ in range(100):
        world.advance(3000)
        assert {world.beat(member, 1) for member in members} == {E.NONE}
    world.join(members[0])
    assert world.beat(members[1], 1) == E.REBALANCE_IN_PROGRESS
    assert (world.store, world.writes) == (stored, writes)


def test_a_former_coordinator_never_writes_keys_of_its_successor() -> None:
    world = World()
    leader, follower = world.stable(2)
    before = set(world.store)
    later = world.successor()
    for each in (world, later):
        new = each.join()
        for member in (leader, follower):
            each.join(member)
        each.finish([leader, follower, each.joined(new).member_id], 2)
    header = world.groups["g"].keys.header
    # Every write compares the header's revision, which stops the former coordinator.
    written, deleted = set(world.store) - before - {header}, before - set(world.store)
    assert written
    assert deleted
    assert not (written | deleted) & set(later.store)
    assert later.beat(leader, 2) == E.NONE


def test_empty_groups_keep_their_offsets_until_they_are_deleted() -> None:
    world = World()
    members = world.stable(2)
    world.commit({("t", 0): 1}, members[0], 1)
    assert world.delete() == E.NON_EMPTY_GROUP
    world.leave(*members)
    world.advance(3_600_000)
    world.expire_offsets()
    listed = world.groups.list(ListGroupsRequest(states=["empty"], types=["Classic"]))
    assert [group.group for group in listed.groups] == ["g"]
    assert world.committed() == {("t", 0): 1}
    assert world.delete() == E.NONE
    assert not world.store
    assert world.committed() == {}
    assert world.describe().state == "Dead"
    assert not world.groups.list(ListGroupsRequest()).groups
    assert not world.groups.list(ListGroupsRequest(types=["share"])).groups


def test_members_stay_known_through_overlapping_rebalances() -> None:
    world = World()
    members = world.stable(3)
    for generation in range(2, 6):
        tickets = [world.join(member) for member in members[:-1]]
        new = world.join()
        tickets.append(world.join(members[-1]))
        members.append(world.joined(new).member_id)
        assert {world.joined(ticket).error for ticket in [*tickets, new]} == {E.NONE}
        again = [world.join(member) for member in members]
        assert {world.joined(ticket).generation for ticket in again} == {generation}
        for member in reversed(members):
            assert world.beat(member, generation) == E.NONE
        world.finish(members, generation)


def test_metadata_of_commits_is_stored() -> None:
    world = World()
    world.commit({("t", 0): 1}, metadata="where I was")
    assert [o.metadata for o in world.fetch(("t", 0)).offsets] == ["where I was"]
    assert [o.metadata for o in world.successor().fetch().offsets] == ["where I was"]
