"""What befalls coordinators and members of groups, by a seed's own dice."""

from collections.abc import Callable, Mapping

import trio

from kafscale import paths
from kafscale.v1.metadata_pb2 import Member
from tests.sim.coordinators import CoordinatorProcess
from tests.sim.faults import Faults
from tests.sim.process import Process
from tests.sim.services import NAMESPACE, Cluster

OPERATIONS: dict[str, float] = {
    # Of each call of a gateway to a coordinator.
    "group-call-error": 0.02,
    "group-call-lost-answer": 0.02,
    "group-call-slow": 0.04,
    # Of each connection that a client gives up.
    "connection-end-unseen": 0.3,
    # Of each step of a member.
    "member-joins-again": 0.01,
    "member-leaves": 0.2,
}

EVENTS: dict[str, float] = {
    "coordinator-crash": 2.0,
    "coordinator-pause": 3.0,
    "coordinator-leave": 2.0,
    "coordinator-lease-lost": 1.0,
    "coordinator-clock-jump": 1.0,
    "coordinator-cut-from-metadata": 1.0,
    "coordinator-cut-from-peers": 0.5,
    # For longer than clients wait for an answer.
    "gateway-long-pause": 1.0,
}

GROUP_KINDS = (*OPERATIONS, *EVENTS)
_GRACE_SECONDS = 4.0


class GroupNemesis:
    """`run` until cancelled, or there is peace."""

    def __init__(
        self,
        coordinators: Mapping[str, CoordinatorProcess],
        cluster: Cluster,
        faults: Faults,
        nursery: trio.Nursery,
        ttl: float,
    ) -> None:
        self._coordinators = coordinators
        self._cluster = cluster
        self._faults = faults
        self._nursery = nursery
        self._ttl = ttl
        self._acts: dict[str, Callable[[CoordinatorProcess], None]] = {
            "coordinator-crash": self._crash,
            "coordinator-pause": lambda process: nursery.start_soon(self._pause, process),
            "coordinator-leave": lambda process: nursery.start_soon(self._leave, process),
            "coordinator-lease-lost": lambda process: nursery.start_soon(self._revoke, process),
            "coordinator-clock-jump": self._jump,
            "coordinator-cut-from-metadata": lambda process: nursery.start_soon(self._cut, process, "metadata"),
            "coordinator-cut-from-peers": lambda process: nursery.start_soon(self._cut, process, "peers"),
        }

    async def run(self) -> None:
        while True:
            await trio.sleep(self._faults.dice.expovariate(1 / self._faults.seconds_between_events))
            if self._faults.calm:
                return
            kind = self._faults.event()
            if kind == "gateway-long-pause":
                self._pause_gateway()
                continue
            there = [one for one in self._coordinators.values() if one.serving and not one.frozen]
            if kind is not None and there:
                process = self._faults.one_of(there)
                self._faults.counts[kind] += 1
                self._cluster.trace.add(f"fault: {kind}", by=process.name)
                self._acts[kind](process)

    @staticmethod
    def _crash(process: CoordinatorProcess) -> None:
        process.crash()

    async def _pause(self, process: CoordinatorProcess) -> None:
        short = self._faults.dice.random() < 0.4
        seconds = self._faults.between(0.05, 0.6) if short else self._ttl + self._faults.between(-0.3, 1.5)
        await self._stop_for(process, seconds)

    def _pause_gateway(self) -> None:
        there = [one for one in self._cluster.gateways.values() if one.serving and not one.frozen]
        if there:
            process = self._faults.one_of(there)
            self._faults.counts["gateway-long-pause"] += 1
            self._cluster.trace.add("fault: gateway-long-pause", by=process.name)
            self._nursery.start_soon(self._stop_for, process, self._faults.between(0.9, 2.5))

    @staticmethod
    async def _stop_for(process: Process, seconds: float) -> None:
        process.freeze()
        try:
            await trio.sleep(seconds)
        finally:
            # At the end of the run, too: frozen tasks cannot be cancelled.
            process.thaw()

    async def _leave(self, process: CoordinatorProcess) -> None:
        process.stop.set()
        with trio.move_on_after(_GRACE_SECONDS):
            await process.ended.wait()
        process.crash()

    async def _revoke(self, process: CoordinatorProcess) -> None:
        store = self._cluster.metadata
        for item in (await store.read_prefix(paths.members_prefix(NAMESPACE, "coordinator"))).items:
            if Member.FromString(item.value).address == process.address:
                process.clock_ahead += self._ttl
                await store.revoke_lease(item.lease)

    def _jump(self, process: CoordinatorProcess) -> None:
        """The lease cannot be proven until it is renewed, and lives on."""
        process.clock_ahead += self._faults.between(0.3, 2.0)

    async def _cut(self, process: CoordinatorProcess, what: str) -> None:
        setattr(process, f"cut_from_{what}", True)
        await trio.sleep(self._faults.between(0.2, 2.5))
        setattr(process, f"cut_from_{what}", False)
