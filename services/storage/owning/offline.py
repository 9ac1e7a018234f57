"""Looks again at partitions whose producers could not be restored: they take records as soon as that succeeds."""

from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale.errors import KafscaleError
from services.storage.counters import StorageCounters
from services.storage.log.partition import Partition

log = structlog.get_logger()

_FIRST_PAUSE = 1.0


class OfflineRetries:
    """One task for each such partition, with growing pauses up to ``longest_pause`` seconds.

    ``restore`` sets `Partition.offline` to None, or to why it stays so; ``online`` is called in the first case.
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
        """Look at the partition, which is offline, again and again."""
        self._nursery.start_soon(self._look_again, partition)

    async def _look_again(self, partition: Partition) -> None:
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
                log.warning("offline partition not read", partition=partition.name, error=str(error))
                continue
            if not partition.offline:
                log.info("partition online again", partition=partition.name, former_reason=former)
                self._online(partition)
                return
            if partition.offline != former:
                log.error("partition offline", partition=partition.name, reason=partition.offline)
