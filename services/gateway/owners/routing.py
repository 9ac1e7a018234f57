"""Routes partitions to storage instances. Keeps a link to each live instance and tracks the owners."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial

import structlog
import trio

from kafscale.metadata.members import LiveMember, Members, MembersView
from kafscale.metadata.ownership import OwnershipMap
from kafscale.rpc.generated import SegmentStorageClient
from services.gateway.owners.commit_view import Key
from services.gateway.owners.link import AppendAtOnce, StorageLink
from services.gateway.pauses import Pauses
from services.gateway.settings import GatewaySettings

Connect = Callable[[LiveMember], AbstractAsyncContextManager[SegmentStorageClient]]
"""Returns a context that provides a client of a storage member. Entering it must not wait for the peer."""

_MOST_HINTS = 100_000

_log = structlog.get_logger(__name__)


class Router:
    """Finds the link for a partition without waiting for an owner.

    `run`, ``storages`` and ``ownership`` must be running. The first of these instances that is live is used:

    - the owner that another instance named in its last response, until the partition changes in the ownership map
    - the owner in the ownership map
    - the instance that the partition is assigned to
    """

    def __init__(
        self,
        storages: Members,
        ownership: OwnershipMap,
        connect: Connect,
        settings: GatewaySettings,
        pauses: Pauses,
        *,
        append_at_once: AppendAtOnce | None = None,
    ) -> None:
        self._append_at_once = append_at_once
        self._storages = storages
        self._ownership = ownership
        self._connect = connect
        self._settings = settings
        self._pauses = pauses
        self._view = MembersView.of(0, ())
        self._links: dict[str, StorageLink] = {}
        # Links to instances that are gone, with appends whose outcome is not known yet.
        self._leaving: list[StorageLink] = []
        # The run ids of owners as named in NOT_OWNER responses.
        self._hints: dict[Key, str] = {}
        ownership.listen(self._owner_changed)

    def link(self, key: Key) -> StorageLink | None:
        """Return the link to the owner of a partition, or None if no owner is known."""
        hint = self._hints.get(key)
        if hint is not None and hint in self._links:
            return self._links[hint]
        owned = self._ownership.get(*key)
        if owned is not None and owned.owner in self._links:
            return self._links[owned.owner]
        assigned = self._view.owner(*key)
        return None if assigned is None else self._links.get(assigned.run_id)

    def epoch(self, key: Key) -> int:
        """Return the partition's leader epoch in the ownership map, or -1 if it never had an owner."""
        owned = self._ownership.get(*key)
        return -1 if owned is None else owned.epoch

    def link_for_append(self, key: Key) -> StorageLink | None:
        """Like `link`, but return the link to a former owner while earlier appends are on their way to it.

        The former owner refuses these appends and later ones, so no append overtakes another at the new owner. If it
        has no commit stream, its queued appends are refused when the partition moves.
        """
        for leaving in self._leaving:
            if leaving.owes(key):
                return leaving
        link = self.link(key)
        for other in self._links.values():
            if other is not link and other.queue.carries(key):
                return other
        return link

    @property
    def owner_grace_ms(self) -> int:
        """How long a request waits for other instances after one has answered."""
        return self._settings.owner_grace_ms

    @property
    def storage_timeout(self) -> float:
        """The timeout of one call to a storage instance, in seconds."""
        return self._settings.storage_timeout_ms / 1000

    def links(self) -> Iterable[StorageLink]:
        return self._links.values()

    @property
    def storages(self) -> MembersView:
        """The storage instances that are registered."""
        return self._storages.view

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a link to each live member until cancelled. Reports started when all members known by then have one."""
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
            _log.info("storage instance left", run=run_id)
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
        _log.info("storage instance joined", run=member.run_id, address=member.address)
        async with self._connect(member) as client:
            link = StorageLink(
                client,
                self._settings,
                moved=partial(self._moved, member.run_id),
                pauses=self._pauses,
                append_at_once=self._append_at_once,
            )
            self._links[member.run_id] = link
            task_status.started()
            try:
                await link.run()
            finally:
                if link in self._leaving:
                    self._leaving.remove(link)

    def _moved(self, run_id: str, key: Key, owner: str) -> None:
        """Handle a NOT_OWNER response of ``run_id``. ``owner`` is the current or next owner, or empty if unknown."""
        if owner and owner != run_id:
            if len(self._hints) >= _MOST_HINTS:
                self._hints.clear()
            self._hints[key] = owner
        elif self._hints.get(key) == run_id:
            del self._hints[key]
        self._wake(key)

    def _owner_changed(self, key: Key, _: str) -> None:
        self._hints.pop(key, None)
        self._wake(key)

    def _wake(self, key: Key) -> None:
        owner = self.link(key)
        for link in self._links.values():
            link.wake(key)
            if link is not owner:
                link.refuse_unsent(key)
