"""Which storage instance serves a partition: a link to each live one, and what is known of who owns what."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial

import structlog
import trio

from kafscale.metadata.members import LiveMember, Members, MembersView
from kafscale.metadata.ownership import OwnershipMap
from kafscale.rpc.generated import SegmentStorageClient
from services.gateway.owners.commit_view import Key
from services.gateway.owners.link import StorageLink
from services.gateway.pauses import Pauses
from services.gateway.settings import GatewaySettings

Connect = Callable[[LiveMember], AbstractAsyncContextManager[SegmentStorageClient]]
"""A client of a storage member, for as long as the context lasts. Entering must not wait for the peer."""

_MOST_HINTS = 100_000

_log = structlog.get_logger(__name__)


class Router:
    """`run` must be running, and so must be ``storages`` and ``ownership``. Nothing here waits for an owner.

    A partition's link is, of those whose member is live: the one that another instance named last when it was asked
    for the partition (until the ownership map tells news of it); the one that the map has; the one that the
    partition is given to.
    """

    def __init__(
        self,
        storages: Members,
        ownership: OwnershipMap,
        connect: Connect,
        settings: GatewaySettings,
        pauses: Pauses,
    ) -> None:
        self._storages = storages
        self._ownership = ownership
        self._connect = connect
        self._settings = settings
        self._pauses = pauses
        self._view = MembersView.of(0, ())
        self._links: dict[str, StorageLink] = {}
        # Of instances that have gone, with appends that have no outcome yet.
        self._leaving: list[StorageLink] = []
        # Runs, by what a NOT_OWNER answer said.
        self._hints: dict[Key, str] = {}
        ownership.listen(self._owned_anew)

    def link(self, key: Key) -> StorageLink | None:
        """The link to the owner of a partition, given by topic id and index; None: none is known."""
        hint = self._hints.get(key)
        if hint is not None and hint in self._links:
            return self._links[hint]
        owned = self._ownership.get(*key)
        if owned is not None and owned.owner in self._links:
            return self._links[owned.owner]
        given = self._view.owner(*key)
        return None if given is None else self._links.get(given.run_id)

    def epoch(self, key: Key) -> int:
        """The partition's leader epoch as far as the ownership map tells; -1: it never had an owner."""
        owned = self._ownership.get(*key)
        return -1 if owned is None else owned.epoch

    def link_for_append(self, key: Key) -> StorageLink | None:
        """As `link`; but where earlier appends still are on their way to a former owner, that one.

        It will refuse them, and what it is sent behind them: so none overtakes the others at the new owner. What a
        former owner without a stream still was to be sent is refused when the partition moves.
        """
        for leaving in self._leaving:
            if leaving.owes(key):
                return leaving
        link = self.link(key)
        for other in self._links.values():
            if other is not link and other.carries(key):
                return other
        return link

    @property
    def owner_grace_ms(self) -> int:
        """How long others may let those wait who have an answer of one instance."""
        return self._settings.owner_grace_ms

    @property
    def storage_timeout(self) -> float:
        """Seconds that one call to a storage instance may take."""
        return self._settings.storage_timeout_ms / 1000

    def links(self) -> Iterable[StorageLink]:
        return self._links.values()

    @property
    def storages(self) -> MembersView:
        """The storage instances that are registered."""
        return self._storages.view

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a link to each live member until cancelled; started when there is one for each that is known by then."""
        async with trio.open_nursery() as nursery:
            view = self._storages.view
            await self._follow(view, nursery)
            task_status.started()
            while True:
                view = await self._storages.wait_change(view)
                await self._follow(view, nursery)

    async def _follow(self, view: MembersView, nursery: trio.Nursery) -> None:
        present = {member.run_id for member in view.present}
        for member in view.present:
            if member.run_id not in self._links:
                await nursery.start(self._keep_link, member)
        self._view = view
        gone = [run_id for run_id in self._links if run_id not in present]
        for run_id in gone:
            _log.info("storage instance gone", run=run_id)
            link = self._links.pop(run_id)
            self._leaving.append(link)
            link.end()
        self._hints = {key: run_id for key, run_id in self._hints.items() if run_id in present}
        for link in self._links.values():
            link.wake_all()
            for key in link.unsent:
                if self.link(key) is not link:
                    link.refuse_unsent(key)

    async def _keep_link(self, member: LiveMember, task_status: trio.TaskStatus[None]) -> None:
        _log.info("storage instance", run=member.run_id, address=member.address)
        async with self._connect(member) as client:
            link = StorageLink(client, self._settings, moved=partial(self._moved, member.run_id), pauses=self._pauses)
            self._links[member.run_id] = link
            task_status.started()
            try:
                await link.run()
            finally:
                if link in self._leaving:
                    self._leaving.remove(link)

    def _moved(self, run_id: str, key: Key, owner: str) -> None:
        """Run ``run_id`` says that it does not own the partition, and ``owner`` does or will, as far as it knows."""
        if owner and owner != run_id:
            if len(self._hints) >= _MOST_HINTS:
                self._hints.clear()
            self._hints[key] = owner
        elif self._hints.get(key) == run_id:
            del self._hints[key]
        self._wake(key)

    def _owned_anew(self, key: Key, _: str) -> None:
        self._hints.pop(key, None)
        self._wake(key)

    def _wake(self, key: Key) -> None:
        owner = self.link(key)
        for link in self._links.values():
            link.wake(key)
            if link is not owner:
                link.refuse_unsent(key)
