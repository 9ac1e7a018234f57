"""Several coordinators on one store, and members that find them as a gateway does."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import MetadataStore, Put
from kafscale.metadata.members import LiveMember, Members
from kafscale.metadata.membership import LeaseClock
from kafscale.metadata.topic_values import TopicInfo
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import GroupCoordinatorClient, SegmentStorageClient
from kafscale.rpc.services import bind_coordinator
from kafscale.v1 import coordinator_pb2 as pb
from services.coordinator.run import Dependencies
from services.coordinator.service import CoordinatorService
from services.coordinator.settings import CoordinatorSettings
from tests.support.coordinator.harness import WALL, E, subscription, topic_id
from tests.support.storage.cluster import Gate

NAMESPACE = "test"
TIMEOUT = 400.0
PATIENCE = 60.0
LEASE_SECONDS = 10
RETRIABLE = (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE)


@dataclass(eq=False)
class Clocks:
    """Trio's clock plus ``ahead`` seconds of suspension. The wall clock is ``wall_ahead`` seconds further ahead."""

    ahead: float = 0.0
    wall_ahead: float = 0.0

    def boot(self) -> float:
        return trio.current_time() + self.ahead

    def wall(self) -> float:
        return self.boot() + self.wall_ahead


@dataclass(eq=False)
class Instance:
    """One coordinator in its own task. A shut ``gate`` acts as if its process were suspended."""

    address: str
    service: CoordinatorService
    client: GroupCoordinatorClient
    deps: Dependencies
    gate: Gate
    scope: trio.CancelScope
    clock: Clocks
    stopping: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)

    async def stop(self) -> None:
        self.stopping.set()
        await self.ended.wait()

    async def kill(self) -> None:
        self.scope.cancel()
        await self.ended.wait()

    @property
    def run_id(self) -> str:
        assert self.service.current is not None
        return self.service.current.run_id


class Coordinators:
    """``refusals`` has the retriable errors that `ask` got."""

    def __init__(self, metadata: MetadataStore, nursery: trio.Nursery, members: Members) -> None:
        self.metadata = metadata
        self.instances: list[Instance] = []
        self.refusals: list[int] = []
        self._nursery = nursery
        self._members = members
        self._suffixes = count(1)

    async def start(self, address: str, **settings: Any) -> Instance:
        started: Instance = await self._nursery.start(self._serve, address, settings)
        return started

    def assigned(self, group: str) -> Instance:
        """Return the instance that the group is assigned to, or any instance if that is not known."""
        live = self._members.view.shard_owner(paths.group_shard(group))
        return self._by_run(live.run_id if live else "") or self.instances[0]

    async def ask(self, method: str, request: Any, group: str = "g") -> Any:
        """Send a request until the answer is not retriable, following hints. Return that answer."""
        hint = ""
        with trio.fail_after(TIMEOUT + PATIENCE):
            while True:
                if self.instances:
                    target = self._by_run(hint) or self.assigned(group)
                    try:
                        reply = await getattr(target.client, method)(request, timeout=TIMEOUT)
                    except Unavailable:
                        hint = ""
                    else:
                        one = next(iter(getattr(reply, _LISTS.get(method, ""), ())), reply)
                        if one.error not in RETRIABLE:
                            return reply
                        self.refusals.append(one.error)
                        hint = one.owner
                await trio.sleep(0.1)

    async def serving(self, group: str = "g") -> Instance:
        """Wait until the group is served by the instance that it is assigned to."""
        await self.offsets(group)
        return self.assigned(group)

    async def commit(
        self, offsets: Mapping[int, int], group: str = "g", member_id: str = "", generation: int = -1
    ) -> pb.OffsetCommitReply:
        request = pb.OffsetCommitRequest(group=group, member_id=member_id, generation=generation, retention_ms=-1)
        for partition, offset in offsets.items():
            request.offsets.add(topic="t", topic_id=topic_id("t"), partition=partition, offset=offset, leader_epoch=1)
        reply: pb.OffsetCommitReply = await self.ask("offset_commit", request, group)
        return reply

    async def offsets(self, group: str = "g") -> dict[int, int]:
        request = pb.OffsetFetchRequest(groups=[pb.GroupOffsetsQuery(group=group, all=True)])
        reply: pb.OffsetFetchReply = await self.ask("offset_fetch", request, group)
        return {each.partition: each.offset for each in reply.groups[0].offsets}

    def _by_run(self, run_id: str) -> Instance | None:
        return next((i for i in self.instances if i.service.current and i.run_id == run_id), None)

    async def _serve(self, address: str, changes: dict[str, Any], task_status: trio.TaskStatus[Instance]) -> None:
        gate, clock = Gate(self.metadata), Clocks(wall_ahead=changes.pop("wall_ahead", 0))
        members, storages = (Members(gate, NAMESPACE, service) for service in ("coordinator", "storage"))
        connect = changes.pop("connect", _no_storage)
        settings = {
            "lease_ttl_seconds": LEASE_SECONDS,
            "group_initial_rebalance_delay_ms": 1_000,
            "group_lag_series": 0,
        }
        deps = Dependencies(
            settings=CoordinatorSettings(**settings | changes),
            namespace=NAMESPACE,
            metadata=gate,
            members=members,
            storages=storages,
            connect=connect,
            now_ms=lambda: WALL + int((trio.current_time() + clock.wall_ahead) * 1000),
            address=address,
            lease_clock=LeaseClock(clock.boot, clock.wall),
            boot_clock=clock.boot,
            member_suffix=lambda: f"{address}-{next(self._suffixes)}",
        )
        service = CoordinatorService(deps)
        with trio.CancelScope() as scope:
            instance = Instance(
                address, service, GroupCoordinatorClient(Direct(bind_coordinator(service))), deps, gate, scope, clock
            )
            async with trio.open_nursery() as nursery:
                await nursery.start(members.run)
                await nursery.start(storages.run)
                await nursery.start(service.run, instance.stopping)
                self.instances.append(instance)
                task_status.started(instance)
                await instance.stopping.wait()
                while service.current is not None:  # noqa: ASYNC110  it has no event for it
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
        self.instances.remove(instance)
        instance.ended.set()


def _no_storage(member: LiveMember) -> AbstractAsyncContextManager[SegmentStorageClient]:
    raise Unavailable(f"there is no storage at {member.address}")


_LISTS = {
    "heartbeat": "results",
    "offset_fetch": "groups",
    "describe_groups": "groups",
    "delete_groups": "groups",
}


class Consumer:
    """A member that joins, syncs and sends heartbeats like Kafka's clients. ``joins`` are its generations."""

    def __init__(self, coordinators: Coordinators, name: str, group: str = "g", instance: str | None = None) -> None:
        self.coordinators = coordinators
        self.name = name
        self.group = group
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.assignment = b""
        self.joins: list[int] = []
        self.errors: list[int] = []

    async def join(self, **changes: Any) -> None:
        """Join until it has an assignment, which the leader makes from the members' numbers."""
        while True:
            values: dict[str, Any] = {
                "group": self.group,
                "member_id": self.member_id,
                "instance_id": self.instance,
                "protocol_type": "consumer",
                "protocols": [pb.GroupProtocol(name="range", metadata=subscription("t"))],
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 60_000,
                "client_id": self.name,
                "client_host": "/127.0.0.1",
                "member_id_required": True,
                **changes,
            }
            joined: pb.JoinGroupReply = await self.coordinators.ask(
                "join_group", pb.JoinGroupRequest(**values), self.group
            )
            self.member_id = joined.member_id
            if joined.error == E.MEMBER_ID_REQUIRED:
                continue
            if joined.error != E.NONE:
                self.errors.append(joined.error)
                if joined.error == E.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                await trio.sleep(0.1)
                continue
            self.generation = joined.generation
            self.joins.append(joined.generation)
            sync = pb.SyncGroupRequest(group=self.group, member_id=self.member_id, generation=self.generation)
            for number, member in enumerate(joined.members):
                sync.assignments.add(member_id=member.member_id, assignment=b"p%d" % number)
            synced: pb.SyncGroupReply = await self.coordinators.ask("sync_group", sync, self.group)
            if synced.error == E.NONE:
                self.assignment = synced.assignment
                return
            self.errors.append(synced.error)

    async def beat(self) -> "E.Code":
        beat = pb.MemberHeartbeat(group=self.group, member_id=self.member_id, generation=self.generation)
        reply: pb.HeartbeatReply = await self.coordinators.ask(
            "heartbeat", pb.HeartbeatRequest(heartbeats=[beat]), self.group
        )
        return reply.results[0].error

    async def live(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Join, send a heartbeat every three seconds, and rejoin on errors."""
        await self.join()
        task_status.started()
        while True:
            await trio.sleep(3)
            error = await self.beat()
            if error != E.NONE:
                self.errors.append(error)
                if error != E.REBALANCE_IN_PROGRESS:
                    self.member_id = ""
                await self.join()


async def create_topic(metadata: MetadataStore, name: str, id_: bytes) -> None:
    """Create a topic, or replace the topic with that name."""
    topic = TopicInfo(name, id_, 1, {}, live=True, epoch_floor=0, created_ms=1)
    await metadata.txn([], [Put(paths.topic_key(NAMESPACE, name), topic.value())])


@asynccontextmanager
async def coordinators(metadata: MetadataStore, *addresses: str, **settings: Any) -> AsyncIterator[Coordinators]:
    """Start instances at these addresses, create the topic ``t``, and kill the instances at the end."""
    if await metadata.get(paths.topic_key(NAMESPACE, "t")) is None:
        await create_topic(metadata, "t", topic_id("t"))
    members = Members(metadata, NAMESPACE, "coordinator")
    async with trio.open_nursery() as nursery:
        await nursery.start(members.run)
        made = Coordinators(metadata, nursery, members)
        for address in addresses:
            await made.start(address, **settings)
        yield made
        nursery.cancel_scope.cancel()


async def stable(made: Coordinators, nursery: trio.Nursery, size: int = 2, group: str = "g") -> list[Consumer]:
    """Start members that live in the nursery, in one generation."""
    members = [Consumer(made, f"c{number}", group) for number in range(size)]
    async with trio.open_nursery() as joining:
        for member in members:
            joining.start_soon(nursery.start, member.live)
    assert len({member.generation for member in members}) == 1
    return members
