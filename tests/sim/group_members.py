"""Simulated members of consumer groups, and readers of committed offsets, through any gateway."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import trio
from kio.schema.errors import ErrorCode as C

from tests.sim import wire
from tests.sim.client import Connection, ConnectionLost, connected
from tests.sim.faults import Faults
from tests.sim.group_checker import GroupChecker
from tests.sim.view import Partition, View

SLOTS = 4
_SESSION_MS = 1500
_JOIN_SECONDS = 4.0
_SECONDS = 0.9
_UNSEEN_SECONDS = 5.0
_SUFFIX = 37  # the length of the suffix that a coordinator adds to a name for a member id
_GIVEN_UP = (C.unknown_member_id, C.fenced_instance_id)
_TO_REJOIN = (*_GIVEN_UP, C.illegal_generation, C.rebalance_in_progress)


@dataclass(slots=True, eq=False)
class GroupView:
    """The shared state of group clients."""

    view: View
    checker: GroupChecker
    faults: Faults
    nursery: trio.Nursery
    statics: set[str] = field(default_factory=set)
    values: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def connected(self) -> AbstractAsyncContextManager[Connection]:
        return connected(self.view.gateways, self.view.faults, self._close_some_time)

    async def _close_some_time(self, stream: trio.abc.AsyncResource) -> None:
        """Close later or never, so that the gateway may still execute the requests that it has read."""
        if self.faults.hits("connection-end-unseen"):
            self.nursery.start_soon(self._keep_open, stream)
        else:
            await trio.aclose_forcefully(stream)

    @staticmethod
    async def _keep_open(stream: trio.abc.AsyncResource) -> None:
        try:
            await trio.sleep(_UNSEEN_SECONDS)
        finally:
            await trio.aclose_forcefully(stream)

    def partitions(self) -> list[Partition]:
        """Return the partitions of existing topics by the names that clients use."""
        return [one for one in self.view.partitions if not one.doomed]

    def meant(self, partitions: Iterable[Partition], connection: Connection) -> set[Partition]:
        """Return the partitions that a request by topic name refers to. The gateway may still know the former topic."""
        first: dict[tuple[str, int], Partition] = {}
        for one in self.view.partitions:
            first.setdefault((one.topic, one.index), one)
        return {
            one for one in partitions if first[one.topic, one.index] is one or connection.gateway.knows(one.topic_id)
        }

    def next_value(self, group: str, partition: Partition) -> int:
        key = group, partition.topic, partition.index
        self.values[key] = self.values.get(key, 0) + 1
        return self.values[key]

    async def commit(self, connection: Connection, group: str, partitions: list[Partition], **member: Any) -> C:
        """Commit the next offset of each partition. Return the first error. Raise ConnectionLost."""
        meant = self.meant(partitions, connection)
        offsets = {one: self.next_value(group, one) for one in partitions}
        body = commit_request(group, offsets, **member)
        answer = wire.response(wire.OFFSET_COMMIT, await connection.ask(wire.OFFSET_COMMIT, body, timeout=_SECONDS))
        errors = {
            (topic.name, each.partition_index): C(each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        }
        good = {
            one: offset
            for one, offset in offsets.items()
            if errors[one.topic, one.index] is C.none and not one.doomed and one in meant
        }
        self.checker.acked(group, good)
        failures = [error for error in errors.values() if error is not C.none]
        self.view.trace(group, f"commit {list(offsets.values())} {failures[0].name if failures else 'acked'}")
        return failures[0] if failures else C.none


def commit_request(
    group: str,
    offsets: Mapping[Partition, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
) -> bytes:
    topics: dict[str, list[Any]] = {}
    for one, offset in offsets.items():
        topics.setdefault(one.topic, []).append(
            wire.part(
                wire.OFFSET_COMMIT,
                "OffsetCommitRequestPartition",
                partition_index=one.index,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata="",
            )
        )
    return wire.request(
        wire.OFFSET_COMMIT,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=tuple(
            wire.part(wire.OFFSET_COMMIT, "OffsetCommitRequestTopic", name=name, partitions=tuple(parts))
            for name, parts in topics.items()
        ),
    )


class Committer:
    """Commits without membership, like a consumer with manual assignment."""

    def __init__(self, groups: GroupView, group: str) -> None:
        self.name = self._group = group
        self._groups = groups
        self.last_good = 0.0

    async def run(self) -> None:
        while True:
            try:
                async with self._groups.connected() as connection:
                    while self._groups.faults.dice.random() > 0.02:
                        partitions = self._groups.partitions()
                        error = await self._groups.commit(connection, self._group, partitions)
                        if error is C.none:
                            self.last_good = trio.current_time()
                        await trio.sleep(0.2)
            except* ConnectionLost:
                pass
            await trio.sleep(0.02)


class GroupMember:
    """Joins, syncs, sends heartbeats and commits. Sometimes leaves, or returns as a new member."""

    def __init__(self, groups: GroupView, group: str, name: str, *, static: bool) -> None:
        self.name = name
        self._groups = groups
        self.group = group
        self._static = static
        if static:
            groups.statics.add(name)
        self._member_id = ""
        self._generation = -1
        self.last_good = 0.0

    @property
    def _instance(self) -> str | None:
        return self.name if self._static else None

    async def run(self) -> None:
        while True:
            try:
                async with self._groups.connected() as connection:
                    while self._groups.faults.dice.random() > 0.1:
                        slots = await self._joined(connection)
                        if slots is None:
                            await trio.sleep(0.05)
                        else:
                            await self._work(connection, slots)
                        await self._go_now_and_then(connection)
            except* ConnectionLost:
                pass
            await trio.sleep(0.02)

    async def _ask(self, connection: Connection, api_key: int, timeout: float = _SECONDS, /, **values: Any) -> Any:
        body = wire.request(api_key, group_id=self.group, **values)
        return wire.response(api_key, await connection.ask(api_key, body, timeout=timeout))

    def _is_final(self, error: C, what: str) -> bool:
        """Return whether the member has lost its membership, which it then gives up."""
        if error is not C.none:
            self._groups.view.trace(self.name, f"{what}: {error.name}")
        if error is C.fenced_instance_id:
            self._groups.checker.complain(self.group, f"{self.name} was fenced, but no one else uses its name")
        if error in _GIVEN_UP:
            self._member_id = ""
        return error in _GIVEN_UP

    def _identity(self, member_id: str) -> str:
        name = member_id[:-_SUFFIX]
        return name if name in self._groups.statics else member_id

    async def _joined(self, connection: Connection) -> list[int] | None:
        """Return the slots of this member in a new generation, or None if it must retry."""
        protocol = wire.part(wire.JOIN_GROUP, "JoinGroupRequestProtocol", name="range", metadata=b"m")
        joined = await self._ask(
            connection,
            wire.JOIN_GROUP,
            _JOIN_SECONDS,
            session_timeout=wire.milliseconds(_SESSION_MS),
            rebalance_timeout=wire.milliseconds(_SESSION_MS),
            member_id=self._member_id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocols=(protocol,),
            reason=None,
        )
        error = C(joined.error_code)
        if error is C.member_id_required:
            self._member_id = joined.member_id
            return None
        if self._is_final(error, "join") or error is not C.none:
            return None
        self._member_id, self._generation = joined.member_id, joined.generation_id
        members = sorted(self._identity(one.member_id) for one in joined.members)
        self._groups.view.trace(self.name, f"joined generation {self._generation} of {len(members)}")
        self._groups.checker.joined(self.group, self._generation, self._identity(joined.leader), members)
        return await self._synced(connection, sorted(joined.members, key=lambda one: self._identity(one.member_id)))

    async def _synced(self, connection: Connection, members: list[Any]) -> list[int] | None:
        assignments = tuple(
            wire.part(
                wire.SYNC_GROUP,
                "SyncGroupRequestAssignment",
                member_id=one.member_id,
                assignment=bytes(slot for slot in range(SLOTS) if slot % len(members) == number),
            )
            for number, one in enumerate(members)
        )
        synced = await self._ask(
            connection,
            wire.SYNC_GROUP,
            _JOIN_SECONDS,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        error = C(synced.error_code)
        if self._is_final(error, "sync") or error is not C.none:
            return None
        slots = list(synced.assignment)
        self._groups.view.trace(self.name, f"has {slots} in generation {self._generation}")
        self._groups.checker.assigned(self.group, self._generation, slots, self._identity(self._member_id))
        return slots

    async def _work(self, connection: Connection, slots: list[int]) -> None:
        """Work until the member must rejoin."""
        faults = self._groups.faults
        while not faults.hits("member-joins-again"):
            await trio.sleep(0.15)
            beat = await self._ask(
                connection,
                wire.HEARTBEAT,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self._instance,
            )
            error = C(beat.error_code)
            self._is_final(error, "beat")
            if error in _TO_REJOIN:
                return
            mine = [one for place, one in enumerate(self._groups.partitions()) if place % SLOTS in slots]
            if error is C.none and mine:
                error = await self._groups.commit(
                    connection,
                    self.group,
                    mine,
                    generation=self._generation,
                    member_id=self._member_id,
                    instance=self._instance,
                )
                self._is_final(error, "commit")
                if error in _TO_REJOIN:
                    return
            if error is C.none:
                self.last_good = trio.current_time()

    async def _go_now_and_then(self, connection: Connection) -> None:
        if not self._member_id or not self._groups.faults.hits("member-leaves"):
            return
        if not self._static and self._groups.faults.dice.random() < 0.5:
            who = wire.part(
                wire.LEAVE_GROUP, "MemberIdentity", member_id=self._member_id, group_instance_id=None, reason=None
            )
            await self._ask(connection, wire.LEAVE_GROUP, members=(who,))
        self._member_id = ""


async def commit_once(groups: GroupView, group: str) -> None:
    """Commit until acked, because an empty group without commits is forgotten, including its generation."""
    committer = Committer(groups, group)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(committer.run)
        while not committer.last_good:  # noqa: ASYNC110
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


async def watch(groups: GroupView, group: str) -> None:
    """Read the committed offsets of the group repeatedly until cancelled."""
    while True:
        try:
            async with groups.connected() as connection:
                while groups.faults.dice.random() > 0.05:
                    await _look(groups, group, connection)
                    await trio.sleep(0.1)
        except* ConnectionLost:
            pass
        await trio.sleep(0.02)


async def _look(groups: GroupView, group: str, connection: Connection) -> None:
    before = {one: groups.checker.floor(group, one) for one in groups.partitions()}
    meant = groups.meant(before, connection)
    topics: dict[str, list[int]] = {}
    for one in before:
        topics.setdefault(one.topic, []).append(one.index)
    asked = wire.part(
        wire.OFFSET_FETCH,
        "OffsetFetchRequestGroup",
        group_id=group,
        topics=tuple(
            wire.part(wire.OFFSET_FETCH, "OffsetFetchRequestTopics", name=name, partition_indexes=tuple(indexes))
            for name, indexes in topics.items()
        ),
    )
    body = wire.request(wire.OFFSET_FETCH, groups=(asked,), require_stable=False)
    answer = wire.response(wire.OFFSET_FETCH, await connection.ask(wire.OFFSET_FETCH, body, timeout=_SECONDS))
    [committed] = answer.groups
    if C(committed.error_code) is not C.none:
        return
    found = {
        (topic.name, each.partition_index): int(each.committed_offset)
        for topic in committed.topics
        for each in topic.partitions
        if C(each.error_code) is C.none
    }
    for one, floor in before.items():
        if one in meant and not one.doomed and (one.topic, one.index) in found:
            groups.checker.fetched(group, one, found[one.topic, one.index], floor=floor)
