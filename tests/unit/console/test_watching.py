"""Pages that watch a cluster: each sees the current state, however slow it is."""

import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from kafscale.errors import Unavailable
from kafscale.v1 import admin_pb2 as pb
from services.console.watching import Watch, Watches

_KIND = pb.MemberChange


class Cluster:
    """Stands for the gateways: each stream that is opened gets the changes that are put in, until `fail`."""

    def __init__(self) -> None:
        self.opened = 0
        self.tokens: list[str] = []
        self.listed: list[pb.PartitionStatus] = []
        self._put, self._taken = trio.open_memory_channel[pb.ClusterChange](5000)

    async def read(self, *_: object) -> pb.ListPartitionsReply:
        await trio.lowlevel.checkpoint()
        return pb.ListPartitionsReply(partitions=self.listed)

    @asynccontextmanager
    async def stream(self, _: object, __: object, token: str) -> AsyncIterator[Any]:
        self.opened += 1
        self.tokens.append(token)
        self._put, self._taken = trio.open_memory_channel[pb.ClusterChange](5000)
        yield self

    async def receive(self) -> pb.ClusterChange:
        try:
            return await self._taken.receive()
        except trio.EndOfChannel:
            raise Unavailable("the gateway is gone") from None

    def fail(self) -> None:
        self._put.close()

    def member(
        self, kind: "pb.MemberChange.Kind", run: str, health: "pb.ClusterMember.Health" = pb.ClusterMember.UNKNOWN
    ) -> None:
        member = pb.ClusterMember(run_id=run, service="storage", health=health)
        self._put.send_nowait(pb.ClusterChange(member=pb.MemberChange(kind=kind, member=member)))

    def owner(self, partition: int, run: str) -> None:
        self._put.send_nowait(pb.ClusterChange(owner=pb.OwnerChange(topic="t", partition=partition, owner_run=run)))


class Page:
    """What a page that applies all messages knows."""

    def __init__(self) -> None:
        self.owners: dict[int, str] = {}
        self.members: dict[str, str] = {}
        self.faults: list[str] = []
        self.too_slow = 0

    def take(self, message: dict[str, Any]) -> None:
        self.too_slow += message.get("too_slow", False)
        if message.get("fault"):
            self.faults.append(message["fault"])
        if "members" in message:
            self.members = {each["run_id"]: each["health"] for each in message["members"]}
            self.owners.clear()
        self.owners |= {each["partition"]: each["owner_run"] for each in message.get("owners", [])}
        if "member" in message.get("change", {}):
            member, kind = message["change"]["member"]["member"], message["change"]["member"]["kind"]
            self.members.pop(member["run_id"], None)
            if kind != "LEFT":
                self.members[member["run_id"]] = member["health"]
        if "owner" in message.get("change", {}):
            owner = message["change"]["owner"]
            self.owners[owner["partition"]] = owner["owner_run"]
            if not owner["owner_run"]:
                del self.owners[owner["partition"]]

    async def take_all(self, watch: Watch, page: Any) -> None:
        with trio.move_on_after(1):
            while True:
                self.take(json.loads(await watch.next_of(page)))


async def test_a_page_sees_what_there_is_and_every_change(autojump_clock: object) -> None:
    cluster, seen, later = Cluster(), Page(), Page()
    async with trio.open_nursery() as nursery:
        watches = Watches(cluster, nursery)  # type: ignore[arg-type]
        async with watches.page("token") as (watch, page):
            await trio.sleep(1)
            cluster.listed = [pb.PartitionStatus(topic="t", partition=at, owner_run="a") for at in (0, 2)]
            cluster.member(_KIND.PRESENT, "a", pb.ClusterMember.READY)
            cluster.owner(2, "b")
            cluster.owner(1, "a")
            cluster.member(_KIND.JOINED, "b")
            cluster.member(_KIND.HEALTH, "b", pb.ClusterMember.READY)
            cluster.member(_KIND.CHANGED, "b")
            cluster.owner(1, "b")
            cluster.member(_KIND.LEFT, "a")
            cluster.owner(0, "")
            await seen.take_all(watch, page)
            assert (seen.members, seen.owners) == ({"b": "READY"}, {1: "b", 2: "b"})
            async with watches.page("token") as (same, another):
                await later.take_all(same, another)
            assert (later.members, later.owners) == (seen.members, seen.owners)
            assert cluster.tokens == ["token"]
        nursery.cancel_scope.cancel()


async def test_a_watch_outlives_its_last_page_by_some_seconds(autojump_clock: object) -> None:
    cluster = Cluster()
    async with trio.open_nursery() as nursery:
        watches = Watches(cluster, nursery)  # type: ignore[arg-type]
        for pause in (9, 9, 10, 30):
            async with watches.page("token") as (watch, page):
                await trio.sleep(20)
                cluster.owner(cluster.opened, "a")
                seen = Page()
                await seen.take_all(watch, page)
                assert cluster.opened in seen.owners
            await trio.sleep(pause)
        assert cluster.opened == 2
        assert not watches._by_token
        nursery.cancel_scope.cancel()


async def test_a_large_state_is_sent_in_parts_between_which_it_changes(autojump_clock: object) -> None:
    cluster, seen = Cluster(), Page()
    cluster.listed = [pb.PartitionStatus(topic="t", partition=at, owner_run="a") for at in range(1000)]
    async with trio.open_nursery() as nursery:
        watches = Watches(cluster, nursery)  # type: ignore[arg-type]
        async with watches.page("token"):
            await trio.sleep(1)
            cluster.member(_KIND.PRESENT, "a")
            await trio.sleep(1)
            async with watches.page("token") as (watch, page):
                first = await watch.next_of(page)
                seen.take(json.loads(first))
                assert 0 < len(seen.owners) < 1000
                for at, run in ((0, "b"), (999, "b"), (998, ""), (1000, "b")):
                    cluster.owner(at, run)
                cluster.member(_KIND.LEFT, "a")
                await trio.sleep(1)
                await seen.take_all(watch, page)
        assert seen.owners == {0: "b", **dict.fromkeys(range(1, 998), "a"), 999: "b", 1000: "b"}
        assert not seen.members
        nursery.cancel_scope.cancel()


async def test_slow_pages_share_what_waits_for_them(autojump_clock: object) -> None:
    cluster = Cluster()
    cluster.listed = [pb.PartitionStatus(topic="t" * 200, partition=at, owner_run="a") for at in range(5000)]
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        watches = Watches(cluster, nursery)  # type: ignore[arg-type]
        pages = [await stack.enter_async_context(watches.page("token")) for _ in range(100)]
        await trio.sleep(1)
        cluster.member(_KIND.PRESENT, "a")
        await trio.sleep(1)
        tracemalloc.start()
        held = [await watch.next_of(page) for watch, page in pages]
        for at in range(900):
            cluster.owner(at, "b")
        await trio.sleep(1)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(held) == 100
        assert used < 20e6, "the state of all pages has 150 MB as JSON"
        nursery.cancel_scope.cancel()


async def test_a_page_that_is_too_slow_is_told_and_sees_the_current_state(autojump_clock: object) -> None:
    cluster, seen = Cluster(), Page()
    async with trio.open_nursery() as nursery:
        watches = Watches(cluster, nursery)  # type: ignore[arg-type]
        async with watches.page("") as (watch, page):
            await trio.sleep(1)
            cluster.owner(0, "run")
            await seen.take_all(watch, page)
            for number in range(3000):
                cluster.owner(number % 7, f"run-{number}")
            await trio.sleep(1)
            await seen.take_all(watch, page)
            assert seen.too_slow == 1
            assert seen.owners == {number % 7: f"run-{number}" for number in range(2993, 3000)}
        nursery.cancel_scope.cancel()


async def test_a_lost_gateway_is_reported_and_what_the_next_one_knows_replaces_everything(
    autojump_clock: object,
) -> None:
    cluster, seen = Cluster(), Page()
    async with trio.open_nursery() as nursery:
        watches = Watches(cluster, nursery)  # type: ignore[arg-type]
        async with watches.page("") as (watch, page):
            await trio.sleep(1)
            cluster.owner(0, "a")
            cluster.fail()
            await trio.sleep(5)
            cluster.owner(1, "b")
            await seen.take_all(watch, page)
            assert seen.faults[-1] == "the gateway is gone"
            assert seen.owners == {1: "b"}
        nursery.cancel_scope.cancel()
