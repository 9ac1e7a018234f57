"""Connects the components of the operator: watches, the work queue, and workers."""

import random
from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio

from kafscale.errors import KafscaleError
from services.operator.cluster_refs import named_cluster
from services.operator.clusters.manifests import Manifests
from services.operator.clusters.reconcile import ClusterReconciler
from services.operator.counters import OperatorCounters
from services.operator.events import Events
from services.operator.following import Followed
from services.operator.gateways import Gateways
from services.operator.kubernetes import Kubernetes
from services.operator.queue import Key, WorkQueue
from services.operator.resources import CLUSTER, TOPIC, USER, Object, name_of, wants_work
from services.operator.settings import OperatorSettings
from services.operator.topics.desired import identity as topic_of
from services.operator.topics.reconcile import TopicReconciler
from services.operator.users.desired import identity as user_of
from services.operator.users.reconcile import UserReconciler

_log = structlog.get_logger(__name__)


class Operator:
    """The work of the leader. `work` can be called again after it was cancelled."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        gateways: Gateways,
        counters: OperatorCounters,
        settings: OperatorSettings,
        *,
        manifests: Manifests,
        me: str,
    ) -> None:
        self._kubernetes = kubernetes
        self._gateways = gateways
        self._counters = counters
        self._settings = settings
        self._manifests = manifests
        self._events = Events(kubernetes, counters, me=me)
        self._queue = self._empty_queue()

    @property
    def waiting(self) -> int:
        return self._queue.waiting

    async def work(self) -> None:
        """Watch and reconcile resources until cancelled."""
        queue = self._queue = self._empty_queue()
        topics = Followed(
            self._kubernetes,
            TOPIC,
            lambda old, new: on_change(queue, topics, lambda each: topic_of(each, clusters.objects), old, new),
        )
        users = Followed(
            self._kubernetes,
            USER,
            lambda old, new: on_change(queue, users, lambda each: user_of(each, clusters.objects), old, new),
        )
        clusters = Followed(
            self._kubernetes, CLUSTER, lambda old, new: on_cluster_change(queue, (topics, users), old, new)
        )
        reconcilers: dict[str, Callable[[str], Awaitable[bool]]] = {
            TOPIC.name: TopicReconciler(
                self._kubernetes,
                self._gateways,
                self._events,
                self._counters,
                resources=topics.objects,
                clusters=clusters.objects,
            ).reconcile,
            USER.name: UserReconciler(
                self._kubernetes,
                self._gateways,
                self._events,
                self._counters,
                resources=users.objects,
                clusters=clusters.objects,
            ).reconcile,
            CLUSTER.name: ClusterReconciler(
                self._kubernetes,
                self._gateways,
                self._events,
                manifests=self._manifests,
                soon=lambda name, seconds: queue.add(Key(CLUSTER.name, name), after=seconds),
                longest_pause=self._settings.operator_resync_seconds,
            ).reconcile,
        }

        async def worker() -> None:
            while True:
                await self._process_next(queue, reconcilers)

        async with trio.open_nursery() as nursery:
            # Load both before reconciling. Otherwise the cluster of a topic might seem not to exist.
            await nursery.start(clusters.run)
            await nursery.start(topics.run)
            # Not awaited: without the definition of KafscaleUser, the other kinds are still reconciled.
            nursery.start_soon(users.run)
            for _ in range(self._settings.operator_workers):
                nursery.start_soon(worker)

    async def _process_next(self, queue: WorkQueue, reconcilers: dict[str, Callable[[str], Awaitable[bool]]]) -> None:
        key = await queue.take()
        began, outcome = trio.current_time(), "failed"
        try:
            exists = await reconcilers[key.kind](key.name)
            outcome = "done"
        except KafscaleError as error:
            pause = queue.failed(key)
            _log.warning("reconciliation failed", kind=key.kind, name=key.name, reason=str(error), retry_seconds=pause)
        except Exception:  # noqa: BLE001  a bug must affect only this resource
            pause = queue.failed(key)
            _log.exception("reconciliation crashed", kind=key.kind, name=key.name, retry_seconds=pause)
        else:
            if exists:
                queue.done(key, again=self._settings.operator_resync_seconds)
            else:
                queue.gone(key)
        finally:
            self._counters.reconciled[key.kind, outcome] += 1
            self._counters.seconds.observe(trio.current_time() - began)

    def _empty_queue(self) -> WorkQueue:
        return WorkQueue(
            longest_retry=self._settings.operator_retry_max_seconds,
            spread=lambda: random.uniform(0.9, 1.1),  # noqa: S311 - no secret
        )


def on_change(
    queue: WorkQueue,
    followed: Followed,
    identity: Callable[[Object], tuple[str, str]],
    former: Object | None,
    present: Object | None,
) -> None:
    """Queue a changed topic or user. ``identity`` returns the cluster and the name there that a resource describes."""
    resource = present or former
    if resource is None or not wants_work(former, present):
        return
    queue.add(Key(followed.kind.name, name_of(resource)))
    if present is None:
        # Another resource for the same topic or user may take effect now.
        gone = identity(resource)
        for name, other in followed.objects.items():
            if identity(other) == gone:
                queue.add(Key(followed.kind.name, name))


def on_cluster_change(
    queue: WorkQueue, dependents: Sequence[Followed], former: Object | None, present: Object | None
) -> None:
    resource = present or former
    if resource is None or not wants_work(former, present):
        return
    queue.add(Key(CLUSTER.name, name_of(resource)))
    for followed in dependents:
        for name, dependent in followed.objects.items():
            # A topic or a user that names no cluster depends on the number of clusters.
            if named_cluster(dependent) in ("", name_of(resource)):
                queue.add(Key(followed.kind.name, name))
