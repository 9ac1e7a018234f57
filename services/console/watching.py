"""The members of a cluster and the owners of its partitions, as a gateway reports them, for any number of pages.

A page receives the whole state once, and then changes. If its queue overflows because it reads slowly, it receives the
whole state again, with a note that it missed changes. Each change and each owner is encoded once for all pages, and the
state is sent in parts. So the console's memory is bounded also with many slow pages, and every page is current.
"""

import json
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import trio

from kafscale.errors import Unavailable
from kafscale.rpc.admin import LIST_PARTITIONS, WATCH_CLUSTER
from kafscale.rpc.errors import StatusError
from kafscale.v1 import admin_pb2 as pb
from services.console.api.encoding import as_dict
from services.console.gateways import Gateways

_QUEUE = 1000
"""Changes that a page may be behind."""
_OWNERS_OF_A_PART = 250
_UNUSED_SECONDS = 10.0
_PAUSE = 1.0
_AT_ONCE = 500
Message = dict[str, Any]
_encode = json.JSONEncoder(separators=(",", ":")).encode


class _Owner(NamedTuple):
    """``text``: its OwnerChange as JSON."""

    epoch: int
    text: str


class Watch:
    """What one token may see of a cluster. `run` keeps it current."""

    def __init__(self, gateways: Gateways, token: str) -> None:
        self._gateways = gateways
        self._token = token
        self._members: dict[str, Message] = {}
        self._owners: dict[tuple[str, int], _Owner] = {}
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
                self._owners[each.topic, each.partition] = _Owner(each.epoch, _encode(as_dict(owner)))
        for page in self._pages:
            page.begin()
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
            known = self._owners.get(key)
            if known is not None and change.owner.epoch < known.epoch:
                return None
            self._owners[key] = _Owner(change.owner.epoch, _encode(message["owner"]))
        else:
            self._owners.pop((change.owner.topic, change.owner.partition), None)
        return {"change": message}

    def _tell(self, message: Message) -> None:
        text = _encode(message)
        for page in self._pages:
            page.put(text)

    @asynccontextmanager
    async def page(self) -> AsyncIterator["_Page"]:
        """Yield what `next_of` gets the messages of one page for."""
        page = _Page()
        self._pages.add(page)
        try:
            yield page
        finally:
            self._pages.remove(page)

    async def next_of(self, page: "_Page") -> str:
        """Wait for the next message of a page, and return it as JSON.

        The state comes in parts: the members and the first owners, then ``owners`` that the page does not have yet. A
        part has the owners of the moment at which it is sent; the changes since the first part follow the last one.
        """
        await page.news.wait()
        if page.begins:
            page.begins = False
            page.missing = deque(self._owners)
            first = {"members": list(self._members.values()), "fault": self._fault, "too_slow": page.too_slow}
            page.too_slow = False
            text = f'{_encode(first)[:-1]},"owners":{self._next_owners(page)}}}'
        elif page.missing:
            text = f'{{"owners":{self._next_owners(page)}}}'
        else:
            text = page.changes.popleft()
        if not page.missing and not page.changes:
            page.news = trio.Event()
        return text

    def _next_owners(self, page: "_Page") -> str:
        count = min(len(page.missing), _OWNERS_OF_A_PART)
        found = (self._owners.get(page.missing.popleft()) for _ in range(count))
        return f"[{','.join(owner.text for owner in found if owner is not None)}]"


class _Page:
    """What one page has not received yet. ``missing``: the partitions whose owners it does not know."""

    def __init__(self) -> None:
        self.changes: deque[str] = deque()
        self.missing: deque[tuple[str, int]] = deque()
        self.too_slow = False
        self.news = trio.Event()
        self.begin()

    def begin(self) -> None:
        """Send the whole state instead of what waits."""
        self.begins = True
        self.changes.clear()
        self.missing.clear()
        self.news.set()

    def put(self, change: str) -> None:
        if self.begins:
            # The state will contain it.
            return
        if len(self.changes) == _QUEUE:
            self.too_slow = True
            self.begin()
            return
        self.changes.append(change)
        self.news.set()


class Watches:
    """The watches of all tokens. `page` begins one if there is none, and it ends some seconds after its last page."""

    def __init__(self, gateways: Gateways, nursery: trio.Nursery) -> None:
        self._gateways = gateways
        self._nursery = nursery
        self._by_token: dict[str, tuple[Watch, trio.CancelScope]] = {}

    @asynccontextmanager
    async def page(self, token: str) -> AsyncIterator[tuple[Watch, _Page]]:
        watch, scope = self._by_token.get(token, (None, None))
        if watch is None or scope is None or scope.cancel_called:
            watch, scope = self._begin(token)
        scope.deadline = math.inf
        try:
            async with watch.page() as page:
                yield watch, page
        finally:
            if watch.unused:
                # Whoever reloads a page needs it at once again.
                scope.deadline = trio.current_time() + _UNUSED_SECONDS

    def _begin(self, token: str) -> tuple[Watch, trio.CancelScope]:
        begun = watch, scope = Watch(self._gateways, token), trio.CancelScope()
        self._by_token[token] = begun

        async def run() -> None:
            with scope:
                await watch.run()
            if self._by_token.get(token) is begun:
                del self._by_token[token]

        self._nursery.start_soon(run)
        return begun
