"""Several storage instances on the same stores, and a caller that finds owners as a gateway does."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import (
    Event,
    KeyValue,
    MetadataStore,
    Operation,
    Page,
    Snapshot,
    TxnResult,
    Unchanged,
    Watch,
)
from kafscale.metadata.members import Members, MembersView
from kafscale.metadata.topics import TopicCatalog
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import PartitionState
from kafscale.v1.storage_pb2 import PartitionAppended
from tests.support.storage.harness import NAMESPACE, Caller, World, state_key

T = TypeVar("T")
PATIENCE = 30.0


class Gate:
    """A metadata store that delays all requests and answers while it is shut, as if the process were stopped."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._open = trio.Event()
        self._open.set()
        # The next transaction that compares this key is applied and never answered.
        self.hold_answer_of = ""
        # Seconds by which answers of transactions without compares are delayed.
        self.hold_reads = 0.0

    def shut(self) -> None:
        self._open = trio.Event()

    def open(self) -> None:
        self._open.set()

    async def get(self, key: str) -> KeyValue | None:
        return await self.through(lambda: self._store.get(key))

    async def read_prefix(self, prefix: str) -> Snapshot:
        return await self.through(lambda: self._store.read_prefix(prefix))

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        return await self.through(lambda: self._store.read_page(prefix, after=after, revision=revision))

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        result = await self.through(lambda: self._store.txn(compares, then, otherwise))
        if any(compare.key == self.hold_answer_of for compare in compares):
            self.hold_answer_of = ""
            await trio.sleep_forever()
        if not compares:
            await trio.sleep(self.hold_reads)
        return result

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Watch]:
        async with self._store.watch(prefix, from_revision) as watch:
            yield _GatedWatch(self, watch)

    async def grant_lease(self, ttl_seconds: int) -> int:
        return await self.through(lambda: self._store.grant_lease(ttl_seconds))

    async def keep_alive(self, lease: int) -> int:
        return await self.through(lambda: self._store.keep_alive(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self.through(lambda: self._store.revoke_lease(lease))

    async def compact(self, revision: int) -> None:
        await self.through(lambda: self._store.compact(revision))

    async def through(self, call: Callable[[], Awaitable[T]]) -> T:
        await self._open.wait()
        result = await call()
        await self._open.wait()
        return result


@dataclass(frozen=True)
class _GatedWatch:
    gate: Gate
    watch: Watch

    async def next(self) -> tuple[Event, ...]:
        return await self.gate.through(self.watch.next)


@dataclass
class Instance:
    """One storage service in its own task."""

    address: str
    caller: Caller
    catalog: TopicCatalog
    gate: Gate
    scope: trio.CancelScope
    stopping: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)

    async def stop(self) -> None:
        self.stopping.set()
        await self.ended.wait()

    async def kill(self) -> None:
        self.scope.cancel()
        await self.ended.wait()

    def pause(self) -> None:
        """Cut the instance off from the metadata store. Requests to the instance still arrive."""
        self.gate.shut()

    def resume(self) -> None:
        self.gate.open()


class Cluster:
    """``refusals`` counts the attempts of `append` that were refused."""

    def __init__(self, world: World, nursery: trio.Nursery, members: Members, metadata: MetadataStore) -> None:
        self.world = world
        self.metadata = metadata
        self.instances: list[Instance] = []
        self.refusals = 0
        self._nursery = nursery
        self._members = members

    @property
    def view(self) -> MembersView:
        return self._members.view

    async def start(self, address: str, **changes: Any) -> Instance:
        started: Instance = await self._nursery.start(self._serve, address, changes)
        self.instances.append(started)
        return started

    async def _serve(self, address: str, changes: dict[str, Any], task_status: trio.TaskStatus[Instance]) -> None:
        gate = Gate(self.metadata)
        instance: Instance | None = None
        try:
            with trio.CancelScope() as scope:
                async with self.world.service(address=address, metadata=gate, **changes) as (caller, catalog):
                    instance = Instance(address, caller, catalog, gate, scope)
                    task_status.started(instance)
                    await instance.stopping.wait()
        except* Unavailable:
            # The service could not store everything in time.
            assert instance is not None
        finally:
            if instance is not None:
                self.instances.remove(instance)
                instance.caller.ended.set()
                instance.ended.set()

    def assigned(self, ref: PartitionRef) -> Instance:
        """Return the instance to which a partition is assigned."""
        live = self._members.view.owner(ref.topic_id, ref.partition)
        assert live is not None
        return self._by_run(live.run_id) or self.instances[0]

    async def append(self, ref: PartitionRef, records: bytes) -> tuple[Instance, PartitionAppended]:
        """Append, following hints to other owners. Return the instance that accepted the records, and its answer."""
        with trio.fail_after(PATIENCE):
            target = self.assigned(ref)
            while True:
                try:
                    answer = await target.caller.append(ref, records)
                except Unavailable:
                    answer = PartitionAppended(status=Status.UNAVAILABLE)
                if answer.status not in (Status.NOT_OWNER, Status.UNAVAILABLE, Status.REFUSED_BEHIND):
                    return target, answer
                self.refusals += 1
                hinted = self._by_run(answer.owner)
                await trio.sleep(0.05 if hinted is None else 0.01)
                target = hinted or self.assigned(ref)

    async def append_durably(self, ref: PartitionRef, records: bytes) -> PartitionAppended:
        """Retry an append until it is committed, like an idempotent producer does."""
        while True:
            instance, answer = await self.append(ref, records)
            assert answer.status == Status.OK, answer.detail
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, instance.caller.ended, nursery.cancel_scope)
                durable = await instance.caller.durable(answer, ref)
                nursery.cancel_scope.cancel()
                if durable:
                    return answer

    async def read_all(self, ref: PartitionRef) -> list[bytes | None]:
        return await self.assigned(ref).caller.read_all(ref)

    async def owner(self, ref: PartitionRef) -> str:
        """Return the run id of the owner in the partition's state."""
        return (await self.state(ref)).owner

    async def state(self, ref: PartitionRef) -> PartitionState:
        item = await self.metadata.get(state_key(ref))
        return PartitionState.FromString(item.value) if item else PartitionState()

    async def owners(self) -> dict[str, str]:
        """Return the owner of every partition that has a state, by the key of the state."""
        snapshot = await self.metadata.read_prefix(paths.partition_states_prefix(NAMESPACE))
        return {item.key: PartitionState.FromString(item.value).owner for item in snapshot.items}

    def _by_run(self, run_id: str) -> Instance | None:
        return next((instance for instance in self.instances if instance.caller.run_id == run_id), None)


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


@asynccontextmanager
async def cluster(
    world: World, *addresses: str, metadata: MetadataStore | None = None, **changes: Any
) -> AsyncIterator[Cluster]:
    """Start instances at these addresses, and kill them at the end. ``metadata`` replaces the world's store."""
    metadata = metadata or world.metadata
    members = Members(metadata, NAMESPACE, "storage")
    async with trio.open_nursery() as nursery:
        await nursery.start(members.run)
        made = Cluster(world, nursery, members, metadata)
        for address in addresses:
            await made.start(address, **changes)
        yield made
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], Awaitable[bool]], *, seconds: float = 30.0, step: float = 0.01) -> float:
    """Poll until ``condition`` is true. Return how many seconds that took."""
    began = trio.current_time()
    with trio.fail_after(seconds):
        while not await condition():  # noqa: ASYNC110  the stores have no event for it
            await trio.sleep(step)
    return trio.current_time() - began
