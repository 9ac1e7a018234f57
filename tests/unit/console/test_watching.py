"""Pages that watch a cluster: each sees the current state, however slow it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

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
            self.owners = {each["partition"]: each["owner_run"] for each in message["owners"]}
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
                self.take(await watch.next_of(page))


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
        await trio.testing.wait_all_tasks_blocked()
        async with watches.page("token"):
            await trio.sleep(1)
        assert cluster.opened == 2, "the watch ended with its last page"
        nursery.cancel_scope.cancel()


async def test_a_page_that_is_too_slow_is_told_and_sees_the_current_state(autojump_clock: object) -> None:
    cluster, seen = Cluster(), Page()
    async with trio.open_nursery() as nursery:
        watches = Watches(cluster, nursery)  # type: ignore[arg-type]
        async with watches.page("") as (watch, page):
            await trio.sleep(1)
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
