"""Links to the live coordinators, and requests to the coordinator of a consumer group.

A group belongs to a shard, and the shard is assigned to the member with the highest weight for it. A coordinator that
does not have a group names the run that has it; the gateway then asks that run, once for each request and within the
request's timeout.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Protocol, TypeVar

import structlog
import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.members import LiveMember, Members, MembersView
from kafscale.paths import GROUP_SHARDS, group_shard
from kafscale.rpc.generated import GroupCoordinatorClient
from kafscale.v1.coordinator_pb2 import (
    GroupError,
    HeartbeatReply,
    HeartbeatRequest,
    HeartbeatResult,
    ListedGroup,
    ListGroupsReply,
    ListGroupsRequest,
    MemberHeartbeat,
)
from services.gateway import fan_out
from services.gateway.coordinators.heartbeats import heartbeat_gatherer
from services.gateway.pauses import Pauses
from services.gateway.settings import GatewaySettings

ConnectCoordinator = Callable[[LiveMember], AbstractAsyncContextManager[GroupCoordinatorClient]]
"""A context with a client of a coordinator. Entering it must not wait for the peer."""

IN_PROCESS = "this process"
"""Shown as the address of a coordinator in this process."""
_log = structlog.get_logger(__name__)
_ALL_SHARDS = list(range(GROUP_SHARDS))


class Answer(Protocol):
    """What a coordinator answers for one group."""

    @property
    def error(self) -> GroupError.Code: ...

    @property
    def owner(self) -> str: ...


Q = TypeVar("Q")
R = TypeVar("R", bound=Answer)
T = TypeVar("T")


class CoordinatorLink:
    """One run of a coordinator. `run` must be running."""

    def __init__(self, run_id: str, address: str, client: GroupCoordinatorClient, timeout: float) -> None:
        self.run_id = run_id
        self.address = address
        self.client = client
        # Whether the last call that was not cancelled was answered.
        self.answers = True
        self._timeout = timeout
        self._calls: set[trio.CancelScope] = set()
        self._gatherer = heartbeat_gatherer(self._call_heartbeat)
        self._life = trio.CancelScope()
        self._ended = False

    async def heartbeat(self, beat: MemberHeartbeat) -> HeartbeatResult:
        """Send a heartbeat, in one call with others. Raises Unavailable."""
        return await self._gatherer.ask(beat)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """A context around a call. Raises Unavailable if the coordinator has gone or goes during the call."""
        if self._ended:
            raise Unavailable("the coordinator has gone")
        with trio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                with self._noted():
                    yield
            finally:
                self._calls.discard(scope)
        if scope.cancelled_caught:
            raise Unavailable("the coordinator has gone")

    async def run(self) -> None:
        """Send heartbeats until `end`."""
        with self._life:
            await self._gatherer.run()

    def end(self) -> None:
        """End the link, because the coordinator is no longer registered. Calls in flight fail."""
        self._ended = True
        self._life.cancel()
        for scope in self._calls:
            scope.cancel()

    async def _call_heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        with self._noted():
            return await self.client.heartbeat(request, timeout=self._timeout)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except Unavailable:
            self.answers = False
            raise
        self.answers = True


class Question(fan_out.Question[str, CoordinatorLink, Q, R]):
    """About one group, with one query. There is no result if no coordinator is known, answers, or has the group."""

    __slots__ = ()


Ask = Callable[[CoordinatorLink, list[Q], float], Awaitable[Sequence[R]]]
"""Makes one call with a timeout in seconds. Returns a result for each query, in order. Raises KafscaleError."""


class Coordinators:
    """`run` must be running, and so must ``members``. No method waits for a coordinator to appear."""

    def __init__(
        self, members: Members, connect: ConnectCoordinator, settings: GatewaySettings, pauses: Pauses
    ) -> None:
        self._members = members
        self._pauses = pauses
        self._connect = connect
        self._timeout = settings.coordinator_timeout_ms / 1000
        self._view = MembersView.of(0, ())
        self._links: dict[str, CoordinatorLink] = {}
        # The runs that NOT_COORDINATOR answers named, by shard.
        self._hints: dict[int, str] = {}
        self.gone = 0

    def link(self, group: str) -> CoordinatorLink | None:
        """Return the link to the coordinator of a group, or None if none is known."""
        shard = group_shard(group)
        hint = self._hints.get(shard)
        if hint is not None and hint in self._links:
            return self._links[hint]
        assigned = self._view.shard_owner(shard)
        return None if assigned is None else self._links.get(assigned.run_id)

    def links(self) -> Iterable[CoordinatorLink]:
        """Return the link to each registered coordinator."""
        return self._links.values()

    def shards(self) -> Counter[str]:
        """Return the number of shards that are assigned to each coordinator, by its address."""
        counts = Counter({link.address: 0 for link in self._links.values()})
        for shard in range(GROUP_SHARDS):
            owner = self._view.shard_owner(shard)
            if owner is not None and owner.run_id in self._links:
                counts[owner.address or IN_PROCESS] += 1
        return counts

    async def ask(
        self, group: str, call: Callable[[CoordinatorLink, float], Awaitable[R]], *, waits: bool = False
    ) -> R | None:
        """Return the answer of the coordinator of ``group``. On None the client must get a retriable error.

        With ``waits`` the call has no timeout, because the coordinator waits for other members.
        """

        async def ask(link: CoordinatorLink, _: list[None], timeout: float) -> Sequence[R]:
            return [await call(link, timeout)]

        question: Question[None, R] = Question(group, [None])
        await self.ask_all([question], ask, waits=waits)
        return question.result

    async def ask_all(self, asked: Sequence[Question[Q, R]], ask: Ask[Q, R], *, waits: bool = False) -> None:
        """Fill in the results. Each coordinator gets one call with the queries about its groups."""
        deadline = math.inf if waits else trio.current_time() + self._timeout

        async def call(link: CoordinatorLink, queries: list[Q]) -> Sequence[R]:
            self._pauses.look()
            await trio.lowlevel.checkpoint_if_cancelled()
            with link.calling():
                return await ask(link, queries, deadline - trio.current_time())

        with trio.move_on_at(deadline):
            await fan_out.ask_each(asked, self.link, call, self._answered)
            moved = [question for question in asked if self._has_moved(question)]
            again = [question for question in moved if self.link(question.key) not in (None, question.asked)]
            await fan_out.ask_each(again, self.link, call, self._answered)
        for question in asked:
            if self._has_moved(question):
                question.results = ()

    async def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup] | None:
        """Return all groups. None if a shard is missing or duplicated, perhaps because it is moving."""
        replies: list[ListGroupsReply] = []

        async def ask(link: CoordinatorLink) -> None:
            try:
                with link.calling():
                    replies.append(await link.client.list_groups(request, timeout=self._timeout))
            except KafscaleError as error:
                _log.warning("coordinator does not list its groups", run=link.run_id, error=str(error))

        with trio.move_on_after(self._timeout):
            async with trio.open_nursery() as nursery:
                for link in list(self._links.values()):
                    nursery.start_soon(ask, link)
        answered = sorted(shard for reply in replies for shard in reply.shards)
        return [each for reply in replies for each in reply.groups] if answered == _ALL_SHARDS else None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a link to each live member until cancelled. Starts when each known member has a link."""
        async with trio.open_nursery() as nursery:
            view = self._members.view
            await self._follow(view, nursery)
            task_status.started()
            while True:
                view = await self._members.wait_change(view)
                await self._follow(view, nursery)

    async def _follow(self, view: MembersView, nursery: trio.Nursery) -> None:
        present = {member.run_id for member in view.present}
        for member in view.present:
            if member.run_id not in self._links:
                await nursery.start(self._keep_link, member)
        self._view = view
        for run_id in [run_id for run_id in self._links if run_id not in present]:
            _log.info("coordinator left", run=run_id)
            self.gone += 1
            self._links.pop(run_id).end()
        self._hints = {shard: run_id for shard, run_id in self._hints.items() if run_id in present}

    async def _keep_link(self, member: LiveMember, task_status: trio.TaskStatus[None]) -> None:
        _log.info("coordinator joined", run=member.run_id, address=member.address)
        async with self._connect(member) as client:
            link = CoordinatorLink(member.run_id, member.address or IN_PROCESS, client, self._timeout)
            self._links[member.run_id] = link
            task_status.started()
            await link.run()

    def _answered(self, question: fan_out.Question[str, CoordinatorLink, Q, R]) -> None:
        if question.asked is not None and question.result is not None and self._has_moved(question):
            self._moved(question.asked.run_id, group_shard(question.key), question.result.owner)

    @staticmethod
    def _has_moved(question: fan_out.Question[str, CoordinatorLink, Q, R]) -> bool:
        return question.result is not None and question.result.error == GroupError.NOT_COORDINATOR

    def _moved(self, run_id: str, shard: int, owner: str) -> None:
        """Note that run ``run_id`` does not have the shard, and the ``owner`` that it names."""
        if owner and owner != run_id:
            self._hints[shard] = owner
        elif self._hints.get(shard) == run_id:
            del self._hints[shard]
