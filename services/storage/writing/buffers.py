"""When write buffers become segments: when they are full or due, on request, or when memory for buffers gets scarce."""

from collections.abc import Callable

import trio

from services.storage.counters import StorageCounters
from services.storage.intake.intake import Intake
from services.storage.log.buffer import Trigger
from services.storage.log.commit import Commit
from services.storage.log.partition import Partition
from services.storage.settings import StorageSettings
from services.storage.writing.seal_timers import SealTimers

_PLAN_PAUSE = 1.0
"""Seconds between flushes of a partition for plans."""
_LONGEST_HOLD, _HOLD_STEP = 5.0, 0.25
"""For how many seconds after a take-over a buffer may wait for other take-overs, and how often that is checked."""
_OPEN_SHARE = 4
"""Open buffers fill at most 1/_OPEN_SHARE of KAFSCALE_BUFFER_BYTES."""


class Buffers:
    """The write buffers of a run. Requires that `run` is running.

    ``start`` is called with a partition that may have a sealed buffer to upload. While take-overs wait for each other
    (``is_crowded``), buffers of partitions that were just taken over become segments later, if the intake has their
    records.
    """

    def __init__(
        self,
        settings: StorageSettings,
        intake: Intake,
        *,
        start: Callable[[Partition], None],
        is_crowded: Callable[[], bool],
        counters: StorageCounters,
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._start = start
        self._counters = counters
        self._is_crowded = is_crowded
        self._timers = SealTimers(self._seal_in_time)
        self.size = 0
        """The bytes of the records that are not in committed segments."""
        # The part of it that is in open buffers.
        self._open_bytes = 0

    async def run(self) -> None:
        """Seal buffers in time until cancelled."""
        await self._timers.run()

    def added(self, partition: Partition, size: int, records: int) -> None:
        """Account for batches of ``size`` bytes and ``records`` offsets that were added to the partition's buffer."""
        self.size += size
        self._counters.appended_bytes += size
        if partition.config.merges and not partition.config.compacted:
            self._counters.mergeable_bytes += size
        self._counters.appended_records += records
        if self._intake.is_on:
            self._intake.writer.accept(partition, size)
        if partition.timer and self._intake.is_on and partition.buffer.open_bytes > partition.open_counted:
            # The timer of the open buffer is enough.
            self._count_open(partition)
        else:
            self.look_at(partition)
        self._limit_open()

    def recovered(self, partition: Partition) -> None:
        """Account for the records of a former owner's intake, which are in sealed buffers."""
        self.size += partition.buffer.uncommitted_bytes

    def committed(self, commit: Commit) -> None:
        """Drop buffers whose segments were committed."""
        self.size -= commit.partition.buffer.committed(commit.buffers)

    def discard(self, partition: Partition, *, keep_durable: bool = False) -> None:
        """Drop all buffers, because this epoch commits nothing more. ``keep_durable``: keep durable records to read."""
        self._timers.clear(partition)
        self._open_bytes -= partition.open_counted
        partition.open_counted = 0
        self.size -= partition.buffer.discard(keep_durable=keep_durable)

    def configured(self, partition: Partition) -> None:
        """Called when the topic's configs changed. The new flush.ms may make the buffer due earlier."""
        self._timers.clear(partition)
        self.look_at(partition)

    def look_at(self, partition: Partition) -> None:
        """Flush the buffer if it is full or due, otherwise set its timer."""
        settings, now, waiting = self._settings, trio.current_time(), partition.buffer.open_bytes
        due = self._due(partition)
        if waiting and due <= now and not self._is_held(partition):
            self.seal(partition, "interval")
        elif waiting >= settings.early_flush_bytes and not self._intake.is_on:
            # Each append postpones this, so it fires once producers have sent all they may and wait for acks.
            self._timers.set(partition, min(due, now + settings.early_flush_quiet_ms / 1000))
        elif waiting and not partition.timer:
            self._timers.set(partition, due)
        self._count_open(partition)
        self._start(partition)

    def seal(self, partition: Partition, trigger: Trigger) -> None:
        """Close the open buffer and upload it."""
        self._timers.clear(partition)
        partition.planned = False
        if partition.buffer.seal(trigger):
            partition.last_flush = trio.current_time()
        self._count_open(partition)
        self._start(partition)

    def seal_for_plan(self, partition: Partition) -> None:
        """Flush what is durable and not in segments, at once or a second after the partition's last flush."""
        if partition.buffer.durable_end > max(partition.log.segments_end, partition.buffer.open_offset):
            partition.planned = True
            self._timers.set(partition, min(self._due(partition), partition.last_flush + _PLAN_PAUSE))

    def _is_held(self, partition: Partition) -> bool:
        """Whether the buffer waits although it is due, because producers wait for take-overs and not for segments."""
        is_new = trio.current_time() < partition.taken_at + _LONGEST_HOLD
        return is_new and self._intake.is_on and not partition.planned and self._is_crowded()

    def _seal_in_time(self, partition: Partition) -> None:
        if self._is_held(partition):
            self._timers.set(partition, trio.current_time() + _HOLD_STEP)
            return
        interval_is_over = self._due(partition) <= trio.current_time()
        early: Trigger = "request" if self._intake.is_on else "quiet"
        self.seal(partition, "interval" if interval_is_over else early)

    def _due(self, partition: Partition) -> float:
        """Return when the open buffer becomes a segment, in Trio time."""
        interval_ms = partition.config.flush_ms
        if self._intake.is_on:
            # Nobody waits for the segment, because records are durable in the intake.
            interval_ms = max(interval_ms, self._settings.segment_interval_ms)
        return partition.last_flush + interval_ms / 1000

    def _count_open(self, partition: Partition) -> None:
        """Update the sum of all open buffers with that of the partition."""
        size = partition.buffer.open_bytes
        self._open_bytes += size - partition.open_counted
        partition.open_counted = size

    def _limit_open(self) -> None:
        """Seal the buffers that are due first while open ones fill more than a part of the memory for buffers."""
        while self._intake.is_on and self._open_bytes > self._settings.buffer_bytes // _OPEN_SHARE:
            first = self._timers.first()
            if first is None:
                return
            self.seal(first, "memory")
