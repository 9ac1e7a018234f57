"""Commits by gateways that do not know yet that a topic was deleted or created again."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Delete, Get
from kafscale.metadata.memory import Fault, MemoryMetadataStore
from kafscale.v1 import coordinator_pb2 as pb
from services.coordinator.offsets import Replaced
from services.coordinator.topics import LiveTopics
from tests.support.coordinator.harness import E, topic_id
from tests.support.coordinator.shell import NAMESPACE, Coordinators, coordinators, create_topic

OLD, NEW = topic_id("t"), topic_id("t again")
TOPIC = paths.topic_key(NAMESPACE, "t")


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


def request(offset: int, id_: bytes) -> pb.OffsetCommitRequest:
    commit = pb.OffsetCommitRequest(group="g", generation=-1, retention_ms=-1)
    commit.offsets.add(topic="t", topic_id=id_, partition=0, offset=offset, leader_epoch=1)
    return commit


async def commit(made: Coordinators, offset: int, id_: bytes) -> Any:
    (error,) = (await made.ask("offset_commit", request(offset, id_))).errors
    return error


async def test_a_commit_for_a_deleted_topic_does_not_replace_one_for_its_successor(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made:
        assert await commit(made, 100, OLD) == E.NONE
        await create_topic(store, "t", NEW)
        assert await commit(made, 500, NEW) == E.NONE
        assert await commit(made, 600, OLD) == E.UNKNOWN_TOPIC_OR_PARTITION
        assert await made.offsets() == {0: 500}


@pytest.fixture
def slow_first_lookup(store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that delays the next answer about the topic by a second."""
    txn = store.txn

    def begin() -> None:
        slow = [True]

        async def slow_answer(compares: Any, then: Any, otherwise: Any = ()) -> Any:
            result = await txn(compares, then, otherwise)
            if list(then) == [Get(TOPIC)] and slow:
                slow.clear()
                await trio.sleep(1)
            return result

        monkeypatch.setattr(store, "txn", slow_answer)

    return begin


async def test_an_older_slow_commit_does_not_replace_one_for_the_recreated_topic(
    store: MemoryMetadataStore, autojump_clock: object, slow_first_lookup: Callable[[], None]
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        await made.serving()
        slow_first_lookup()
        nursery.start_soon(commit, made, 600, OLD)
        await trio.sleep(0.5)
        await create_topic(store, "t", NEW)
        assert await commit(made, 500, NEW) == E.NONE
        await trio.sleep(2)
        assert await made.offsets() == {0: 500}


async def test_a_slow_topic_lookup_does_not_reorder_commits(
    store: MemoryMetadataStore, autojump_clock: object, slow_first_lookup: Callable[[], None]
) -> None:
    async with coordinators(store, "a:1") as made, trio.open_nursery() as nursery:
        await made.serving()
        slow_first_lookup()
        nursery.start_soon(commit, made, 1, OLD)
        await trio.sleep(0.5)
        assert await commit(made, 2, OLD) == E.NONE
        await trio.sleep(2)
        assert await made.offsets() == {0: 2}


@pytest.mark.parametrize("seen", [True, False])
async def test_commits_for_a_deleted_topic_are_refused_after_the_check_interval(
    store: MemoryMetadataStore, autojump_clock: object, *, seen: bool
) -> None:
    async with coordinators(store, "a:1", group_topic_check_ms=10_000) as made:
        await made.serving()
        if seen:
            assert await commit(made, 1, OLD) == E.NONE
        await store.txn([], [Delete(TOPIC)])
        await trio.sleep(10.1)
        assert await commit(made, 2, OLD) == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_is_looked_up_once_per_check_interval(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1", group_topic_check_ms=10_000) as made:
        assert await commit(made, 1, OLD) == E.NONE
        await store.txn([], [Delete(TOPIC)])
        assert await commit(made, 2, OLD) == E.NONE


async def test_a_commit_gets_a_retriable_error_if_its_topic_cannot_be_looked_up(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    async with coordinators(store, "a:1") as made:
        serving = await made.serving()
        store.faults.append(Fault(method="txn", before=Unavailable("no etcd")))
        reply = await serving.client.offset_commit(request(1, OLD), timeout=10)
        assert reply.error == E.COORDINATOR_NOT_AVAILABLE


async def test_a_commit_gets_a_retriable_error_if_its_group_was_reloaded_meanwhile(
    store: MemoryMetadataStore, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: set[Replaced] = set()
    topics = LiveTopics(store, NAMESPACE, seconds=10)
    txn = store.txn

    async def load_meanwhile(*arguments: Any) -> Any:
        loaded.add(Replaced("t", 0, NEW))
        return await txn(*arguments)

    monkeypatch.setattr(store, "txn", load_meanwhile)
    with pytest.raises(Unavailable, match="loaded again"):
        await topics.gone(request(1, OLD), lambda: frozenset(loaded))
