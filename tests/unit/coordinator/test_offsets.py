"""Committed offsets, deletion and retention."""

from dataclasses import replace

import pytest

from kafscale.v1.coordinator_pb2 import GroupOffsets, GroupOffsetsQuery, JoinGroupRequest, ListGroupsRequest
from services.coordinator.group import Offsets
from services.coordinator.limits import GroupLimits
from services.coordinator.table import State
from tests.support.coordinator.harness import E, World, subscription, topic_id

HOUR = 3_600_000
WEEK = 7 * 24 * HOUR
LIST = ListGroupsRequest()


def test_a_member_commits_in_its_generation() -> None:
    world = World()
    leader, _ = world.stable(2)
    assert list(world.commit({("t", 0): 5, ("t", 1): 6}, leader, 1).errors) == [E.NONE, E.NONE]
    assert world.committed() == {("t", 0): 5, ("t", 1): 6}
    assert world.commit({("t", 0): 9}, leader, 0).error == E.ILLEGAL_GENERATION
    assert world.commit({("t", 0): 9}, "nobody", 1).error == E.UNKNOWN_MEMBER_ID
    assert world.commit({("t", 0): 9}).error == E.UNKNOWN_MEMBER_ID
    assert world.commit({("t", 0): 9}, group="other", generation=1).error == E.GROUP_ID_NOT_FOUND
    assert world.committed() == {("t", 0): 5, ("t", 1): 6}


def test_commits_during_a_rebalance_are_answered_as_in_kafka() -> None:
    world = World()
    leader, follower = world.stable(2)
    tickets = [world.join(leader)]
    assert world.commit({("t", 0): 5}, follower, 1).error == E.NONE
    tickets.append(world.join(follower))
    assert world.state is State.COMPLETING
    assert world.commit({("t", 0): 6}, follower, 1).error == E.ILLEGAL_GENERATION
    assert world.commit({("t", 0): 6}, follower, 2).error == E.REBALANCE_IN_PROGRESS
    assert world.committed() == {("t", 0): 5}


def test_a_commit_extends_the_session() -> None:
    world = World()
    [member] = world.stable(1)
    for _ in range(5):
        world.advance(9999)
        assert world.commit({("t", 0): 5}, member, 1).error == E.NONE


def test_clients_without_membership_commit_to_groups_without_members() -> None:
    world = World()
    assert world.commit({("t", 0): 5}).error == E.NONE
    assert world.commit({("t", 0): 6}, "any", -1).error == E.NONE
    assert [(g.group, g.protocol_type, g.state) for g in world.groups.list(LIST).groups] == [("g", "", "Empty")]
    members = world.stable(1)
    assert world.commit({("t", 0): 7}).error == E.UNKNOWN_MEMBER_ID
    world.leave(*members)
    assert world.commit({("t", 0): 8}).error == E.NONE
    assert world.successor().committed() == {("t", 0): 8}


def test_the_metadata_of_an_offset_is_limited() -> None:
    world = World()
    assert list(world.commit({("t", 0): 1}, metadata="x" * 4096).errors) == [E.NONE]
    assert list(world.commit({("t", 0): 2}, metadata="x" * 4097).errors) == [E.OFFSET_METADATA_TOO_LARGE]
    assert list(world.commit({("t", 0): 3}, metadata="\U0001f600" * 2049).errors) == [E.OFFSET_METADATA_TOO_LARGE]
    [found] = world.fetch(("t", 0)).offsets
    assert (found.offset, found.leader_epoch, found.metadata) == (1, 3, "x" * 4096)
    assert found.topic_id == topic_id("t")
    assert world.successor().fetch(("t", 0)).offsets[0] == found


def test_a_fully_refused_commit_creates_no_group() -> None:
    world = World()
    world.commit({("t", 0): 2}, metadata="x" * 4097)
    assert not world.groups
    assert not world.store


def test_offsets_of_a_group_expire_after_it_has_been_empty_for_the_retention() -> None:
    world = World()
    members = world.stable(1)
    world.commit({("t", 0): 1}, members[0], 1)
    world.now_ms += 3 * WEEK
    world.expire_offsets()
    assert world.committed() == {("t", 0): 1}
    world.leave(*members)
    world.advance(WEEK - 1)
    later = world.successor()
    world.expire_offsets()
    assert world.committed() == {("t", 0): 1}
    world.advance(1)
    world.expire_offsets()
    assert not world.groups
    assert not world.store
    later.expire_offsets()
    assert not later.store


def test_offsets_committed_to_a_long_empty_group_have_the_full_retention() -> None:
    world = World()
    world.leave(*world.stable(1))
    world.commit({("old", 0): 1})
    world.advance(WEEK - 1)
    world.commit({("t", 0): 1})
    world.advance(HOUR)
    world.expire_offsets()
    assert world.committed() == {("t", 0): 1}


def test_offsets_of_simple_consumers_expire_after_the_retention() -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.advance(HOUR)
    world.commit({("t", 1): 1})
    world.advance(WEEK - HOUR)
    world.expire_offsets()
    assert world.committed() == {("t", 1): 1}


def test_a_client_may_choose_the_retention() -> None:
    world = World()
    world.commit({("t", 0): 1}, retention_ms=HOUR)
    world.commit({("t", 1): 1}, retention_ms=2 * WEEK)
    world.commit({("t", 2): 1}, retention_ms=2**63 - 1)
    world.advance(HOUR)
    world.expire_offsets()
    assert world.committed() == {("t", 1): 1, ("t", 2): 1}
    later = world.successor()
    later.advance(WEEK)
    later.expire_offsets()
    assert later.committed() == {("t", 1): 1, ("t", 2): 1}


def test_offsets_of_deleted_topics_are_deleted_in_every_state() -> None:
    world = World()
    [member] = world.stable(1)
    world.commit({("t", 0): 1, ("other", 0): 1}, member, 1)
    world.expire_offsets("other")
    assert world.committed() == world.successor().committed() == {("t", 0): 1}
    world.expire_offsets("t")
    assert world.committed() == world.successor().committed() == {}
    assert world.state is State.STABLE
    world.commit({("t", 0): 2}, member, 1)
    world.leave(member)
    world.expire_offsets("t")
    assert not world.groups
    assert not world.store


def test_only_offsets_of_unsubscribed_topics_expire_in_a_stable_group() -> None:
    world = World()
    [member] = world.stable(1, session_timeout_ms=1_800_000)
    world.commit({("t", 0): 1, ("other", 0): 1}, member, 1)
    world.now_ms += WEEK
    world.expire_offsets()
    assert world.committed() == {("t", 0): 1}


@pytest.mark.parametrize("metadata", [b"", b"\x00", subscription("t")[:-6], b"\x00\x01\x7f\xff\xff\xff"])
def test_a_group_with_unknown_topics_keeps_all_offsets(metadata: bytes) -> None:
    world = World()
    [member] = world.stable(1, metadata=metadata)
    world.commit({("t", 0): 1}, member, 1)
    world.now_ms += WEEK
    world.expire_offsets()
    assert world.committed() == {("t", 0): 1}
    assert list(world.delete_offsets(("t", 0)).errors) == [E.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_are_deleted_only_for_unsubscribed_topics() -> None:
    world = World()
    [member] = world.stable(1)
    world.commit({("t", 0): 1, ("other", 0): 1}, member, 1)
    reply = world.delete_offsets(("t", 0), ("other", 0), ("other", 1))
    assert list(reply.errors) == [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, E.NONE]
    assert world.committed() == world.successor().committed() == {("t", 0): 1}
    world.leave(member)
    assert list(world.delete_offsets(("t", 0)).errors) == [E.NONE]
    assert world.committed() == {}


def test_offsets_of_unknown_groups_and_other_protocols_are_not_deleted() -> None:
    world = World()
    assert world.delete_offsets(("t", 0)).error == E.GROUP_ID_NOT_FOUND
    world.stable(1, protocol_type="connect")
    assert world.delete_offsets(("t", 0)).error == E.NON_EMPTY_GROUP


def test_a_group_can_be_created_again_after_its_deletion() -> None:
    world = World()
    world.leave(*world.stable(1))
    world.commit({("t", 0): 1})
    assert world.delete() == E.NONE
    assert not world.store
    assert world.delete() == E.GROUP_ID_NOT_FOUND
    members = world.stable(1)
    assert world.groups["g"].generation == 1
    assert world.beat(members[0], 1) == E.NONE


def test_requests_during_a_deletion_get_retriable_errors() -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.groups.delete("g", 999, world.now)
    assert world.groups.list(LIST).groups == []
    fetched = world.groups.fetch(GroupOffsetsQuery(group="g", all=True), 1000).replies[0].message
    assert fetched == GroupOffsets(group="g")
    assert world.state is State.DEAD
    ticket = world.ticket()
    request = JoinGroupRequest(group="g", member_id_required=True)
    [reply] = world.groups.join(request, ticket, world.now, fresh_id="x").replies
    assert reply.message.error == E.COORDINATOR_NOT_AVAILABLE  # type: ignore[attr-defined]


def test_an_unchanged_offset_is_not_stored_again_for_minutes() -> None:
    world = World()
    world.commit({("t", 0): 5, ("t", 1): 6})
    stored = dict(world.store)
    world.advance(9 * 60_000)
    assert list(world.commit({("t", 0): 5, ("t", 1): 7}).errors) == [E.NONE, E.NONE]
    assert [key.rpartition("/")[2] for key, value in world.store.items() if stored[key] != value] == ["1"]
    world.advance(60_000)
    stored = dict(world.store)
    world.commit({("t", 0): 5})
    assert [key.rpartition("/")[2] for key, value in world.store.items() if stored[key] != value] == ["0"]


def test_a_repeatedly_committed_offset_does_not_expire() -> None:
    world = World()
    for _ in range(2 * WEEK // HOUR):
        world.commit({("t", 0): 5})
        world.advance(HOUR)
        world.expire_offsets()
    assert world.committed() == {("t", 0): 5}


def test_the_metadata_of_all_offsets_of_a_group_is_limited() -> None:
    world = World(GroupLimits(metadata_total_bytes=10_000))
    assert list(world.commit({("t", n): 1 for n in range(3)}, metadata="x" * 4000).errors) == [
        E.NONE,
        E.NONE,
        E.OFFSET_METADATA_TOO_LARGE,
    ]
    assert list(world.commit({("t", 2): 1}, metadata="x" * 2001).errors) == [E.OFFSET_METADATA_TOO_LARGE]
    assert list(world.commit({("t", 0): 2}, metadata="y" * 4000).errors) == [E.NONE], "it replaces the old metadata"
    assert list(world.commit({("t", 2): 1}).errors) == [E.NONE], "without metadata"
    world.commit({("t", 0): 3})
    assert list(world.commit({("t", 2): 1}, metadata="x" * 4000).errors) == [E.NONE], "metadata fits again"


def test_the_size_of_metadata_is_tracked_across_loads_deletions_and_expiry() -> None:
    def full(world: World) -> bool:
        (error,) = world.commit({("u", 0): 1}, metadata="x" * 2001).errors
        return error == E.OFFSET_METADATA_TOO_LARGE

    def offsets(world: World) -> Offsets:
        return world.groups["g"].offsets

    world = World(GroupLimits(metadata_total_bytes=10_000))
    world.commit({("t", 0): 1, ("t", 1): 1}, metadata="\u00e9" * 2000)
    assert full(world)
    world = world.successor(metadata_total_bytes=10_000)
    assert full(world)
    world.delete_offsets(("t", 1))
    assert not full(world)
    world.delete_offsets(("u", 0))
    world.commit({("t", 1): 2}, metadata="\u00e9" * 2000)
    assert full(world)
    world.commit({("keeps", 0): 1})
    world.expire_offsets("t")
    assert not full(world)
    assert offsets(world).metadata_bytes == 2001


def test_a_commit_reads_only_the_metadata_of_its_own_partitions() -> None:
    encoded: list[str] = []

    class Watched(str):
        __slots__ = ()

        def encode(self, *args: str, **named: str) -> bytes:
            encoded.append(self)
            return super().encode(*args, **named)

    world = World()
    world.commit({("t", n): 1 for n in range(3)}, metadata="x")
    offsets = world.groups["g"].offsets
    for partition, offset in list(offsets.items()):
        offsets[partition] = replace(offset, metadata=Watched(f"of {partition[1]}"))
    encoded.clear()
    world.commit({("t", 1): 2}, metadata="y")
    assert set(encoded) == {"of 1"}
