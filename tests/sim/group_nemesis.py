"""Faults of coordinators and group members, with their own random generator."""

import uuid
from collections.abc import Callable, Mapping

import trio

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.v1.metadata_pb2 import Member, Topic
from tests.sim.coordinators import CoordinatorProcess
from tests.sim.faults import Faults
from tests.sim.process import Process
from tests.sim.services import NAMESPACE, Cluster
from tests.sim.view import Partition, View

OPERATIONS: dict[str, float] = {
    # For each call of a gateway to a coordinator.
    "group-call-error": 0.02,
    "group-call-lost-answer": 0.02,
    "group-call-slow": 0.04,
    # For each connection that a client gives up.
    "connection-end-unseen": 0.3,
    # For each step of a member.
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
    # Longer than clients wait for an answer.
    "gateway-long-pause": 1.0,
}

ALONE_EVENTS: dict[str, float] = {
    # A topic is deleted and recreated, and a gateway learns of it much later.
    "topic-remade-unseen": 0.7,
    # By more than the retention of offsets.
    "coordinator-wall-clock-jump": 0.5,
    # The next time that a shard with pending writes is released.
    "coordinator-unproven-giving-back": 2.0,
}
"""If only groups are simulated."""

GROUP_KINDS = (*OPERATIONS, *EVENTS)
_GRACE_SECONDS = 4.0
_GIVES_BACK_WITHIN_SECONDS = 3.0
_WALL_JUMP_SECONDS = 8 * 86400.0


class GroupNemesis:
    """Injects faults: `run` until cancelled or the calm phase."""

    def __init__(
        self,
        coordinators: Mapping[str, CoordinatorProcess],
        cluster: Cluster,
        view: View,
        faults: Faults,
        nursery: trio.Nursery,
        ttl: float,
    ) -> None:
        self._coordinators = coordinators
        self._cluster = cluster
        self._view = view
        self._faults = faults
        self._nursery = nursery
        self._ttl = ttl
        self._acts: dict[str, Callable[[CoordinatorProcess], None]] = {
            "coordinator-crash": self._crash,
            "coordinator-pause": lambda process: nursery.start_soon(self._pause, process),
            "coordinator-leave": lambda process: nursery.start_soon(self._leave, process),
            "coordinator-lease-lost": lambda process: nursery.start_soon(self._revoke, process),
            "coordinator-clock-jump": self._jump,
            "coordinator-wall-clock-jump": self._jump_wall_clock,
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
            if kind == "topic-remade-unseen":
                self._nursery.start_soon(self._remake_topic)
                continue
            if kind == "coordinator-unproven-giving-back":
                self._nursery.start_soon(self._jump_when_giving_back)
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
            # Also at the end of the run, because frozen tasks cannot be cancelled.
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

    def _jump_wall_clock(self, process: CoordinatorProcess) -> None:
        process.wall_ahead = self._faults.one_of([-_WALL_JUMP_SECONDS, _WALL_JUMP_SECONDS])

    async def _remake_topic(self) -> None:
        """Replace a topic as if storage had deleted it. One gateway does not see the new id for a while."""
        former = [one for one in self._view.partitions if one.topic == "other" and not one.doomed]
        there = [one for one in self._cluster.gateways.values() if one.serving and not one.frozen]
        if not former or not there:
            return
        behind = self._faults.one_of(there)
        self._faults.counts["topic-remade-unseen"] += 1
        self._cluster.trace.add("fault: topic-remade-unseen", by=behind.name)
        key = paths.topic_key(NAMESPACE, former[0].topic)
        found = await self._cluster.metadata.get(key)
        if found is None:
            return
        topic = Topic.FromString(found.value)
        topic.id = uuid.uuid4().bytes
        behind.behind_until = trio.current_time() + self._faults.between(3.0, 6.0)
        await self._cluster.metadata.txn([], [Put(key, topic.SerializeToString())])
        for one in former:
            self._view.add(Partition(one.topic, topic.id, one.index, one.retention))

    def _jump(self, process: CoordinatorProcess) -> None:
        """Make the lease unproven until it is renewed. It stays alive."""
        process.clock_ahead += self._faults.between(0.3, 2.0)

    async def _jump_when_giving_back(self) -> None:
        with trio.move_on_after(_GIVES_BACK_WITHIN_SECONDS):
            while not (there := [one for one in self._coordinators.values() if one.gives_back]):  # noqa: ASYNC110
                await trio.sleep(0.02)
            if not self._faults.calm:
                self._faults.counts["coordinator-unproven-giving-back"] += 1
                self._cluster.trace.add("fault: coordinator-unproven-giving-back", by=there[0].name)
                there[0].clock_ahead += self._ttl

    async def _cut(self, process: CoordinatorProcess, what: str) -> None:
        setattr(process, f"cut_from_{what}", True)
        await trio.sleep(self._faults.between(0.2, 2.5))
        setattr(process, f"cut_from_{what}", False)
