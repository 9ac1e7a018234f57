"""Brings one KafscaleCluster about where it is to be made, and keeps its status."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.errors import StatusError
from services.operator.clusters.making import APPLIED, PAUSED, PAUSED_BY, Made, Maker, not_made, paused
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.status import READY, answers, silent, starting, status_of, told
from services.operator.clusters.wanted import is_made, servers_of
from services.operator.conditions import Condition, Truth, reason_of
from services.operator.events import Events
from services.operator.gateways import Gateways, sentence_of
from services.operator.gateways import reason_of as reason_of_error
from services.operator.kubernetes import ApiRefused, ApiUnavailable, Kubernetes
from services.operator.leadership import utc_now
from services.operator.resources import CLUSTER, Object, is_deleting, name_of

_FIRST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Pause:
    """Before the next look at a cluster that was on its way, as far as ``seen``."""

    seen: object
    seconds: float


class ClusterReconciler:
    """``soon`` is told of a cluster that is on its way, and in how many seconds it is to be looked at again: two at
    first, and twice as many each time that nothing has changed, up to ``longest_pause``.
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
        """Whether there is such a resource. Raises KafscaleError: then it is to be tried again."""
        resource = await self._kubernetes.get(CLUSTER, name)
        # Of one that is deleted, Kubernetes itself removes what it owns.
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
            if made.on_its_way and made.refusal is None and _is_new(resource):
                await self._report(resource, [*starting(sentence_of(error)), *made.conditions], made.known)
                self._look_again(name, made)
                return True
            reason, message = reason_of_error(error), sentence_of(error)
            if made.refusal is not None:
                reason, message = made.refusal.reason, f"{message}; {made.refusal.message}"
            await self._report(resource, [*silent(reason, message), *made.conditions], made.known)
            if is_paused:
                return True
            raise failure or error from error
        await self._report(resource, [*answers(reply), *made.conditions], {**made.known, **told(reply)})
        if failure is not None:
            raise failure
        self._look_again(name, made)
        return True

    def _look_again(self, name: str, made: Made) -> None:
        if not made.on_its_way:
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
                await self._events.tell(
                    stored, condition.reason, condition.message, type_="Normal" if good else "Warning"
                )


def _is_new(resource: Object) -> bool:
    """Whether it has never answered, and nobody was told that it should have."""
    status = resource.get("status", {})
    return "clusterId" not in status and reason_of(status, READY) in ("", "Starting", reason_of(status, APPLIED))
