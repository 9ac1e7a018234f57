"""All resources of a kind, as a watch told of them last."""

from collections.abc import Callable

import structlog
import trio

from kafscale.errors import KafscaleError
from services.operator.kubernetes import Expired, Kubernetes
from services.operator.resources import Kind, Object, name_of

_PAUSE_SECONDS = 1.0
_log = structlog.get_logger(__name__)

Changed = Callable[[Object | None, Object | None], None]
"""Told of what a resource was and is; None: there is none."""


class Followed:
    """``objects`` are there once `run` has started; then ``changed`` is told of each change, and of all at first."""

    def __init__(self, kubernetes: Kubernetes, kind: Kind, changed: Changed) -> None:
        self._kubernetes = kubernetes
        self._kind = kind
        self._changed = changed
        self.objects: dict[str, Object] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. A server that does not answer is asked again every second."""
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
                _log.warning("cannot watch", kind=self._kind.name, reason=str(error))
                await trio.sleep(_PAUSE_SECONDS)

    async def _list(self) -> str:
        found, version = await self._kubernetes.list_all(self._kind)
        present = {name_of(each): each for each in found}
        for name in [name for name in self.objects if name not in present]:
            self._put(name, None)
        for name, resource in present.items():
            self._put(name, resource)
        return version

    async def _watch(self, version: str) -> str:
        async with self._kubernetes.watch(self._kind, version) as changes:
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
