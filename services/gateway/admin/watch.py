"""Streams changes of members, their health and partition owners to watchers.

Each watcher has a bounded queue. Changes of members and owners come from the gateway's own watches. Health is polled by
one watcher's task on behalf of all watchers.
"""

from collections.abc import Awaitable, Callable

import grpc
import trio

from kafscale.metadata.members import LiveMember, Members, MembersView
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from services.gateway.admin.cluster import ClusterReport, describe
from services.gateway.admin.logs import UNKNOWN
from services.gateway.owners.commit_view import Key
from services.gateway.service import GatewayDependencies

_STATUS = grpc.StatusCode
_AT_A_TIME = 16
"""The maximum number of concurrent health requests."""
_Kind = pb.MemberChange

Send = Callable[[pb.ClusterChange], Awaitable[None]]
Notify = Callable[[pb.ClusterChange], None]
_Health = tuple["pb.ClusterMember.Health", str]


class _Watcher:
    """A queue of at most ``limit`` changes. ``scope`` surrounds the sending; an overflow cancels it."""

    def __init__(self, limit: int) -> None:
        self._put, self.changes = trio.open_memory_channel[pb.ClusterChange](limit)
        self.scope = trio.CancelScope()

    def notify(self, change: pb.ClusterChange) -> None:
        try:
            self._put.send_nowait(change)
        except trio.WouldBlock:
            self.scope.cancel()


class Watches:
    """The watchers of one gateway."""

    def __init__(self, parts: GatewayDependencies, report: ClusterReport) -> None:
        self._parts = parts
        self._report = report
        self._watchers: set[_Watcher] = set()
        self._polling = trio.Lock()

    async def watch(self, send: Send) -> None:
        """Send changes until cancelled. Raises StatusError if there are too many watchers or this one is too slow."""
        settings = self._parts.settings
        if len(self._watchers) >= settings.admin_watchers:
            text = f"Too many watchers: the limit is {settings.admin_watchers} (KAFSCALE_ADMIN_WATCHERS)."
            raise StatusError(_STATUS.RESOURCE_EXHAUSTED, text)
        watcher = _Watcher(settings.admin_watch_changes)
        self._watchers.add(watcher)

        def owner_changed(key: Key, topic: str) -> None:
            watcher.notify(self._owner(key, topic))

        stop_listening = self._parts.ownership.listen(owner_changed)
        try:
            async with trio.open_nursery() as nursery:
                for service, members in self._report.members.items():
                    nursery.start_soon(self._follow, service, members, members.view, watcher.notify)
                nursery.start_soon(self._poll_health)
                with watcher.scope:
                    await self._send_present(send)
                    async for change in watcher.changes:
                        await send(change)
                nursery.cancel_scope.cancel()
        finally:
            stop_listening()
            self._watchers.remove(watcher)
        text = (
            f"The watcher is too slow: its queue of {settings.admin_watch_changes} changes is full "
            "(KAFSCALE_ADMIN_WATCH_CHANGES)."
        )
        raise StatusError(_STATUS.RESOURCE_EXHAUSTED, text)

    async def _send_present(self, send: Send) -> None:
        for service, live, health in await self._health():
            await send(self._member(_Kind.PRESENT, service, live, health))

    async def _follow(self, service: str, members: Members, view: MembersView, notify: Notify) -> None:
        while True:
            before, view = view, await members.wait_change(view)
            for run_id in sorted(before.by_run_id.keys() | view.by_run_id.keys()):
                old, new = before.by_run_id.get(run_id), view.by_run_id.get(run_id)
                if old is None and new is not None:
                    notify(self._member(_Kind.JOINED, service, new))
                elif old is not None and new is None:
                    notify(self._member(_Kind.LEFT, service, old))
                elif old is not None and new is not None and old.member != new.member:
                    notify(self._member(_Kind.CHANGED, service, new))

    async def _poll_health(self) -> None:
        """Poll health for all watchers. One watcher's task does this, and another one's after that has ended."""
        async with self._polling:
            known: dict[str, _Health] = {}
            while True:
                found = await self._health()
                for service, live, health in found:
                    if known.get(live.run_id, health) != health:
                        for watcher in self._watchers:
                            watcher.notify(self._member(_Kind.HEALTH, service, live, health))
                known = {live.run_id: health for _, live, health in found}
                await trio.sleep(self._parts.settings.admin_watch_health_ms / 1000)

    async def _health(self) -> list[tuple[str, LiveMember, _Health]]:
        """Ask all live members for their health."""
        found = [
            (service, live, pb.ClusterMember())
            for service, members in self._report.members.items()
            for live in members.view.present
        ]
        places = trio.CapacityLimiter(_AT_A_TIME)

        async def ask(live: LiveMember, entry: pb.ClusterMember) -> None:
            async with places:
                await self._report.ask(live, entry)

        async with trio.open_nursery() as nursery:
            for _, live, entry in found:
                nursery.start_soon(ask, live, entry)
        return [(service, live, (entry.health, entry.detail)) for service, live, entry in found]

    def _member(
        self, kind: "pb.MemberChange.Kind", service: str, live: LiveMember, health: _Health | None = None
    ) -> pb.ClusterChange:
        entry = pb.ClusterMember()
        describe(entry, service, live)
        if health is not None:
            entry.health, entry.detail = health
        return pb.ClusterChange(time_ms=self._parts.now_ms(), member=pb.MemberChange(kind=kind, member=entry))

    def _owner(self, key: Key, topic: str) -> pb.ClusterChange:
        change = pb.OwnerChange(topic=topic, partition=key[1], epoch=UNKNOWN)
        owned = self._parts.ownership.get(*key)
        if owned is not None:
            live = self._parts.storages.view.by_run_id.get(owned.owner)
            change.owner_run, change.epoch = owned.owner, owned.epoch
            change.owner = "" if live is None else live.address
        return pb.ClusterChange(time_ms=self._parts.now_ms(), owner=change)
