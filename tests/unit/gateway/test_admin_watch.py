"""Watching a cluster: reported changes, and watchers that are too slow."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Delete, Put
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from kafscale.v1.metadata_pb2 import EpochHistory
from services.gateway.admin.service import AdminService
from tests.support.gateway.admin import ServingAnswer, admin_of, refused
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import NAMESPACE
from tests.unit.gateway.two_owners import settled, two_owners

Kind = pb.MemberChange
Health = pb.ClusterMember


class Watching:
    """A watcher's changes, and how it ended. While ``slow`` it accepts nothing."""

    def __init__(self, *, slow: bool = False) -> None:
        self.slow = slow
        self.changes: list[pb.ClusterChange] = []
        self.ended: StatusError | None = None
        self._changed = trio.Event()

    async def run(self, admin: AdminService) -> None:
        try:
            await admin.watch_cluster(pb.WatchClusterRequest(), self._take)
        except StatusError as error:
            self.ended = error
            self._notify()

    async def _take(self, change: pb.ClusterChange) -> None:
        if self.slow:
            await trio.sleep_forever()
        self.changes.append(change)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_until(self, seen: Callable[[], bool]) -> None:
        with trio.fail_after(5):
            while not seen():
                await self._changed.wait()

    def members(self) -> list[tuple["pb.MemberChange.Kind", str, "pb.ClusterMember.Health"]]:
        """Return the changes of storage instances."""
        found = [change.member for change in self.changes if change.HasField("member")]
        return [
            (each.kind, each.member.run_id, each.member.health) for each in found if each.member.service == "storage"
        ]

    def owners(self) -> list[tuple[str, int, str, int]]:
        found = [change.owner for change in self.changes if change.HasField("owner")]
        return [(each.topic, each.partition, each.owner, each.epoch) for each in found]


@asynccontextmanager
async def _watching(admin: AdminService, *watchers: Watching) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for watcher in watchers:
            nursery.start_soon(watcher.run, admin)
        for watcher in watchers:
            if not watcher.slow:
                await watcher.wait_until(lambda watcher=watcher: len(watcher.members()) >= 2)  # type: ignore[misc]
        yield
        nursery.cancel_scope.cancel()


async def test_changes_of_members_health_and_owners_are_reported() -> None:
    async with two_owners(2, admin_watch_health_ms=100) as two:
        answers: dict[str, ServingAnswer] = {"a": True, "b": True}
        admin, one, other = await admin_of(two.harness, answers=answers), Watching(), Watching()
        async with _watching(admin, one, other):
            assert one.members() == [(Kind.PRESENT, run, Health.READY) for run in ("a", "b")]
            await two.own("b", 2)
            await two.harness.cluster.add("c", FakeStorage())
            await settled()
            await two.harness.cluster.add("b", two.b, leaving=True)
            await settled()
            await two.harness.cluster.remove("c")
            await settled()
            answers["a"] = Unavailable("no connection")
            for watcher in (one, other):
                await watcher.wait_until(lambda watcher=watcher: len(watcher.members()) == 6)  # type: ignore[misc]
                assert watcher.members()[2:] == [
                    (Kind.JOINED, "c", Health.UNKNOWN),
                    (Kind.CHANGED, "b", Health.UNKNOWN),
                    (Kind.LEFT, "c", Health.UNKNOWN),
                    (Kind.HEALTH, "a", Health.UNREACHABLE),
                ]
                assert watcher.owners() == [("t", 0, "b:9095", 2)]
            assert one.changes[-1].member.member.detail == "no connection"
            assert all(change.time_ms for change in one.changes)


async def test_owners_of_unknown_topics_are_reported_with_the_topics_name() -> None:
    async with two_owners(1) as two:
        admin, watching = await admin_of(two.harness), Watching()
        async with _watching(admin, watching):
            history = paths.epoch_history_key(NAMESPACE, "unseen", 3)
            entries = [EpochHistory.Entry(epoch=7)]
            value = EpochHistory(format=1, topic_id=b"u" * 16, owner="b", entries=entries).SerializeToString()
            await two.harness.metadata.txn((), [Put(history, value)])
            await watching.wait_until(lambda: watching.owners() == [("unseen", 3, "b:9095", 7)])
            await two.harness.metadata.txn((), [Delete(history)])
            await watching.wait_until(lambda: watching.owners()[1:] == [("unseen", 3, "", -1)])


async def test_health_checks_continue_when_the_first_watcher_leaves() -> None:
    async with two_owners(1, admin_watch_health_ms=100) as two:
        answers: dict[str, ServingAnswer] = {"a": True, "b": True}
        admin, first, second = await admin_of(two.harness, answers=answers), Watching(), Watching()
        async with trio.open_nursery() as nursery:
            async with _watching(admin, first):
                nursery.start_soon(second.run, admin)
                await second.wait_until(lambda: len(second.members()) == 2)
            # It reports a change of health only after its first check.
            await settled()
            answers["b"] = False
            await second.wait_until(lambda: len(second.members()) == 3)
            nursery.cancel_scope.cancel()
        assert second.members()[-1] == (Kind.HEALTH, "b", Health.NOT_READY)


async def test_a_slow_watcher_is_ended_and_does_not_delay_others() -> None:
    async with two_owners(1, admin_watch_changes=3) as two:
        admin, slow, quick = await admin_of(two.harness), Watching(slow=True), Watching()
        async with _watching(admin, slow, quick):
            for epoch in range(2, 5):
                await two.own("b", epoch)
            assert slow.ended is None
            await two.own("b", 5)
            await slow.wait_until(lambda: slow.ended is not None)
            await two.own("a", 6)
            await quick.wait_until(lambda: len(quick.owners()) == 5)
            assert quick.ended is None
        assert slow.ended is not None
        assert slow.ended.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "its queue of 3 changes is full (KAFSCALE_ADMIN_WATCH_CHANGES)" in str(slow.ended)


async def test_the_number_of_watchers_is_limited() -> None:
    async with two_owners(1, admin_watchers=1) as two:
        admin, first = await admin_of(two.harness), Watching()
        async with _watching(admin, first):
            with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, r"the limit is 1 \(KAFSCALE_ADMIN_WATCHERS\)"):
                await admin.watch_cluster(pb.WatchClusterRequest(), trio.sleep)  # type: ignore[arg-type]
        again = Watching()
        async with _watching(admin, again):
            two.harness.stop.set()
            await again.wait_until(lambda: again.ended is not None)
        assert str(again.ended) == "the gateway is stopping; use another one"
