"""Keeps the status of one KafscaleCluster."""

from collections.abc import Callable
from datetime import datetime

from kafscale.errors import Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.clusters.status import READY, answers, silent, status_of, told
from services.operator.clusters.wanted import servers_of
from services.operator.conditions import Condition, Truth, reason_of
from services.operator.events import Events
from services.operator.gateways import Gateways, sentence_of
from services.operator.gateways import reason_of as reason_of_error
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import utc_now
from services.operator.resources import CLUSTER, Object, is_deleting, name_of


class ClusterReconciler:
    """Asks the gateways how their cluster is."""

    def __init__(
        self, kubernetes: Kubernetes, gateways: Gateways, events: Events, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._kubernetes = kubernetes
        self._gateways = gateways
        self._events = events
        self._now = now

    async def reconcile(self, name: str) -> bool:
        """Whether there is such a resource. Raises KafscaleError: then it is to be tried again."""
        resource = await self._kubernetes.get(CLUSTER, name)
        if resource is None or is_deleting(resource):
            return False
        try:
            async with self._gateways.serving(servers_of(resource)) as gateway:
                reply = await gateway.status()
        except (StatusError, Unavailable) as error:
            await self._report(resource, silent(reason_of_error(error), sentence_of(error)), {})
            raise
        await self._report(resource, answers(reply), told(reply))
        return True

    async def _report(self, resource: Object, conditions: list[Condition], known: Object) -> None:
        former = resource.get("status", {})
        status = status_of(resource, conditions, known, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if status == former:
            return
        stored = await self._kubernetes.patch(CLUSTER, name_of(resource), {"status": status}, subresource="status")
        for condition in conditions:
            if condition.reason != reason_of(former, READY):
                ready = condition.truth is Truth.TRUE
                await self._events.tell(
                    stored, condition.reason, condition.message, type_="Normal" if ready else "Warning"
                )
