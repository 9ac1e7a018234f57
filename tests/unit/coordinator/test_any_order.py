"""Invariants of groups hold for any requests in any order."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from services.coordinator.effects import TimerKind
from services.coordinator.group import reference_bytes
from services.coordinator.limits import GroupLimits
from services.coordinator.table import ANSWERS, EXITS, NO_GROUP, Ask, Cause, State
from tests.support.coordinator.harness import GROUP, E, World, subscription

_PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("other",)])
_TOPICS = st.sampled_from([subscription("t"), subscription("t", "u"), b"none"])
_WHO = st.integers(0, 5)
_INSTANCES = st.sampled_from([None, None, "i", "j"])


class GroupMachine(RuleBasedStateMachine):
    """Any members, some of which know their id, in one group whose coordinator may change."""

    @initialize(size=st.sampled_from([2, 4, 100]), delay=st.sampled_from([0, 3000]))
    def start(self, size: int, delay: int) -> None:
        self.world = World(GroupLimits(max_size=size, initial_rebalance_delay_ms=delay))
        self.known: list[str] = ["nobody"]
        self.generation = 0
        self.waiting: set[int] = set()

    def _wait_for(self, ticket: int) -> None:
        self.waiting.add(ticket)

    def _learn(self) -> None:
        for ticket in self.waiting & self.world.replies.keys():
            member_id = getattr(self.world.replies[ticket], "member_id", "")
            if member_id and member_id not in self.known:
                self.known.append(member_id)
        self.waiting -= self.world.replies.keys()

    def _who(self, index: int) -> str:
        return self.known[-1 - index % len(self.known)]

    def _generation(self, back: int) -> int:
        return (self.world.groups[GROUP].generation if GROUP in self.world.groups else 0) - back

    @rule(names=_PROTOCOLS, metadata=_TOPICS, first=st.booleans(), instance=_INSTANCES, skips=st.booleans())
    def join_new(self, names: tuple[str, ...], metadata: bytes, first: bool, instance: str | None, skips: bool) -> None:
        fields: dict[str, Any] = {"member_id_required": first, "instance_id": instance, "skips_assignment": skips}
        self._wait_for(self.world.join(names=names, metadata=metadata, **fields))

    @rule(who=_WHO, names=_PROTOCOLS, metadata=_TOPICS, instance=_INSTANCES)
    def join_again(self, who: int, names: tuple[str, ...], metadata: bytes, instance: str | None) -> None:
        self._wait_for(self.world.join(self._who(who), names=names, metadata=metadata, instance_id=instance))

    @rule(who=_WHO, back=st.sampled_from([0, 0, 0, 1]))
    def sync(self, who: int, back: int) -> None:
        assignments = {member: member.encode() for member in self.known}
        self._wait_for(self.world.sync(self._who(who), self._generation(back), assignments))

    @rule()
    def sync_leader(self) -> None:
        if GROUP in self.world.groups:
            leader = self.world.groups[GROUP].leader
            self._wait_for(self.world.sync(leader, self._generation(0), {leader: b"x"}))

    @rule(who=_WHO, back=st.sampled_from([0, 0, 1]))
    def heartbeat(self, who: int, back: int) -> None:
        self.world.beat(self._who(who), self._generation(back))

    @rule(who=_WHO, other=_WHO, instance=_INSTANCES)
    def leave(self, who: int, other: int, instance: str | None) -> None:
        self.world.leave(self._who(who), self._who(other), *([("", instance)] if instance else []))

    @rule(who=_WHO, simple=st.booleans(), partition=st.integers(0, 3))
    def commit(self, who: int, simple: bool, partition: int) -> None:
        if simple:
            self.world.commit({("t", partition): 1, ("u", partition): 2})
        else:
            self.world.commit({("t", partition): 3}, self._who(who), self._generation(0))

    @rule(ms=st.sampled_from([1, 2999, 6000, 30_000, 400_000]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def delete(self) -> None:
        if self.world.delete() == E.NONE:
            self.generation = 0

    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_offset(self, topic: str) -> None:
        self.world.delete_offsets((topic, 0))

    @rule(days=st.sampled_from([0, 8]))
    def expire(self, days: int) -> None:
        self.world.advance(days * 24 * 3_600_000)
        self.world.expire_offsets()
        if GROUP not in self.world.groups:
            self.generation = 0

    @rule()
    def another_coordinator(self) -> None:
        before = self.world
        self.world = before.successor()
        self.world.tickets = before.tickets
        self.waiting.clear()

    @invariant()
    def invariants_hold(self) -> None:
        self._learn()
        world = self.world
        if GROUP not in world.groups:
            assert not world.deadlines
            assert not world.store
            return
        group = world.groups[GROUP]
        assert group.generation >= self.generation
        self.generation = group.generation
        assert set(group.joining) | set(group.syncing) | group.unsynced <= set(group.members)
        assert not set(group.joining) & set(group.syncing)
        assert set(group.static.values()) <= set(group.members)
        assert not set(group.pending) & set(group.members)
        assert group.named_bytes == sum(map(reference_bytes, group.members))
        assert group.pending_bytes == sum(map(reference_bytes, group.pending))
        assert {*group.joining.values(), *group.syncing.values()} == self.waiting
        assert (group.leader in group.members) == bool(group.members)
        sessions = {timer.member_id for _, timer in world.deadlines if timer.kind is TimerKind.SESSION}
        assert sessions <= set(group.members) | set(group.pending)
        assert set(group.members) <= sessions | set(group.joining) | set(group.syncing)
        assert {timer: at for (_, timer), at in world.deadlines.items()} == group.deadlines
        kinds = {timer.kind for _, timer in world.deadlines}
        assert (TimerKind.JOIN in kinds) == (group.state is State.PREPARING)
        assert (TimerKind.SYNC in kinds) == bool(group.unsynced)
        if group.state is State.EMPTY:
            assert not group.members
        if group.state in (State.COMPLETING, State.STABLE):
            assert group.members
            assert not group.joining
        if group.state is not State.COMPLETING:
            assert not group.syncing

    @invariant()
    def stored_state_matches_memory(self) -> None:
        """A rebalance in progress is not persisted."""
        if GROUP not in self.world.groups:
            return
        group, loaded = self.world.groups[GROUP], self.world.successor().groups
        if GROUP not in loaded:
            assert not group.has_header
            return
        other = loaded[GROUP]
        assert (other.generation, other.offsets) == (group.generation, group.offsets)
        if group.state in (State.COMPLETING, State.STABLE):
            if len(group.members) <= self.world.limits.max_size:
                assert other.state is group.state
            assert list(other.members) == list(group.members)
            assert other.members == group.members
            assert (other.leader, other.protocol, other.static) == (group.leader, group.protocol, group.static)
            assert +other.supported == +group.supported
            assert other.topics == group.topics


GroupMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestAnyOrder = GroupMachine.TestCase


def test_the_transition_table_is_complete() -> None:
    assert set(ANSWERS) == set(EXITS) == set(State)
    assert all(set(answers) == set(Ask) for answers in [*ANSWERS.values(), NO_GROUP])
    assert {cause for exits in EXITS.values() for cause in exits} == set(Cause)
    entered = {state for exits in EXITS.values() for state in exits.values()}
    assert entered == set(State)
    assert not EXITS[State.DEAD]
