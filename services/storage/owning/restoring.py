"""Restore the idempotent producers of a partition for a new owner, even if reads fail."""

from typing import NamedTuple

import structlog

from kafscale.objects.interface import ObjectStore
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.log.partition import CommittedLog
from services.storage.log.producer_clock import ProducerClock
from services.storage.log.producers import ProducerTable
from services.storage.owning.snapshots import SnapshotLost, restore
from services.storage.reading.finder import Damaged
from services.storage.reading.old_end import OldEnd
from services.storage.reading.reader import Reader

log = structlog.get_logger()


class Restored(NamedTuple):
    """``segments``: how many were read. ``arrival_ms``: what counts as the arrival of batches that were read.

    ``oldest_gone``: the log start must move past missing objects.
    """

    producers: ProducerTable
    segments: int
    arrival_ms: int
    oldest_gone: bool = False


class ProducerRestorer:
    """Reads a second time before reporting damage, and tolerates the external removal of the snapshot and of the oldest
    objects."""

    def __init__(
        self, objects: ObjectStore, reader: Reader, old_end: OldEnd, *, limit: int, clock: ProducerClock
    ) -> None:
        self._objects = objects
        self._reader = reader
        self._old_end = old_end
        self._limit = limit
        self._clock = clock

    async def restore(self, view: CommittedLog, state: PartitionState) -> Restored:
        """Return the committed producers at the high watermark of ``view``. Raises Damaged, Unavailable."""
        oldest, snapshot, repeated = 0, True, False
        while True:
            try:
                read = await self._read(view, state, oldest=oldest, snapshot=snapshot)
                return Restored(*read, self._clock.arrival_ms(), oldest_gone=oldest > 0)
            except Damaged as error:
                if not repeated:
                    repeated = True
                    log.warning("restoring producers by a second read", partition=view.name, reason=str(error))
                elif isinstance(error, SnapshotLost):
                    await self._old_end.check_mark()
                    snapshot = False
                    log.error("producer snapshot lost, reading the log", partition=view.name, reason=str(error))
                else:
                    start = await self._old_end.start(view)
                    if start <= max(oldest, view.log_start):
                        raise
                    oldest = start
                    log.warning("restoring producers without the oldest objects", partition=view.name, start=start)
            # The listings of the last read may be wrong too.
            view.segments.forget_all()

    async def _read(
        self, view: CommittedLog, state: PartitionState, *, oldest: int, snapshot: bool
    ) -> tuple[ProducerTable, int]:
        return await restore(
            view,
            state,
            objects=self._objects,
            reader=self._reader,
            limit=self._limit,
            arrival_ms=self._clock.arrival_ms(),
            oldest=oldest,
            snapshot=snapshot,
        )
