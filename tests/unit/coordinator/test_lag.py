"""The lag of groups in the metrics."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from unittest.mock import create_autospec

import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.metadata.members import LiveMember
from kafscale.metadata.memory import MemoryMetadataStore, no_answer
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import Member, PartitionState
from kafscale.v1.storage_pb2 import ListOffsetsReply, ListOffsetsRequest, PartitionOffset
from services.coordinator.monitoring import families
from tests.support.coordinator.harness import topic_id
from tests.support.coordinator.shell import NAMESPACE, Instance, coordinators

SECONDS = 30


async def _log(
    store: MemoryMetadataStore, partition: int, start: int, end: int, *, of: str = "t", owner: str = ""
) -> None:
    state = PartitionState(format=1, topic_id=topic_id(of), log_start=start, high_watermark=end, owner=owner)
    key = paths.partition_state_key(NAMESPACE, "t", partition)
    await store.txn([], [Put(key, state.SerializeToString())])


def _exported(instance: Instance) -> tuple[dict[tuple[str, ...], object], object]:
    """Return the lags by group and topic, and how many are left out."""
    service = instance.service
    by_name = {
        family.name: family.read()
        for family in families(instance.deps.counters, lambda: service.current, service.settings)
    }
    lags = by_name["kafscale_coordinator_group_lag"]
    return dict(lags), by_name["kafscale_coordinator_group_lags_left_out"][()]


async def test_lag_is_the_number_of_existing_records_after_the_committed_offset(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=10) as made:
        await _log(store, 0, 0, 100)
        await _log(store, 1, 40, 60)
        await _log(store, 2, 0, 1000, of="earlier t")
        # Partition 3 has no log, and partition 4 has a committed offset of the other group only.
        await _log(store, 4, 0, 7)
        await made.commit({0: 90, 1: 10, 2: 5, 3: 5}, "slow")
        await made.commit({0: 100, 4: 0}, "fast")
        (instance,) = made.instances
        assert _exported(instance) == ({}, 0)
        await trio.sleep(SECONDS + 1)
        assert _exported(instance) == ({("slow", "t"): 10 + 20, ("fast", "t"): 7}, 0)
        await made.commit({0: 100, 1: 60, 2: 5}, "slow")
        await trio.sleep(SECONDS)
        assert _exported(instance) == ({("slow", "t"): 0, ("fast", "t"): 7}, 0)


async def test_lag_counts_records_that_are_not_in_segments_yet(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    asked: list[tuple[str, list[int]]] = []

    @asynccontextmanager
    async def connect(member: LiveMember) -> AsyncIterator[SegmentStorageClient]:
        async def list_offsets(request: ListOffsetsRequest, *, timeout: float) -> ListOffsetsReply:
            assert timeout < SECONDS
            if member.address == "storage-2:1":
                raise Unavailable("connection refused")
            asked.append((member.address, [query.partition.partition for query in request.queries]))
            assert {query.timestamp for query in request.queries} == {-1}
            return ListOffsetsReply(
                results=[
                    PartitionOffset(status=Status.OK, offset=150),
                    PartitionOffset(status=Status.NOT_OWNER, offset=-1),
                ]
            )

        storage = create_autospec(SegmentStorageClient, instance=True)
        storage.list_offsets.side_effect = list_offsets
        yield storage

    await store.txn([], [_member("run-1", "storage-1:1"), _member("run-2", "storage-2:1")])
    async with coordinators(store, "a:1", group_lag_series=10, connect=connect) as made:
        for partition, owner in enumerate(("run-1", "run-1", "run-2", "run-3")):
            await _log(store, partition, 0, 100, owner=owner)
        # The group has read further than the segments go.
        await made.commit({0: 120, 1: 90, 2: 80, 3: 70})
        await trio.sleep(SECONDS + 1)
        assert _exported(made.instances[0]) == ({("g", "t"): 30 + 10 + 20 + 30}, 0)
        assert asked == [("storage-1:1", [0, 1])]


async def test_an_owner_that_does_not_answer_is_asked_once_in_a_round(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    asked: list[str] = []

    def connect(member: LiveMember) -> AbstractAsyncContextManager[SegmentStorageClient]:
        asked.append(member.address)
        raise Unavailable("no answer")

    await store.txn([], [_member("run-1", "storage-1:1")])
    async with coordinators(store, "a:1", group_lag_series=10, connect=connect) as made:
        # More than one transaction reads.
        for partition in range(120):
            await _log(store, partition, 0, 100, owner="run-1")
        await made.commit(dict.fromkeys(range(120), 90))
        await trio.sleep(SECONDS + 1)
        assert _exported(made.instances[0]) == ({("g", "t"): 1200}, 0)
        assert asked == ["storage-1:1"]


def _member(run_id: str, address: str) -> Put:
    member = Member(format=1, run_id=run_id, service="storage", address=address)
    return Put(paths.member_key(NAMESPACE, "storage", run_id), member.SerializeToString())


async def test_the_largest_lags_are_exported_and_the_others_counted(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=2) as made:
        await _log(store, 0, 0, 100)
        for number in range(5):
            await made.commit({0: 10 * number}, f"g{number}")
        await trio.sleep(SECONDS + 1)
        assert _exported(made.instances[0]) == ({("g0", "t"): 100, ("g1", "t"): 90}, 3)


async def test_the_last_lags_stay_while_the_store_does_not_answer(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=2) as made:
        await _log(store, 0, 0, 100)
        await made.commit({0: 10})
        await trio.sleep(SECONDS + 1)
        await _log(store, 0, 0, 200)
        store.faults.append(no_answer("txn"))
        await trio.sleep(SECONDS)
        assert store.faults[0].times == 0
        assert _exported(made.instances[0]) == ({("g", "t"): 90}, 0)
        await trio.sleep(SECONDS)
        assert _exported(made.instances[0]) == ({("g", "t"): 190}, 0)


async def test_each_coordinator_exports_only_its_own_groups(autojump_clock: object) -> None:
    store = MemoryMetadataStore()
    async with coordinators(store, "a:1", group_lag_series=100) as made:
        await _log(store, 0, 0, 100)
        names = [f"g{number}" for number in range(20)]
        for name in names:
            await made.commit({0: 10}, name)
        await trio.sleep(SECONDS + 1)
        (first,) = made.instances
        second = await made.start("b:1", group_lag_series=100)

        def served(instance: Instance) -> set[tuple[str, ...]]:
            assert instance.service.current is not None
            return {(name, "t") for name in names if paths.group_shard(name) in instance.service.current.shards}

        while len(served(first)) + len(served(second)) < len(names) or not served(second):  # noqa: ASYNC110  no event for it
            await trio.sleep(0.1)
        # Before the next check.
        assert set(_exported(first)[0]) == served(first)
        await trio.sleep(SECONDS + 1)
        assert set(_exported(second)[0]) == served(second)
        assert served(first) | served(second) == {(name, "t") for name in names}
