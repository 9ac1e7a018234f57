"""Finalizing an upgrade: when the state format is raised, when that is refused, and what the cluster's status shows."""

from collections.abc import Callable, Sequence

import grpc
import pytest

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Operation, Put, TxnResult, Unchanged
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.metadata_pb2 import IntakeRegister, Member
from services.gateway.admin.state_format import finalize_upgrade
from tests.support.gateway.admin import admin_of, refused
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import NAMESPACE, Cluster, running_gateway

CODE = grpc.StatusCode
KEY = paths.cluster_key(NAMESPACE)


async def _store(*formats: int, cluster: int = 1) -> MemoryMetadataStore:
    """Return a store with a storage instance for each format, which is the highest that it knows."""
    made = Cluster()
    for number, known in enumerate(formats):
        await made.add(f"r{number}", FakeStorage(), state_format=known)
    await made.metadata.txn((), [Put(KEY, ClusterInfo("A" * 22, 7, cluster).value())])
    return made.metadata


async def _cluster(store: MemoryMetadataStore) -> ClusterInfo:
    item = await store.get(KEY)
    assert item is not None
    return ClusterInfo.read(item)


async def _finalize(store: MemoryMetadataStore, state_format: int = 0, *, check: bool = False) -> tuple[int, int]:
    request = pb.FinalizeUpgradeRequest(state_format=state_format, validate_only=check)
    reply = await finalize_upgrade(store, NAMESPACE, request)
    return reply.before, reply.state_format


async def test_the_format_is_raised_once_and_nothing_else_changes() -> None:
    store = await _store(3, 4)
    assert await _finalize(store, check=True) == (1, 3)
    assert await _cluster(store) == ClusterInfo("A" * 22, 7, 1)
    assert await _finalize(store) == (1, 3)
    assert await _cluster(store) == ClusterInfo("A" * 22, 7, 3)
    written = await store.get(KEY)
    assert await _finalize(store) == (3, 3)
    assert await store.get(KEY) == written


@pytest.mark.parametrize("check", [False, True])
async def test_storage_instances_that_do_not_know_the_format_are_named(check: bool) -> None:
    store = await _store(3, 0, 2)
    older = Member(format=1, run_id="r3", service="storage", version="0.9.1")
    await store.txn((), [Put(paths.member_key(NAMESPACE, "storage", "r3"), older.SerializeToString())])
    text = (
        r"do not know state format 3: r1:9095 \(run r1, version unknown\), r2:9095 \(run r2, version unknown\), "
        r"in process \(run r3, version 0.9.1\)\. Upgrade them first"
    )
    with refused(CODE.FAILED_PRECONDITION, text):
        await _finalize(store, check=check)
    assert (await _cluster(store)).state_format == 1


async def test_without_storage_instances_it_is_refused() -> None:
    with refused(CODE.FAILED_PRECONDITION, "No storage instance is registered"):
        await _finalize(await _store())


async def test_the_format_is_never_lowered() -> None:
    for store, wanted in ((await _store(2, cluster=2), 1), (await _store(4, cluster=4), 0)):
        before = await _cluster(store)
        with refused(CODE.FAILED_PRECONDITION, "cannot be lowered to .* There is no way back"):
            await _finalize(store, wanted)
        assert await _cluster(store) == before


async def test_a_format_that_the_gateway_does_not_know_is_refused() -> None:
    with refused(CODE.INVALID_ARGUMENT, "knows state formats up to 3, not 4"):
        await _finalize(await _store(4), 4)


class _Raced(MemoryMetadataStore):
    """Calls ``race`` before the first transaction that compares something."""

    race: Callable[[], Operation] | None = None

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        if compares and self.race is not None:
            race, self.race = self.race, None
            await super().txn((), [race()])
        return await super().txn(compares, then, otherwise)


async def test_a_change_of_the_clusters_value_meanwhile_is_kept() -> None:
    store = _Raced()
    known = Member(format=1, run_id="r", service="storage", address="r:9095", state_format=3).SerializeToString()
    await store.txn((), [Put(KEY, ClusterInfo("A" * 22, 7).value()), Put(_member("r"), known)])
    store.race = lambda: Put(KEY, ClusterInfo("A" * 22, 8).value())
    assert await _finalize(store) == (1, 3)
    assert await _cluster(store) == ClusterInfo("A" * 22, 8, 3)


def _member(run_id: str) -> str:
    return paths.member_key(NAMESPACE, "storage", run_id)


async def test_the_status_shows_the_format_and_who_has_an_intake() -> None:
    cluster = Cluster()
    for run_id, known in (("old", 0), ("without", 2), ("with", 2)):
        await cluster.add(run_id, FakeStorage(), state_format=known)
    registers = {"without": IntakeRegister(format=1), "with": IntakeRegister(format=1, intake=True)}
    for run_id, register in registers.items():
        key = paths.intake_register_key(NAMESPACE, run_id)
        await cluster.metadata.txn((), [Put(key, register.SerializeToString())])
    await cluster.metadata.txn((), [Put(KEY, ClusterInfo("A" * 22, 0).value())])
    async with running_gateway(cluster=cluster) as harness:
        admin = await admin_of(harness)
        reply = await admin.cluster_status(pb.ClusterStatusRequest())
        assert reply.state_format == 1
        shown = {each.run_id: (each.known_state_format, each.intake) for each in reply.members}
        assert {run_id: shown[run_id] for run_id in ("old", "without", "with")} == {
            "old": (1, False),
            "without": (2, False),
            "with": (2, True),
        }
        gateway = next(each for each in reply.members if each.service == "gateway")
        assert (gateway.known_state_format, gateway.HasField("intake")) == (0, False)
        with refused(CODE.FAILED_PRECONDITION, "old:9095"):
            await admin.finalize_upgrade(pb.FinalizeUpgradeRequest())
        cluster.metadata.faults.append(no_answer("read_prefix", times=100))
        blind = await admin.cluster_status(pb.ClusterStatusRequest())
        assert len(blind.members) == len(reply.members)
        assert not blind.HasField("state_format")
        assert not any(each.HasField("intake") for each in blind.members)
        with pytest.raises(Unavailable):
            await admin.finalize_upgrade(pb.FinalizeUpgradeRequest())
