"""Reconciles a KafscaleCluster: creates the cluster if it has a bucket, and updates the status."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.clusters.desired import is_made, servers_of
from services.operator.clusters.making import APPLIED, PAUSED, PAUSED_BY, Made, Maker, not_made, paused
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.status import observed, reachable, starting, status_of, unreachable
from services.operator.conditions import READY, Condition, Truth, reason_of
from services.operator.events import Events
from services.operator.gateways import Gateways, sentence_of
from services.operator.gateways import reason_of as reason_of_error
from services.operator.kubernetes import ApiRefused, ApiUnavailable, Kubernetes
from services.operator.leadership import utc_now
from services.operator.resources import CLUSTER, Object, is_deleting, name_of

_FIRST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Pause:
    """The pause before the next check of a pending cluster, whose last state was ``seen``."""

    seen: object
    seconds: float


class ClusterReconciler:
    """Reconciles clusters.

    ``soon`` is called with a pending cluster and the seconds until its next check. The pause is two seconds at first,
    and doubles while nothing changes, up to ``longest_pause``.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        gateways: Gateways,
        events: Events,
        *,
        manifests: Manifests,
        soon: Callable[[str, float], None],
        longest_pause: float,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._kubernetes = kubernetes
        self._gateways = gateways
        self._events = events
        self._maker = Maker(kubernetes, events, manifests)
        self._soon = soon
        self._longest_pause = longest_pause
        self._pauses: dict[str, _Pause] = {}
        self._now = now

    async def reconcile(self, name: str) -> bool:
        """Reconcile a resource, and return whether it exists. The caller retries after a KafscaleError."""
        resource = await self._kubernetes.get(CLUSTER, name)
        # Kubernetes removes the objects of a deleted cluster.
        if resource is None or is_deleting(resource):
            self._pauses.pop(name, None)
            return False
        failure: KafscaleError | None = None
        made = Made([])
        is_paused = is_made(resource) and resource["metadata"].get("annotations", {}).get(PAUSED_BY) == "true"
        if is_paused:
            made = paused()
        elif is_made(resource):
            try:
                made = await self._maker.make(resource)
            except (ApiRefused, ApiUnavailable) as error:
                made, failure = not_made(error), error
        try:
            async with self._gateways.serving(servers_of(resource)) as gateway:
                reply = await gateway.status()
        except (StatusError, Unavailable) as error:
            if made.pending and made.refusal is None and _is_new(resource):
                await self._report(resource, [*starting(sentence_of(error)), *made.conditions], made.known)
                self._schedule_check(name, made)
                return True
            reason, message = reason_of_error(error), sentence_of(error)
            if made.refusal is not None:
                reason, message = made.refusal.reason, f"{message}; {made.refusal.message}"
            await self._report(resource, [*unreachable(reason, message), *made.conditions], made.known)
            if is_paused:
                return True
            raise failure or error from error
        await self._report(resource, [*reachable(reply), *made.conditions], {**made.known, **observed(reply)})
        if failure is not None:
            raise failure
        self._schedule_check(name, made)
        return True

    def _schedule_check(self, name: str, made: Made) -> None:
        if not made.pending:
            self._pauses.pop(name, None)
            return
        former, seen = self._pauses.get(name), made.known
        seconds = former.seconds * 2 if former is not None and former.seen == seen else _FIRST_PAUSE_SECONDS
        self._pauses[name] = _Pause(seen, min(seconds, self._longest_pause))
        self._soon(name, self._pauses[name].seconds)

    async def _report(self, resource: Object, conditions: list[Condition], known: Object) -> None:
        former = resource.get("status", {})
        status = status_of(resource, conditions, known, self._now().strftime("%Y-%m-%dT%H:%M:%SZ"))
        if status == former:
            return
        stored = await self._kubernetes.patch(CLUSTER, name_of(resource), {"status": status}, subresource="status")
        for condition in conditions:
            if condition.reason != reason_of(former, condition.type):
                good = condition.truth is Truth.TRUE or condition.reason in ("Starting", "RollingOut", PAUSED)
                await self._events.record(
                    stored, condition.reason, condition.message, type_="Normal" if good else "Warning"
                )


def _is_new(resource: Object) -> bool:
    """Return whether the cluster has never answered, and this has not been reported as a failure."""
    status = resource.get("status", {})
    return "clusterId" not in status and reason_of(status, READY) in ("", "Starting", reason_of(status, APPLIED))
