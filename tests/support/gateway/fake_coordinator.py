"""A coordinator that keeps groups in memory with the rules of the real one, and is controlled by tests."""

from collections.abc import Callable
from typing import TypeVar

import trio
from google.protobuf.message import Message

from kafscale.rpc.generated import GroupCoordinatorClient
from kafscale.v1 import coordinator_pb2 as pb
from services.coordinator.effects import Effects, Now, Timer
from services.coordinator.groups import Groups
from services.coordinator.limits import GroupLimits
from services.coordinator.table import State

E = pb.GroupError
M = TypeVar("M", bound=Message)
_WALL_MS = 1_700_000_000_000


class FakeCoordinator(GroupCoordinatorClient):
    """A `GroupCoordinatorClient`. Its clock moves only in `pass_time`."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        limits = limits or GroupLimits(initial_rebalance_delay_ms=0)
        self.groups = Groups("test", limits, 1)
        # The runs that own moved groups, empty if unknown.
        self.moved: dict[str, str] = {}
        # The shards that it reports in ListGroups.
        self.shards: list[int] = []
        # The error for requests about any group.
        self.refuses: E.Code = E.NONE
        self.fails: Exception | None = None
        # If set, every call waits for it.
        self.gate: trio.Event | None = None
        self.requests: list[Message] = []
        self.timeouts: list[float] = []
        self.cancelled: list[Message] = []
        self.changed = trio.Event()
        self._now_ms = 0
        self._tickets = 0
        self._replies: dict[int, Message] = {}
        self._deadlines: dict[tuple[str, Timer], int] = {}

    def pass_time(self, ms: int) -> None:
        """Advance the clock, and fire the timers that become due, in order."""
        end = self._now_ms + ms
        while self._deadlines and min(self._deadlines.values()) <= end:
            group, timer = due = min(self._deadlines, key=lambda key: (self._deadlines[key], key[0]))
            self._now_ms = max(self._now_ms, self._deadlines.pop(due))
            self._do(group, self.groups.expire(group, timer, self._now))
        self._now_ms = end

    def requests_of(self, kind: type[Message]) -> list[Message]:
        return [request for request in self.requests if isinstance(request, kind)]

    async def wait_until(self, condition: Callable[[], bool], seconds: float = 5) -> None:
        """Wait until ``condition`` is true. It is checked whenever a call arrives or ends."""
        with trio.fail_after(seconds):
            while not condition():
                await self.changed.wait()

    async def join_group(self, request: pb.JoinGroupRequest, *, timeout: float) -> pb.JoinGroupReply:
        await self._arrived(request, timeout)
        if refusal := self._refusal(request.group):
            return pb.JoinGroupReply(error=refusal[0], owner=refusal[1], generation=-1)
        ticket = self._ticket()
        effects = self.groups.join(request, ticket, self._now, fresh_id=f"id-{ticket}")
        return await self._answer(pb.JoinGroupReply, request, request.group, ticket, effects)

    async def sync_group(self, request: pb.SyncGroupRequest, *, timeout: float) -> pb.SyncGroupReply:
        await self._arrived(request, timeout)
        if refusal := self._refusal(request.group):
            return pb.SyncGroupReply(error=refusal[0], owner=refusal[1])
        ticket = self._ticket()
        effects = self.groups.sync(request, ticket, self._now)
        return await self._answer(pb.SyncGroupReply, request, request.group, ticket, effects)

    async def heartbeat(self, request: pb.HeartbeatRequest, *, timeout: float) -> pb.HeartbeatReply:
        await self._arrived(request, timeout)
        reply = pb.HeartbeatReply()
        for beat in request.heartbeats:
            if refusal := self._refusal(beat.group):
                reply.results.add(error=refusal[0], owner=refusal[1])
                continue
            ticket = self._ticket()
            effects = self.groups.heartbeat(beat, ticket, self._now)
            reply.results.append(await self._answer(pb.HeartbeatResult, beat, beat.group, ticket, effects))
        return reply

    async def leave_group(self, request: pb.LeaveGroupRequest, *, timeout: float) -> pb.LeaveGroupReply:
        await self._arrived(request, timeout)
        if refusal := self._refusal(request.group):
            return pb.LeaveGroupReply(error=refusal[0], owner=refusal[1])
        ticket = self._ticket()
        effects = self.groups.leave(request, ticket, self._now)
        return await self._answer(pb.LeaveGroupReply, request, request.group, ticket, effects)

    async def offset_commit(self, request: pb.OffsetCommitRequest, *, timeout: float) -> pb.OffsetCommitReply:
        await self._arrived(request, timeout)
        if refusal := self._refusal(request.group):
            return pb.OffsetCommitReply(error=refusal[0], owner=refusal[1])
        ticket = self._ticket()
        effects = self.groups.commit(request, ticket, self._now)
        return await self._answer(pb.OffsetCommitReply, request, request.group, ticket, effects)

    async def offset_fetch(self, request: pb.OffsetFetchRequest, *, timeout: float) -> pb.OffsetFetchReply:
        await self._arrived(request, timeout)
        reply = pb.OffsetFetchReply()
        for query in request.groups:
            if refusal := self._refusal(query.group):
                reply.groups.add(error=refusal[0], owner=refusal[1], group=query.group)
                continue
            ticket = self._ticket()
            effects = self.groups.fetch(query, ticket)
            reply.groups.append(await self._answer(pb.GroupOffsets, query, query.group, ticket, effects))
        return reply

    async def offset_delete(self, request: pb.OffsetDeleteRequest, *, timeout: float) -> pb.OffsetDeleteReply:
        await self._arrived(request, timeout)
        if refusal := self._refusal(request.group):
            return pb.OffsetDeleteReply(error=refusal[0], owner=refusal[1])
        ticket = self._ticket()
        effects = self.groups.delete_offsets(request, ticket, self._now)
        return await self._answer(pb.OffsetDeleteReply, request, request.group, ticket, effects)

    async def describe_groups(self, request: pb.DescribeGroupsRequest, *, timeout: float) -> pb.DescribeGroupsReply:
        await self._arrived(request, timeout)
        reply = pb.DescribeGroupsReply()
        for name in request.groups:
            if refusal := self._refusal(name):
                reply.groups.add(error=refusal[0], owner=refusal[1], group=name)
                continue
            ticket = self._ticket()
            effects = self.groups.describe(name, ticket)
            reply.groups.append(await self._answer(pb.DescribedGroup, request, name, ticket, effects))
        return reply

    async def list_groups(self, request: pb.ListGroupsRequest, *, timeout: float) -> pb.ListGroupsReply:
        await self._arrived(request, timeout)
        reply = self.groups.list(request)
        reply.shards.extend(self.shards)
        return reply

    async def delete_groups(self, request: pb.DeleteGroupsRequest, *, timeout: float) -> pb.DeleteGroupsReply:
        await self._arrived(request, timeout)
        reply = pb.DeleteGroupsReply()
        for name in request.groups:
            if refusal := self._refusal(name):
                reply.groups.add(error=refusal[0], owner=refusal[1], group=name)
                continue
            ticket = self._ticket()
            effects = self.groups.delete(name, ticket, self._now)
            reply.groups.append(await self._answer(pb.DeletedGroup, request, name, ticket, effects))
        return reply

    @property
    def _now(self) -> Now:
        return Now(self._now_ms, _WALL_MS + self._now_ms)

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def _note(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def _arrived(self, request: Message, timeout: float) -> None:
        self.requests.append(request)
        self.timeouts.append(timeout)
        self._note()
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails

    def _refusal(self, group: str) -> "tuple[E.Code, str] | None":
        if group in self.moved:
            return E.NOT_COORDINATOR, self.moved[group]
        return None if self.refuses == E.NONE else (self.refuses, "")

    def _do(self, group: str, effects: Effects) -> None:
        for reply in effects.replies:
            self._replies[reply.ticket] = reply.message
        for timer, deadline in effects.timers.items():
            self._deadlines.pop((group, timer), None)
            if deadline is not None:
                self._deadlines[group, timer] = deadline
        if group in self.groups and self.groups[group].state is State.DEAD:
            self.groups.forget(group)
        self._note()
        # A delay of zero ends at once.
        self.pass_time(0)

    async def _answer(self, kind: type[M], request: Message, group: str, ticket: int, effects: Effects) -> M:
        self._do(group, effects)
        try:
            while ticket not in self._replies:
                await self.changed.wait()
        except trio.Cancelled:
            self.cancelled.append(request)
            self._note()
            raise
        reply = self._replies.pop(ticket)
        assert isinstance(reply, kind)
        return reply
