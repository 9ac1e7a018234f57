"""Brings one KafscaleCluster about where it is to be made, and keeps its status."""

from collections.abc import Callable
from datetime import datetime

from kafscale.errors import Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.clusters.making import Made, Maker
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.status import answers, silent, starting, status_of, told
from services.operator.clusters.wanted import is_made, servers_of
from services.operator.conditions import Condition, Truth, reason_of
from services.operator.events import Events
from services.operator.gateways import Gateways, sentence_of
from services.operator.gateways import reason_of as reason_of_error
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import utc_now
from services.operator.resources import CLUSTER, Object, is_deleting, name_of


class ClusterReconciler:
    """``soon`` is told of a cluster that is on its way, which is looked at again in a moment."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        gateways: Gateways,
        events: Events,
        *,
        manifests: Manifests,
        soon: Callable[[str], None],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._kubernetes = kubernetes
        self._gateways = gateways
        self._events = events
        self._maker = Maker(kubernetes, events, manifests)
        self._soon = soon
        self._now = now

    async def reconcile(self, name: str) -> bool:
        """Whether there is such a resource. Raises KafscaleError: then it is to be tried again."""
        resource = await self._kubernetes.get(CLUSTER, name)
        # Of one that is deleted, Kubernetes itself removes what it owns.
        if resource is None or is_deleting(resource):
            return False
        made = await self._maker.make(resource) if is_made(resource) else Made([])
        if made.on_its_way:
            self._soon(name)
        try:
            async with self._gateways.serving(servers_of(resource)) as gateway:
                reply = await gateway.status()
        except (StatusError, Unavailable) as error:
            if made.on_its_way:
                await self._report(resource, [*starting(sentence_of(error)), *made.conditions], made.known)
                return True
            silence = silent(reason_of_error(error), sentence_of(error))
            await self._report(resource, [*silence, *made.conditions], made.known)
            raise
        await self._report(resource, [*answers(reply), *made.conditions], {**made.known, **told(reply)})
        return True

    async def _report(self, resource: Object, conditions: list[Condition], known: Object) -> None:
        former = resource.get("status", {})
        status = status_of(resource, conditions, known, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if status == former:
            return
        stored = await self._kubernetes.patch(CLUSTER, name_of(resource), {"status": status}, subresource="status")
        for condition in conditions:
            if condition.reason != reason_of(former, condition.type):
                good = condition.truth is Truth.TRUE or condition.reason in ("Starting", "RollingOut")
                await self._events.tell(
                    stored, condition.reason, condition.message, type_="Normal" if good else "Warning"
                )
