"""A local copy of all resources of a kind, kept up to date by a watch."""

from collections.abc import Callable

import structlog
import trio

from kafscale.errors import KafscaleError
from services.operator.kubernetes import Expired, Kubernetes
from services.operator.resources import Kind, Object, name_of

_PAUSE_SECONDS = 1.0
_log = structlog.get_logger(__name__)

Changed = Callable[[Object | None, Object | None], None]
"""Called with the former and the present resource, None if it did not or does not exist."""


class Followed:
    """All resources of a kind. ``objects`` are complete once `run` has started.

    ``changed`` is called for all resources at first, and then for each change.
    """

    def __init__(self, kubernetes: Kubernetes, kind: Kind, changed: Changed) -> None:
        self._kubernetes = kubernetes
        self.kind = kind
        self._changed = changed
        self.objects: dict[str, Object] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """List and watch resources until cancelled. If the server does not answer, retry every second."""
        started = False
        while True:
            try:
                version = await self._list()
                if not started:
                    task_status.started()
                    started = True
                while True:
                    version = await self._watch(version)
            except Expired:
                continue
            except KafscaleError as error:
                _log.warning("watch failed", kind=self.kind.name, reason=str(error))
                await trio.sleep(_PAUSE_SECONDS)

    async def _list(self) -> str:
        found, version = await self._kubernetes.list_all(self.kind)
        present = {name_of(each): each for each in found}
        for name in [name for name in self.objects if name not in present]:
            self._put(name, None)
        for name, resource in present.items():
            self._put(name, resource)
        return version

    async def _watch(self, version: str) -> str:
        async with self._kubernetes.watch(self.kind, version) as changes:
            async for what, resource in changes:
                version = resource["metadata"]["resourceVersion"]
                if what != "BOOKMARK":
                    self._put(name_of(resource), None if what == "DELETED" else resource)
        return version

    def _put(self, name: str, resource: Object | None) -> None:
        former = self.objects.pop(name, None)
        if resource is not None:
            self.objects[name] = resource
        self._changed(former, resource)
