"""Committed offsets in the store: writes and removal."""

import pytest
import trio

from kafscale import paths
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import Fault, MemoryMetadataStore, no_answer
from kafscale.metadata.topic_values import TopicInfo
from kafscale.v1 import coordinator_pb2 as pb
from tests.support.coordinator.harness import E, topic_id
from tests.support.coordinator.shell import NAMESPACE, coordinators

HEADER = paths.GroupKeys(NAMESPACE, "g").header
SHARD = paths.group_shard("g")


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


async def test_waiting_commits_share_a_transaction(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        await made.commit({0: 0})
        counters = made.instances[0].deps.counters
        before = counters.writes["stored"]
        store.faults.append(Fault(method="txn", key=HEADER, delay=1))
        for number in range(300):
            nursery.start_soon(made.commit, {number % 150: number})
        await trio.sleep(5)
        assert counters.writes["stored"] - before <= 5
        assert {partition: offset % 150 for partition, offset in (await made.offsets()).items()} == {
            partition: partition for partition in range(150)
        }
        assert counters.queued_bytes == 0


async def test_a_commit_of_4095_offsets_is_one_transaction(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1") as made:
        await made.serving()
        counters = made.instances[0].deps.counters
        before = counters.writes["stored"]
        assert set((await made.commit({number: number for number in range(4095)})).errors) == {E.NONE}
        assert counters.writes["stored"] == before + 1


async def test_a_commit_with_more_offsets_than_fit_into_a_transaction_is_stored(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    offsets = {number: number for number in range(5000)}
    async with coordinators(store, "a:1") as made:
        with trio.fail_after(5):
            assert set((await made.commit(offsets)).errors) == {E.NONE}
        await made.instances[0].kill()
        await made.start("b:1")
        assert await made.offsets() == offsets
        reply = await made.ask("delete_groups", pb.DeleteGroupsRequest(groups=["g"]))
        assert reply.groups[0].error == E.NONE
        assert not (await store.read_prefix(paths.group_shard_prefix(NAMESPACE, SHARD))).items
        assert await made.offsets() == {}
        # The group can be created again.
        await made.commit({1: 1})
        assert await made.offsets() == {1: 1}


async def test_offsets_expire(store: MemoryMetadataStore, autojump_clock: object) -> None:
    changes = {"group_offsets_retention_minutes": 1, "group_offsets_retention_check_interval_ms": 1_000}
    async with coordinators(store, "a:1", **changes) as made:
        topic = TopicInfo("t", topic_id("t"), 1, {}, True, 0, 1)
        await store.txn([], [Put(paths.topic_key(NAMESPACE, "t"), topic.value())])
        await made.commit({0: 1})
        await trio.sleep(59)
        assert await made.offsets() == {0: 1}
        await trio.sleep(3)
        assert await made.offsets() == {}
        assert not (await store.read_prefix(paths.group_shard_prefix(NAMESPACE, SHARD))).items


async def test_offsets_of_deleted_topics_are_removed_from_the_store(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    topic = TopicInfo("t", topic_id("t"), 1, {}, True, 0, 1)
    key = paths.topic_key(NAMESPACE, "t")
    async with coordinators(store, "a:1", group_offsets_retention_check_interval_ms=1_000) as made:
        await store.txn([], [Put(key, topic.value())])
        await made.commit({0: 1})
        await trio.sleep(3)
        assert await made.offsets() == {0: 1}
        await store.txn([], [Put(key, topic.deleting().value())])
        # While the topics are unknown, no offset is removed.
        store.faults.append(no_answer("read_prefix", key=paths.topics_prefix(NAMESPACE), times=3))
        await trio.sleep(2)
        assert await made.offsets() == {0: 1}
        await trio.sleep(3)
        assert await made.offsets() == {}
        assert not (await store.read_prefix(paths.group_shard_prefix(NAMESPACE, SHARD))).items
