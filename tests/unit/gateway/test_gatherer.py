"""Fetches of many connections in one call: which ones share a call, their limits, and failures of single fetches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kafscale.errors import Unavailable
from kafscale.v1.storage_pb2 import PartitionFetch
from services.gateway.owners.link import StorageLink
from services.gateway.pauses import Pauses
from services.gateway.settings import GatewaySettings
from tests.support.gateway.fake_storage import FakeStorage
from tests.unit.gateway.storage_links import Appends, ref


class Fetches:
    """The fetches of one test and their results, by name."""

    def __init__(self, link: StorageLink, storage: FakeStorage, nursery: trio.Nursery) -> None:
        self.link, self.storage, self.nursery = link, storage, nursery
        self.results: dict[str, list[int]] = {}
        self.failed: list[str] = []

    async def ask(self, name: str, *places: tuple[int, int], max_bytes: int = 1 << 20) -> None:
        """Fetch from these partitions and offsets."""
        fetches = [
            PartitionFetch(partition=ref(partition), offset=offset, max_bytes=1 << 20, leader_epoch=-1)
            for partition, offset in places
        ]
        try:
            replies = await self.link.fetch(fetches, max_bytes)
            self.results[name] = [len(result.records) for result in replies]
        except Unavailable:
            self.failed.append(name)

    async def ask_later(self, name: str, *places: tuple[int, int], max_bytes: int = 1 << 20) -> None:
        async def ask() -> None:
            await self.ask(name, *places, max_bytes=max_bytes)

        self.nursery.start_soon(ask)
        await wait_all_tasks_blocked()

    @property
    def groups(self) -> list[list[int]]:
        """The group of each fetch, by call."""
        return [[fetch.group for fetch in request.fetches] for request in self.storage.fetches]


@asynccontextmanager
async def fetching(partitions: int = 8) -> AsyncIterator[Fetches]:
    """Create a link whose partitions each got a batch of about 1 KB with the last commit."""
    storage = FakeStorage()
    async with trio.open_nursery() as nursery:
        link = StorageLink(storage, GatewaySettings(), moved=lambda key, owner: None, pauses=Pauses(5.0, lambda: 0.0))
        nursery.start_soon(link.run)
        await wait_all_tasks_blocked()
        appends = Appends(link)
        for partition in range(partitions):
            for value in (b"old", b"x" * 1000):
                appends.put(partition, value=value)
                await wait_all_tasks_blocked()
        storage.fetch_gate = trio.Event()
        yield Fetches(link, storage, nursery)
        nursery.cancel_scope.cancel()


async def open_gate(fetches: Fetches) -> None:
    assert fetches.storage.fetch_gate is not None
    fetches.storage.fetch_gate.set()
    await wait_all_tasks_blocked()


async def test_requests_that_arrive_during_two_calls_share_the_next_call() -> None:
    async with fetching() as fetches:
        for number in range(6):
            await fetches.ask_later(f"{number}", (number, 1))
        assert fetches.groups == [[0], [0]]
        await open_gate(fetches)
        assert fetches.groups == [[0], [0], [0, 1, 2, 3]]
        assert {name: len(sizes) for name, sizes in fetches.results.items()} == {f"{number}": 1 for number in range(6)}
        assert all(sizes[0] > 1000 for sizes in fetches.results.values())


async def test_each_fetch_in_a_call_has_its_own_limit_and_first_batch() -> None:
    async with fetching() as fetches:
        for number in range(2):
            await fetches.ask_later(f"{number}", (number, 1))
        await fetches.ask_later("small", (2, 1), (3, 1), max_bytes=10)
        await fetches.ask_later("one", (4, 1), (5, 1), max_bytes=1500)
        await fetches.ask_later("both", (6, 1), (7, 1), max_bytes=5000)
        await open_gate(fetches)
        assert fetches.groups[-1] == [0, 0, 1, 1, 2, 2]
        large = {name: [size > 1000 for size in sizes] for name, sizes in fetches.results.items()}
        assert (large["small"], large["one"], large["both"]) == ([True, False], [True, False], [True, True])


async def test_fetches_before_the_last_commit_are_sent_alone_and_do_not_delay_others() -> None:
    async with fetching() as fetches:
        for number in range(4):
            await fetches.ask_later(f"old {number}", (number, 0))
        await fetches.ask_later("mixed", (4, 1), (5, 0))
        assert fetches.groups == [[0], [0], [0], [0], [0, 0]], "all are in flight at the same time"
        await fetches.ask_later("new", (6, 1))
        assert len(fetches.groups) == 6


async def test_calls_are_bounded_in_size() -> None:
    async with fetching() as fetches:
        for number in range(2):
            await fetches.ask_later(f"{number}", (number, 1))
        for number in range(5):
            await fetches.ask_later(f"large {number}", (number, 1), max_bytes=6 << 20)
        await open_gate(fetches)
        assert fetches.groups[2:] == [[0, 1], [0, 1], [0]]


async def test_a_fetch_of_a_closed_connection_does_not_affect_others() -> None:
    async with fetching() as fetches:
        scopes = [trio.CancelScope(), trio.CancelScope()]

        async def ask_within(scope: trio.CancelScope, partition: int) -> None:
            with scope:
                await fetches.ask(f"gone {partition}", (partition, 1))

        fetches.nursery.start_soon(ask_within, scopes[0], 6)
        await wait_all_tasks_blocked()
        await fetches.ask_later("0", (0, 1))
        fetches.nursery.start_soon(ask_within, scopes[1], 7)
        await wait_all_tasks_blocked()
        await fetches.ask_later("1", (1, 1))
        for scope in scopes:
            scope.cancel()
        await wait_all_tasks_blocked()
        await open_gate(fetches)
        assert set(fetches.results) == {"0", "1"}
        assert sum(map(len, fetches.groups)) == 3, "fetches cancelled before the call are not in it"


async def test_requests_fail_at_once_when_their_instance_goes_away() -> None:
    async with fetching() as fetches:
        for number in range(4):
            await fetches.ask_later(f"{number}", (number, 1))
        fetches.link.end()
        await wait_all_tasks_blocked()
        assert sorted(fetches.failed) == ["0", "1", "2", "3"]
        with pytest.raises(Unavailable):
            await fetches.link.fetch([PartitionFetch(partition=ref(0), offset=1, max_bytes=1)], 1)


async def test_a_call_that_is_too_large_is_split() -> None:
    async with fetching() as fetches:
        for number in range(5):
            await fetches.ask_later(f"{number}", (number, 1))
        fetches.storage.most_fetches = 1
        await open_gate(fetches)
        assert [len(groups) for groups in fetches.groups] == [1, 1, 3, 1, 1, 1]
        assert len(fetches.results) == 5


async def test_a_lost_partition_is_not_fetched_together_with_others() -> None:
    async with fetching() as fetches:
        fetches.storage.announce(fetches.storage.partition(ref(0)), lost=True)
        await wait_all_tasks_blocked()
        for _ in range(4):
            await fetches.ask_later("lost", (0, 2))
        assert fetches.groups == [[0]] * 4
