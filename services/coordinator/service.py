"""The GroupCoordinator service of protos/kafscale/v1/coordinator.proto, for the shards that this run owns."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TypeVar, cast

import structlog
import trio
from google.protobuf.message import Message

from kafscale import paths
from kafscale.metadata.membership import new_run_id
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.process.leased import LeasedRuns
from kafscale.v1 import coordinator_pb2 as pb
from kafscale.v1.coordinator_pb2 import GroupError as E
from services.coordinator.effects import Effects, Now
from services.coordinator.groups import Groups
from services.coordinator.joining import refused
from services.coordinator.offsets import Replaced
from services.coordinator.run import Dependencies, Run
from services.coordinator.settings import CoordinatorSettings
from services.coordinator.tickets import NotServed
from services.coordinator.topics import LiveTopics

log = structlog.get_logger()

M = TypeVar("M", bound=Message)
_DELAYED_PART = 8  # a throttled group may use this fraction (1/8) of the queue
_DAMAGED = "Unknown"  # the Java client's name for an unknown state
_Operation = Callable[[Groups, int, Now], Effects]


class CoordinatorService:
    """Serves requests while a run holds its lease. A lost lease ends the run; the next one starts without groups."""

    def __init__(self, deps: Dependencies, *, make_run_id: Callable[[], str] = new_run_id) -> None:
        self._deps = deps
        self._topics = LiveTopics(deps.metadata, deps.namespace, seconds=deps.settings.group_topic_check_ms / 1000)
        self._runs = LeasedRuns(lambda nursery: Run(deps, make_run_id(), nursery), self._lost)

    async def run(self, stop: trio.Event, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until ``stop``, then store pending writes and release the groups."""
        await self._runs.run(stop, task_status)

    def _lost(self) -> None:
        self._deps.counters.leases_lost += 1
        log.error("lease lost, reloading all groups")

    @property
    def settings(self) -> CoordinatorSettings:
        return self._deps.settings

    @property
    def current(self) -> Run | None:
        """The current run; None during startup and between two leases."""
        return self._runs.current

    async def join_group(self, request: pb.JoinGroupRequest) -> pb.JoinGroupReply:
        def ask(groups: Groups, ticket: int, now: Now) -> Effects:
            return groups.join(request, ticket, now, fresh_id=self._deps.member_suffix())

        def refusal(_: str, error: NotServed) -> pb.JoinGroupReply:
            reply = refused(request, error.code)
            reply.owner = error.owner
            return reply

        [reply] = await self._answers([(request.group, ask)], refusal)
        return reply

    async def sync_group(self, request: pb.SyncGroupRequest) -> pb.SyncGroupReply:
        def refusal(_: str, error: NotServed) -> pb.SyncGroupReply:
            return pb.SyncGroupReply(error=error.code, owner=error.owner)

        [reply] = await self._answers([(request.group, lambda groups, *at: groups.sync(request, *at))], refusal)
        return reply

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        """Answer without waiting, because one call carries members of several groups."""
        run = self.current
        return pb.HeartbeatReply(results=[self._beat(run, beat) for beat in request.heartbeats])

    async def leave_group(self, request: pb.LeaveGroupRequest) -> pb.LeaveGroupReply:
        def refusal(_: str, error: NotServed) -> pb.LeaveGroupReply:
            return pb.LeaveGroupReply(error=error.code, owner=error.owner)

        [reply] = await self._answers([(request.group, lambda groups, *at: groups.leave(request, *at))], refusal)
        return reply

    async def offset_commit(self, request: pb.OffsetCommitRequest) -> pb.OffsetCommitReply:
        def refusal(_: str, error: NotServed) -> pb.OffsetCommitReply:
            return pb.OffsetCommitReply(error=error.code, owner=error.owner)

        gone: AbstractSet[bytes] = frozenset()
        if self._serves(request.group):
            try:
                gone = await self._topics.gone(request, lambda: self._replaced(request))
            except STORE_FAILURES:
                return pb.OffsetCommitReply(error=E.COORDINATOR_NOT_AVAILABLE)

        def ask(groups: Groups, ticket: int, now: Now) -> Effects:
            return groups.commit(request, ticket, now, gone=gone)

        [reply] = await self._answers([(request.group, ask)], refusal)
        return reply

    async def offset_fetch(self, request: pb.OffsetFetchRequest) -> pb.OffsetFetchReply:
        def ask(query: pb.GroupOffsetsQuery) -> _Operation:
            return lambda groups, ticket, _: groups.fetch(query, ticket)

        def refusal(group: str, error: NotServed) -> pb.GroupOffsets:
            return pb.GroupOffsets(group=group, error=error.code, owner=error.owner)

        requests = [(query.group, ask(query)) for query in request.groups]
        return pb.OffsetFetchReply(groups=await self._answers(requests, refusal, stores=False))

    async def offset_delete(self, request: pb.OffsetDeleteRequest) -> pb.OffsetDeleteReply:
        def ask(groups: Groups, ticket: int, now: Now) -> Effects:
            return groups.delete_offsets(request, ticket, now)

        def refusal(_: str, error: NotServed) -> pb.OffsetDeleteReply:
            return pb.OffsetDeleteReply(error=error.code, owner=error.owner)

        [reply] = await self._answers([(request.group, ask)], refusal)
        return reply

    async def describe_groups(self, request: pb.DescribeGroupsRequest) -> pb.DescribeGroupsReply:
        def ask(group: str) -> _Operation:
            return lambda groups, ticket, _: groups.describe(group, ticket)

        def refusal(group: str, error: NotServed) -> pb.DescribedGroup:
            return pb.DescribedGroup(group=group, error=error.code, owner=error.owner)

        requests = [(group, ask(group)) for group in request.groups]
        return pb.DescribeGroupsReply(groups=await self._answers(requests, refusal, stores=False))

    async def list_groups(self, request: pb.ListGroupsRequest) -> pb.ListGroupsReply:
        """List the groups of the shards named in the reply. Shards that are loading a group are omitted."""
        run = self._runs.current
        reply = pb.ListGroupsReply()
        if run is None or not run.proven:
            return reply
        for index, shard in sorted(run.shards.items()):
            if shard.loading:
                continue
            reply.shards.append(index)
            if not request.states:
                reply.groups.extend(pb.ListedGroup(group=name, state=_DAMAGED) for name in sorted(shard.damaged))
            reply.groups.extend(shard.groups.list(request).groups)
        return reply

    async def delete_groups(self, request: pb.DeleteGroupsRequest) -> pb.DeleteGroupsReply:
        def ask(group: str) -> _Operation:
            return lambda groups, *at: groups.delete(group, *at)

        def refusal(group: str, error: NotServed) -> pb.DeletedGroup:
            return pb.DeletedGroup(group=group, error=error.code, owner=error.owner)

        requests = [(group, ask(group)) for group in request.groups]
        return pb.DeleteGroupsReply(groups=await self._answers(requests, refusal))

    def _serves(self, group: str) -> bool:
        try:
            return self.current is not None and bool(self.current.serving(group))
        except NotServed:
            return False

    def _replaced(self, request: pb.OffsetCommitRequest) -> AbstractSet[Replaced]:
        run = self.current
        shard = run and run.shards.get(paths.group_shard(request.group))
        return shard.groups.replaced(request) if shard else frozenset()

    def _beat(self, run: Run | None, beat: pb.MemberHeartbeat) -> pb.HeartbeatResult:
        try:
            if run is None:
                raise NotServed(E.NOT_COORDINATOR)
            return run.serving(beat.group).beat(beat)
        except NotServed as error:
            self._deps.counters.refused[str(error)] += 1
            return pb.HeartbeatResult(error=error.code, owner=error.owner)

    async def _answers(
        self, requests: list[tuple[str, _Operation]], refusal: Callable[[str, NotServed], M], *, stores: bool = True
    ) -> list[M]:
        """Start all requests, then return one answer for each. ``stores``: whether they may write anything."""
        run = self._runs.current
        started: list[int | NotServed] = []
        try:
            for group, operation in requests:
                started.append(self._begin(run, group, operation, stores=stores))
            return [
                await self._answer(run, each, partial(refusal, group))
                for each, (group, _) in zip(started, requests, strict=True)
            ]
        finally:
            for ticket in started:
                if run is not None and isinstance(ticket, int):
                    run.tickets.close(ticket)

    def _begin(self, run: Run | None, group: str, operation: _Operation, *, stores: bool) -> int | NotServed:
        """Start a request and return its ticket, or NotServed if it cannot be served now."""
        if run is None:
            return NotServed(E.NOT_COORDINATOR)
        try:
            shard = run.serving(group)
        except NotServed as error:
            return error
        limit = self._deps.settings.group_queue_bytes
        full = self._deps.counters.queued_bytes >= limit or shard.delayed_bytes(group) >= limit // _DELAYED_PART
        if full and (stores or shard.storing(group)):
            return NotServed(E.COORDINATOR_NOT_AVAILABLE)
        ticket = run.tickets.open()
        shard.perform(group, operation(shard.groups, ticket, run.now))
        return ticket

    async def _answer(self, run: Run | None, started: int | NotServed, refusal: Callable[[NotServed], M]) -> M:
        answer = started if run is None or isinstance(started, NotServed) else await run.tickets.wait(started)
        if run is not None and not run.proven:
            # Another coordinator may own the group by now.
            answer = NotServed(E.NOT_COORDINATOR)
        if isinstance(answer, NotServed):
            self._deps.counters.refused[str(answer)] += 1
            return refusal(answer)
        return cast(M, answer)
