"""The gateway as one object: listeners in front, links to storage behind, Kafka's APIs between."""

from collections.abc import Callable

import trio

from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.topics import TopicCatalog
from kafscale.rpc.interface import SegmentStorageClient
from kafscale.service.listeners import Listener
from services.gateway.api import Environment, wall_clock_ms
from services.gateway.listener import Acceptor
from services.gateway.memory import ReplyMemory, RequestMemory
from services.gateway.routing import Router
from services.gateway.settings import GatewaySettings
from services.gateway.storage_link import StorageLink
from services.gateway.topics import TopicCache

_CONVERSIONS = 2
"""Of old message sets, at a time: they decompress, and run in threads that compete with everything else."""


class Gateway:
    """``catalog`` must be running before `run` is, and storage should stop after it."""

    def __init__(
        self,
        settings: GatewaySettings,
        catalog: TopicCatalog,
        storage: SegmentStorageClient,
        producer_ids: ProducerIds,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._storage = storage
        self._producer_ids = producer_ids
        self._now_ms = now_ms

    async def run(
        self,
        stop: trio.Event,
        task_status: trio.TaskStatus[tuple[Listener, ...]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve clients until ``stop``, then let them leave. Reports the listeners with the ports that were bound.

        Raises ConfigError when a listener is wrong or cannot be bound.
        """
        listeners = self._settings.resolve()
        cluster = await self._catalog.cluster()
        router = Router(StorageLink(self._storage, self._settings))
        environment = Environment(
            settings=self._settings,
            catalog=self._catalog,
            router=router,
            cluster_id=cluster.cluster_id,
            topics=TopicCache(self._catalog),
            producer_ids=self._producer_ids,
            request_memory=RequestMemory(self._settings.request_memory_bytes),
            reply_memory=ReplyMemory(self._settings.reply_memory_bytes),
            conversions=trio.CapacityLimiter(_CONVERSIONS),
            now_ms=self._now_ms,
        )
        acceptor = Acceptor(listeners, environment)
        bound = await acceptor.bind()
        async with trio.open_nursery() as links:
            for link in router.links():
                links.start_soon(link.run)
            task_status.started(bound)
            await acceptor.run(stop)
            links.cancel_scope.cancel()
