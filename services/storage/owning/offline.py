"""Retry to restore the producers of offline partitions, which accept records again once that succeeds."""

from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale.errors import KafscaleError
from services.storage.counters import StorageCounters
from services.storage.log.partition import Partition

log = structlog.get_logger()

_FIRST_PAUSE = 1.0


class OfflineRetries:
    """Runs one task per offline partition, with pauses that grow up to ``longest_pause`` seconds.

    ``restore`` sets `Partition.offline` to None, after which ``online`` is called, or to why it stays offline.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        restore: Callable[[Partition], Awaitable[None]],
        online: Callable[[Partition], None],
        longest_pause: float,
        counters: StorageCounters,
    ) -> None:
        self._nursery = nursery
        self._restore = restore
        self._online = online
        self._longest_pause = longest_pause
        self._counters = counters

    def begin(self, partition: Partition) -> None:
        """Retry the offline partition until it is online or closed."""
        self._nursery.start_soon(self._retry, partition)

    async def _retry(self, partition: Partition) -> None:
        pause = min(_FIRST_PAUSE, self._longest_pause)
        while True:
            await trio.sleep(pause)
            pause = min(2 * pause, self._longest_pause)
            if partition.closed or partition.moving:
                return
            self._counters.offline_retries += 1
            former = partition.offline
            try:
                await self._restore(partition)
            except KafscaleError as error:
                log.warning("retry of offline partition failed", partition=partition.name, error=str(error))
                continue
            if not partition.offline:
                log.info("partition online again", partition=partition.name, former_reason=former)
                self._online(partition)
                return
            if partition.offline != former:
                log.error("partition offline", partition=partition.name, reason=partition.offline)
