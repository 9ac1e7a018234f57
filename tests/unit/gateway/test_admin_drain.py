"""Draining an instance: what others see, which drains are refused, and when a drain ends."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Get, Operation, Put, Snapshot, TxnResult, Unchanged
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.metadata.ownership import Owned, OwnershipMap
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.groups_pb2 import GroupShard
from kafscale.v1.metadata_pb2 import Member, PartitionState
from services.gateway.admin import drain
from services.gateway.admin.service import AdminService
from tests.support.gateway.admin import admin_of, refused
from tests.support.gateway.fake_coordinator import FakeCoordinator
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import NAMESPACE, Cluster, running_gateway
from tests.unit.gateway.two_owners import Two, settled, two_owners

CODE = grpc.StatusCode


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_LOOK_SECONDS", 0.05)


class Draining:
    """A call that drains ``instance``, and its progress."""

    def __init__(self, admin: AdminService, instance: str) -> None:
        self._admin = admin
        self._instance = instance
        self.progress: list[tuple[int, int, bool]] = []
        self.ended: Exception | None = None
        self.over = trio.Event()
        self._changed = trio.Event()

    async def run(self) -> None:
        try:
            await self._admin.drain_instance(pb.DrainInstanceRequest(instance=self._instance), self._take)
        except (StatusError, Unavailable) as error:
            self.ended = error
        self.over.set()
        self._notify()

    async def _take(self, progress: pb.DrainProgress) -> None:
        self.progress.append((progress.total, progress.remaining, progress.done))
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_until(self, seen: Callable[[], bool]) -> None:
        with trio.fail_after(5):
            while not seen():
                await self._changed.wait()

    async def wait_over(self) -> None:
        with trio.fail_after(5):
            await self.over.wait()


@asynccontextmanager
async def _draining(admin: AdminService, instance: str) -> AsyncIterator[Draining]:
    call = Draining(admin, instance)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.run)
        yield call
        nursery.cancel_scope.cancel()


async def _member(two: Two, run_id: str) -> Member:
    found = await two.harness.metadata.get(paths.member_key(NAMESPACE, "storage", run_id))
    assert found is not None
    return Member.FromString(found.value)


async def test_a_drain_ends_when_other_instances_own_everything() -> None:
    async with two_owners(3) as two:
        admin = await admin_of(two.harness)
        async with _draining(admin, "a:9095") as call:
            await call.wait_until(lambda: call.progress == [(2, 2, False)])
            member = await _member(two, "a")
            assert (member.leaving, member.draining) == (True, True)
            assigned = two.harness.storages.view.owner(two.topic.id, 0)
            assert assigned is not None
            assert assigned.run_id == "b"
            members = (await admin.cluster_status(pb.ClusterStatusRequest())).members
            assert [each.run_id for each in members if each.draining] == ["a"]
            await two.own("b", 2, 0)
            await call.wait_until(lambda: len(call.progress) == 2)
            await two.own("b", 2, 2)
            await call.wait_over()
        assert call.ended is None
        assert call.progress == [(2, 2, False), (2, 1, False), (2, 0, True)]
        async with _draining(admin, "a") as again:
            await again.wait_over()
        assert (again.progress, again.ended) == ([(0, 0, True)], None)


async def test_a_drain_waits_for_take_overs_that_began_before_it() -> None:
    async with two_owners(1) as two:
        admin = await admin_of(two.harness)
        key = paths.partition_state_key(NAMESPACE, "t", 0)

        async def taken(run_id: str) -> None:
            state = PartitionState(format=1, topic_id=two.topic.id, epoch=2, owner=run_id)
            await two.harness.metadata.txn((), [Put(key, state.SerializeToString())])

        await two.own("b", 1)
        await taken("a")
        async with _draining(admin, "a") as call:
            await call.wait_until(lambda: call.progress == [(1, 1, False)])
            await taken("b")
            await call.wait_over()
        assert (call.progress[-1], call.ended) == ((1, 0, True), None)


async def test_many_pending_take_overs_are_read_in_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_owners(1) as two:
        admin, metadata = await admin_of(two.harness), two.harness.metadata
        keys = [paths.partition_state_key(NAMESPACE, "t", number) for number in range(300)]
        reads: list[int] = []
        txn = type(metadata).txn

        async def taken(keys: list[str], run_id: str) -> None:
            value = PartitionState(format=1, topic_id=two.topic.id, epoch=2, owner=run_id).SerializeToString()
            await metadata.txn((), [Put(key, value) for key in keys])

        async def counted(
            store: MemoryMetadataStore,
            compares: Sequence[Unchanged],
            then: Sequence[Operation],
            otherwise: Sequence[Operation] = (),
        ) -> TxnResult:
            if not compares and len(then) > 2 and all(isinstance(each, Get) for each in then):
                reads.append(len(then))
            return await txn(store, compares, then, otherwise)

        await two.own("b", 1)
        await taken(keys, "a")
        monkeypatch.setattr(type(metadata), "txn", counted)
        async with _draining(admin, "a") as call:
            await call.wait_until(lambda: call.progress == [(300, 300, False)])
            await taken(keys[10:], "b")
            await call.wait_until(lambda: call.progress[-1] == (300, 10, False))
            await taken(keys, "b")
            await call.wait_over()
        assert (call.progress[-1], call.ended) == ((300, 0, True), None)
        assert reads[:3] == [128, 128, 44]


async def test_a_waiting_drain_checks_partitions_only_after_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_owners(3) as two:
        admin, metadata = await admin_of(two.harness), two.harness.metadata
        lookups, listed = 0, 0
        get, read_prefix = OwnershipMap.get, type(metadata).read_prefix

        def counted(ownership: OwnershipMap, topic_id: bytes, partition: int) -> Owned | None:
            nonlocal lookups
            lookups += 1
            return get(ownership, topic_id, partition)

        async def read(store: MemoryMetadataStore, prefix: str) -> Snapshot:
            nonlocal listed
            listed += prefix == paths.partition_states_prefix(NAMESPACE)
            return await read_prefix(store, prefix)

        monkeypatch.setattr(OwnershipMap, "get", counted)
        monkeypatch.setattr(type(metadata), "read_prefix", read)
        key = paths.partition_state_key(NAMESPACE, "t", 0)
        state = PartitionState(format=1, topic_id=two.topic.id, epoch=2, owner="a")
        await metadata.txn((), [Put(key, state.SerializeToString())])
        async with _draining(admin, "a") as call:
            await call.wait_until(lambda: call.progress == [(2, 2, False)])
            lookups = 0
            await trio.sleep(0.3)
            assert (lookups, listed) == (0, 0)
            await two.own("b", 2, 0)
            await two.own("b", 2, 2)
            await call.wait_until(lambda: call.progress[-1] == (2, 1, False))
            await trio.sleep(0.3)
            assert listed == 1
            state.owner = "b"
            await metadata.txn((), [Put(key, state.SerializeToString())])
            await call.wait_over()
        assert (call.progress[-1], listed) == ((2, 0, True), 2)


async def test_drains_of_unknown_or_unsuitable_instances_are_refused() -> None:
    async with two_owners(1) as two:
        await two.harness.cluster.add("c", FakeStorage(), leaving=True)
        await settled()
        admin = await admin_of(two.harness)
        gateway = two.harness.gateways.view.present[0]
        for instance, code, match in (
            ("", CODE.NOT_FOUND, "No instance"),
            ("nowhere:1", CODE.NOT_FOUND, "No instance has the address or run id 'nowhere:1'"),
            (gateway.run_id, CODE.FAILED_PRECONDITION, "The gateway .* owns nothing that could be moved"),
            ("c", CODE.FAILED_PRECONDITION, "The storage instance c:9095 is already stopping"),
        ):
            with refused(code, match):
                await admin.drain_instance(pb.DrainInstanceRequest(instance=instance), trio.sleep)  # type: ignore[arg-type]
        with refused(CODE.FAILED_PRECONDITION, "The storage instance a:9095 is not being drained"):
            await admin.cancel_drain(pb.CancelDrainRequest(instance="a"))
        # A stopping instance is not assigned anything again.
        with refused(CODE.FAILED_PRECONDITION, "is not being drained"):
            await admin.cancel_drain(pb.CancelDrainRequest(instance="c"))
        assert (await _member(two, "c")).leaving


async def test_concurrent_drains_leave_one_instance() -> None:
    async with two_owners(2) as two:
        admin = await admin_of(two.harness)
        async with (
            _draining(admin, "a") as one,
            _draining(admin, "b") as other,
        ):
            for call in (one, other):
                await call.wait_until(lambda call=call: bool(call.progress or call.ended))  # type: ignore[misc]
        (failed,) = [call.ended for call in (one, other) if call.ended is not None]
        assert isinstance(failed, StatusError)
        assert failed.code is CODE.FAILED_PRECONDITION
        assert "is the only one that is not drained or stopping" in str(failed)
        assert sum([(await _member(two, run)).leaving for run in "ab"]) == 1


async def test_a_cancelled_drain_restores_the_assignment() -> None:
    async with two_owners(2) as two:
        admin = await admin_of(two.harness)
        async with _draining(admin, "a") as call:
            await call.wait_until(lambda: bool(call.progress))
            reply = await admin.cancel_drain(pb.CancelDrainRequest(instance="a:9095"))
            assert (reply.service, reply.address, reply.run_id) == ("storage", "a:9095", "a")
            await call.wait_over()
        assert isinstance(call.ended, StatusError)
        assert (call.ended.code, str(call.ended)) == (
            CODE.ABORTED,
            "The drain was cancelled. The storage instance a:9095 is assigned work again.",
        )
        member = await _member(two, "a")
        assert (member.leaving, member.draining) == (False, False)
        assert len(two.harness.storages.view.placed) == 2


async def test_a_restarted_instance_is_not_regarded_as_drained() -> None:
    async with two_owners(1) as two:
        admin = await admin_of(two.harness)
        async with _draining(admin, "a") as call:
            await call.wait_until(lambda: bool(call.progress))
            await two.harness.cluster.remove("a")
            await settled()
            assert not call.over.is_set()
            await two.harness.cluster.add("a2", FakeStorage(), address="a:9095")
            await call.wait_over()
        assert isinstance(call.ended, StatusError)
        assert (call.ended.code, "restarted or lost its lease" in str(call.ended)) == (CODE.ABORTED, True)


async def test_a_drained_coordinator_hands_over_its_shards() -> None:
    cluster = Cluster()
    await cluster.add("storage", FakeStorage())
    await cluster.add_coordinator("c", FakeCoordinator())
    await cluster.add_coordinator("d", FakeCoordinator())

    async def claim(run_id: str, *shards: int) -> None:
        puts = [
            Put(paths.group_shard_key(NAMESPACE, shard), GroupShard(format=1, owner=run_id).SerializeToString())
            for shard in shards
        ]
        await cluster.metadata.txn((), puts)

    async with running_gateway(cluster=cluster) as harness:
        admin = await admin_of(harness)
        assigned = {shard: harness.parts.coordinators.view.shard_owner(shard) for shard in range(paths.GROUP_SHARDS)}
        in_transit, *own = [shard for shard, to in assigned.items() if to is not None and to.run_id == "c"]
        await claim("c", *own)
        await claim("d", *assigned.keys() - {in_transit, *own})
        most = len(own) + 1
        async with _draining(admin, "c:9096") as call:
            await call.wait_until(lambda: call.progress == [(most, most, False)])
            # A released shard has not been taken over yet.
            await claim("", own[0])
            await claim("d", *own[1:])
            await call.wait_until(lambda: len(call.progress) == 2)
            await claim("c", in_transit)
            await claim("d", own[0])
            await call.wait_until(lambda: len(call.progress) == 3)
            await claim("d", in_transit)
            await call.wait_over()
        assert call.ended is None
        assert call.progress == [(most, most, False), (most, 2, False), (most, 1, False), (most, 0, True)]
        with refused(CODE.FAILED_PRECONDITION, "The storage instance storage:9095 is the only one"):
            await admin.drain_instance(pb.DrainInstanceRequest(instance="storage"), trio.sleep)  # type: ignore[arg-type]


async def test_a_stopping_gateway_ends_the_call_but_not_the_drain() -> None:
    async with two_owners(1) as two:
        admin = await admin_of(two.harness)
        async with _draining(admin, "a") as call:
            await call.wait_until(lambda: bool(call.progress))
            two.harness.stop.set()
            await call.wait_over()
        assert isinstance(call.ended, StatusError)
        assert (call.ended.code, str(call.ended)) == (CODE.UNAVAILABLE, "the gateway is stopping; use another one")
        assert (await _member(two, "a")).draining


async def test_a_drain_fails_if_the_metadata_store_does_not_answer() -> None:
    async with two_owners(1) as two:
        admin = await admin_of(two.harness)
        two.harness.metadata.faults.append(no_answer("txn", key=paths.member_key(NAMESPACE, "storage", "a")))
        async with _draining(admin, "a") as call:
            await call.wait_over()
        assert isinstance(call.ended, Unavailable)
        assert not (await _member(two, "a")).draining
