"""The members of a cluster and the owners of its partitions, as a gateway reports them, for any number of pages.

A page receives the whole state once, and then changes. If its queue overflows because it reads slowly, it receives the
whole state again, with a note that it missed changes. So the console's memory is bounded, and every page is current.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from kafscale.errors import Unavailable
from kafscale.rpc.admin import LIST_PARTITIONS, WATCH_CLUSTER
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from services.console.api.encoding import as_dict
from services.console.gateways import Gateways

_QUEUE = 1000
"""Changes that a page may be behind."""
_PAUSE = 1.0
_AT_ONCE = 500
Message = dict[str, Any]


class Watch:
    """What one token may see of a cluster. `run` keeps it current."""

    def __init__(self, gateways: Gateways, token: str) -> None:
        self._gateways = gateways
        self._token = token
        self._members: dict[str, Message] = {}
        self._owners: dict[tuple[str, int], Message] = {}
        self._fault = "connecting to a gateway"
        self._pages: set[_Page] = set()

    @property
    def unused(self) -> bool:
        return not self._pages

    async def run(self) -> None:
        """Follow the changes until cancelled. A gateway that is gone is replaced by another one."""
        while True:
            try:
                async with self._gateways.stream(WATCH_CLUSTER, pb.WatchClusterRequest(), self._token) as changes:
                    await self._follow(changes)
            except (StatusError, Unavailable) as error:
                self._fault = str(error)
                self._tell({"fault": self._fault})
            await trio.sleep(_PAUSE)

    async def _follow(self, changes: Any) -> None:
        first = await changes.receive()
        # The stream has no owners but those that change from now on.
        listed = await self._gateways.read(LIST_PARTITIONS, pb.ListPartitionsRequest(), self._token)
        # What a former gateway reported may have changed since.
        self._members.clear()
        self._owners.clear()
        self._fault = ""
        self._take(first)
        for number, each in enumerate(listed.partitions):
            if not number % _AT_ONCE:
                # There may be many partitions; let other tasks run.
                await trio.lowlevel.checkpoint()
            if each.owner_run:
                owner = pb.OwnerChange(
                    topic=each.topic,
                    partition=each.partition,
                    owner=each.owner,
                    owner_run=each.owner_run,
                    epoch=each.epoch,
                )
                self._owners[each.topic, each.partition] = as_dict(owner)
        self._tell(self._everything())
        while True:
            message = self._take(await changes.receive())
            if message is not None:
                self._tell(message)

    def _take(self, change: pb.ClusterChange) -> Message | None:
        """Apply a change, and return the message about it, or None if it is older than what is known."""
        message: Message = as_dict(change)
        if change.WhichOneof("change") == "member":
            run = change.member.member.run_id
            if change.member.kind == pb.MemberChange.LEFT:
                self._members.pop(run, None)
            else:
                former = self._members.get(run, {})
                member = message["member"]["member"]
                if change.member.kind in (pb.MemberChange.JOINED, pb.MemberChange.CHANGED):
                    # These changes have no health.
                    member = {**member, "health": former.get("health", "UNKNOWN"), "detail": former.get("detail", "")}
                    message["member"]["member"] = member
                self._members[run] = member
        elif change.owner.owner_run:
            key = (change.owner.topic, change.owner.partition)
            if change.owner.epoch < self._owners.get(key, {"epoch": -1})["epoch"]:
                return None
            self._owners[key] = message["owner"]
        else:
            self._owners.pop((change.owner.topic, change.owner.partition), None)
        return {"change": message}

    def _everything(self) -> Message:
        return {"members": list(self._members.values()), "owners": list(self._owners.values()), "fault": self._fault}

    def _tell(self, message: Message) -> None:
        for page in self._pages:
            page.put(message)

    @asynccontextmanager
    async def page(self) -> AsyncIterator["_Page"]:
        """Yield the messages for one page, which `_Page.next` returns."""
        page = _Page()
        page.put(self._everything())
        self._pages.add(page)
        try:
            yield page
        finally:
            self._pages.remove(page)

    async def next_of(self, page: "_Page") -> Message:
        """Return the next message of a page, or everything if it was too slow."""
        message = await page.next()
        return {**self._everything(), "too_slow": True} if message is None else message


class _Page:
    def __init__(self) -> None:
        self._put, self._taken = trio.open_memory_channel[Message](_QUEUE)
        self._too_slow = False

    def put(self, message: Message) -> None:
        try:
            self._put.send_nowait(message)
        except trio.WouldBlock:
            self._too_slow = True

    async def next(self) -> Message | None:
        """Return the next message, or None if some are missing; all that wait are dropped then."""
        message = await self._taken.receive()
        if not self._too_slow:
            return message
        while self._taken.statistics().current_buffer_used:
            self._taken.receive_nowait()
        self._too_slow = False
        return None


class Watches:
    """The watches of all tokens. `page` begins one if there is none, and it ends some time after its last page."""

    def __init__(self, gateways: Gateways, nursery: trio.Nursery) -> None:
        self._gateways = gateways
        self._nursery = nursery
        self._by_token: dict[str, tuple[Watch, trio.CancelScope]] = {}

    @asynccontextmanager
    async def page(self, token: str) -> AsyncIterator[tuple[Watch, _Page]]:
        if token not in self._by_token:
            watch, scope = Watch(self._gateways, token), trio.CancelScope(deadline=math.inf)
            self._by_token[token] = watch, scope

            async def run() -> None:
                with scope:
                    await watch.run()

            self._nursery.start_soon(run)
        watch, scope = self._by_token[token]
        try:
            async with watch.page() as page:
                yield watch, page
        finally:
            if watch.unused and self._by_token.get(token) == (watch, scope):
                del self._by_token[token]
                scope.cancel()
