"""Consumer groups in a simulated cluster: coordinators with faults, members, readers, and the checks."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

import trio

from kafscale import paths
from kafscale.metadata.members import LiveMember
from kafscale.rpc.generated import GroupCoordinatorClient
from kafscale.v1.coordinator_pb2 import ListGroupsRequest
from tests.sim.coordinators import BOUND_SECONDS, SETTINGS, CoordinatorProcess, connection, serve_coordinator
from tests.sim.faults import Faults
from tests.sim.group_checker import GroupChecker
from tests.sim.group_members import Committer, GroupMember, GroupView, commit_once, watch
from tests.sim.group_nemesis import ALONE_EVENTS, EVENTS, OPERATIONS, GroupNemesis
from tests.sim.process import Process
from tests.sim.services import Cluster
from tests.sim.stores import LATEST_SECONDS
from tests.sim.trace import Trace
from tests.sim.view import View
from tests.support.checker import Violation

_GROUPS = 2
_SIMPLE_GROUPS_ALONE = 12
_DOWN_SECONDS = 1.5
_FORMING_SECONDS = 6.0
"""The time for sessions and rebalances after a group has a coordinator."""


class Groups:
    """The groups of a simulation. `begin` starts coordinators, `start_clients` the members once topics exist."""

    def __init__(
        self,
        seed: int,
        boost: dict[str, float],
        trace: Trace,
        defect: Callable[[str, BaseException], None],
        *,
        alone: bool,
    ) -> None:
        self._alone = alone
        events = EVENTS | ALONE_EVENTS if alone else EVENTS
        self.faults = Faults(seed, boost, operations=OPERATIONS, events=events, name="group faults")
        self._settings = replace(SETTINGS, group_offsets_retention_check_interval_ms=1000) if alone else SETTINGS
        self._simple = ["simple", *(f"simple{number}" for number in range(1, _SIMPLE_GROUPS_ALONE if alone else 1))]
        self.violations: list[Violation] = []
        self.checker = GroupChecker(self.violations)
        self._coordinators: dict[str, CoordinatorProcess] = {}
        self._clients: list[GroupMember | Committer] = []
        self._trace = trace
        self._defect = defect
        self._calm_since = 0.0

    def begin(self, cluster: Cluster, view: View, nursery: trio.Nursery) -> None:
        self._cluster = cluster
        self._view = view
        self._nursery = nursery
        cluster.connect_coordinator = self._connect
        # Clients must wait longer for an answer than a paused gateway keeps their requests.
        cluster.gateway_settings = replace(cluster.gateway_settings, coordinator_timeout_ms=1200, pause_limit_ms=400)
        for number in range(self.faults.one_of([2, 2, 3])):
            nursery.start_soon(self._keep_coordinator, f"coordinator-{number}")
        nemesis = GroupNemesis(self._coordinators, cluster, view, self.faults, nursery, SETTINGS.lease_ttl_seconds)
        nursery.start_soon(nemesis.run)

    def start_clients(self) -> None:
        groups = GroupView(self._view, self.checker, self.faults, self._nursery)
        self._clients.extend(Committer(groups, group) for group in self._simple)
        for client in self._clients:
            self._nursery.start_soon(client.run)
        for number in range(_GROUPS):
            static = self.faults.dice.random() < 0.5
            members = [
                GroupMember(groups, f"g{number}", f"g{number}m{member}", static=static)
                for member in range(self.faults.one_of([1, 2, 3]))
            ]
            self._clients.extend(members)
            self._nursery.start_soon(self._form, groups, members)
        for group in (*self._simple, *(f"g{number}" for number in range(_GROUPS))):
            self._nursery.start_soon(watch, groups, group)

    async def _form(self, groups: GroupView, members: list[GroupMember]) -> None:
        # Groups that can be forgotten are only simulated without logs.
        if self._alone:
            await commit_once(groups, members[0].group)
        for member in members:
            self._nursery.start_soon(member.run)

    def calm_down(self) -> None:
        """Stop all faults."""
        self.faults.calm = True
        # Writes in flight may still be applied.
        self._calm_since = trio.current_time() + LATEST_SECONDS
        for process in self._coordinators.values():
            process.cut_from_metadata = process.cut_from_peers = False
            process.wall_ahead = 0.0
            process.thaw()

    async def check(self) -> None:
        """Check that every shard is served in time, and that every group makes progress soon after that."""
        with trio.move_on_at(self._calm_since + BOUND_SECONDS):
            while await self._unserved():  # noqa: ASYNC110
                await trio.sleep(0.1)
        if unserved := await self._unserved():
            self.checker.complain("shards", f"{len(unserved)} shards have no coordinator or two: {unserved}")
        served = trio.current_time()
        with trio.move_on_after(_FORMING_SECONDS):
            while self._idle(served):  # noqa: ASYNC110
                await trio.sleep(0.1)
        for client in self._idle(served):
            self.checker.complain(client.name, "makes no progress although there are no faults")

    def _idle(self, since: float) -> list[GroupMember | Committer]:
        return [client for client in self._clients if client.last_good <= since]

    async def _unserved(self) -> list[int]:
        served: Counter[int] = Counter()
        for process in self._coordinators.values():
            if process.serving and process.service is not None:
                served.update((await process.service.list_groups(ListGroupsRequest())).shards)
        return [shard for shard in range(paths.GROUP_SHARDS) if served[shard] != 1]

    def _connect(self, here: Process, member: LiveMember) -> AbstractAsyncContextManager[GroupCoordinatorClient]:
        return connection(here, lambda: self._coordinators.get(member.address), self.faults, self._trace)

    def _unless_dead(self, name: str, error: BaseException) -> None:
        """Ignore errors during a crash, which cancels all tasks at once, unlike a real kill."""
        if not any(process.dead for process in self._coordinators.values() if process.name == name):
            self._defect(name, error)

    async def _keep_coordinator(self, name: str) -> None:
        """Run a coordinator process, and restart it whenever it ends."""
        address, starts = f"{name}:9098", 0
        while True:
            starts += 1
            process = CoordinatorProcess(f"{name}.{starts}", address, self._unless_dead)
            self._coordinators[address] = process
            self._nursery.start_soon(process.run, partial(serve_coordinator, self._cluster, process, self._settings))
            await process.ended.wait()
            self._trace.add("ended", by=process.name)
            await trio.sleep(0.2 if self.faults.calm else self.faults.between(0.05, _DOWN_SECONDS))
