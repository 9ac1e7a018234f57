"""The partitions' state as reported by one commit stream, and what waits for it: held responses and parked fetches.

An append's result may arrive before or after the event that decides its outcome. Each decision is made here, in one
step without awaiting.
"""

from collections.abc import Iterable
from typing import Protocol

import trio
from kio.schema.errors import ErrorCode

from kafscale.v1.common_pb2 import PartitionRef
from services.gateway.owners.errors import MAY_BE_KEPT, TIMED_OUT
from services.gateway.owners.pending import PendingAppend

_LOST_REMEMBERED = 1024
"""The number of lost partitions to remember for results of appends that arrive after the loss."""

Key = tuple[bytes, int]
"""Topic id and partition. A topic that was deleted and created again has another id."""


class CommitEvent(Protocol):
    """A `Committed`, or what storage in this process has in its place."""

    @property
    def partition(self) -> PartitionRef: ...
    @property
    def epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def lost(self) -> bool: ...
    @property
    def in_memory(self) -> int: ...


class Waiter:
    """A parked fetch, woken by the first event of any of its partitions."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = trio.Event()

    def wake(self) -> None:
        self.event.set()


class _Partition:
    __slots__ = ("epoch", "held", "high_watermark", "lost", "recent_from", "segments_end", "waiters")

    def __init__(self) -> None:
        self.epoch = -1
        self.high_watermark = -1
        self.segments_end = -1
        # The offset at which the last reported commit begins.
        self.recent_from = -1
        self.lost = False
        self.held: list[PendingAppend] = []
        self.waiters: set[Waiter] = set()

    def verdict(self, append: PendingAppend) -> ErrorCode | None:
        """Return the outcome of an append, or None if it is not known yet."""
        if append.epoch > self.epoch:
            return None
        if append.epoch == self.epoch:
            if append.wait_for <= self.high_watermark and append.hold_until <= self.segments_end:
                return ErrorCode.none
            if not self.lost:
                return None
        return self.last_verdict(append)

    def last_verdict(self, append: PendingAppend) -> ErrorCode:
        """Return the outcome of an append if nothing more of its epoch will be reported."""
        durable = append.epoch == self.epoch and 0 < append.wait_for <= self.high_watermark
        return ErrorCode.none if durable else MAY_BE_KEPT


class CommitView:
    """The partitions of one commit stream."""

    def __init__(self) -> None:
        self._partitions: dict[Key, _Partition] = {}
        self._holding: set[Key] = set()
        # In the order in which they were lost.
        self._lost: dict[Key, None] = {}

    def __len__(self) -> int:
        """The number of partitions whose state is known."""
        return len(self._partitions)

    @property
    def holding(self) -> bool:
        return bool(self._holding)

    def holds(self, key: Key) -> bool:
        """Whether appends to the partition wait for their commit."""
        return key in self._holding

    @property
    def held(self) -> int:
        """The number of appends that wait for their commit."""
        return sum(len(self._partitions[key].held) for key in self._holding)

    def apply(self, events: Iterable[CommitEvent]) -> int:
        """Apply events of the stream: finish held appends and wake fetches. Return how many appends were finished.

        Events of an older epoch are ignored.
        """
        finished = 0
        for event in events:
            key = (event.partition.topic_id, event.partition.partition)
            partition = self._partition(key)
            if event.epoch < partition.epoch:
                continue
            if event.epoch > partition.epoch:
                partition.epoch, partition.high_watermark, partition.lost = event.epoch, event.high_watermark, False
                partition.segments_end = -1
                partition.recent_from = event.high_watermark
            elif event.high_watermark > partition.high_watermark:
                partition.recent_from = partition.high_watermark
            partition.high_watermark = max(partition.high_watermark, event.high_watermark)
            partition.segments_end = max(partition.segments_end, event.high_watermark - event.in_memory)
            partition.lost = partition.lost or event.lost
            finished += self._settle(key, partition)
            for waiter in partition.waiters:
                waiter.wake()
            self._lost.pop(key, None)
            if partition.lost:
                self._lost[key] = None
                if len(self._lost) > _LOST_REMEMBERED:
                    self._forget(next(iter(self._lost)))
        return finished

    def hold(self, append: PendingAppend) -> None:
        """Finish a buffered append when what it waits for is reached in ``append.epoch``, or is lost."""
        partition = self._partition(append.key)
        verdict = partition.verdict(append)
        if verdict is None:
            partition.held.append(append)
            self._holding.add(append.key)
        else:
            append.finish(verdict)

    def is_ahead(self, key: Key, epoch: int, high_watermark: int) -> bool:
        """Whether the stream has reported a higher epoch or high watermark than these, which a fetch returned."""
        partition = self._partitions.get(key)
        if partition is None:
            return False
        return partition.epoch > epoch or (partition.epoch == epoch and partition.high_watermark > high_watermark)

    def is_recent(self, key: Key, offset: int) -> bool:
        """Whether all records from ``offset`` on are in the last commit or later, so the owner has them in memory."""
        partition = self._partitions.get(key)
        return partition is not None and not partition.lost and 0 <= partition.recent_from <= offset

    def watch(self, key: Key, waiter: Waiter) -> None:
        self._partition(key).waiters.add(waiter)

    def unwatch(self, key: Key, waiter: Waiter) -> None:
        partition = self._partitions.get(key)
        if partition is not None:
            partition.waiters.discard(waiter)
            if partition.epoch < 0 or (partition.lost and key not in self._lost):
                self._forget(key)

    def wake(self, key: Key) -> None:
        """Wake the fetches that wait for the partition."""
        partition = self._partitions.get(key)
        for waiter in partition.waiters if partition is not None else ():
            waiter.wake()

    def expire(self, now: float) -> None:
        """Fail held appends whose deadline has passed."""
        for key in list(self._holding):
            partition = self._partitions[key]
            for append in partition.held:
                if append.deadline <= now:
                    append.finish(TIMED_OUT if partition.last_verdict(append) else ErrorCode.none)
            self._forget_finished(key, partition)

    def end(self) -> None:
        """Called when the stream ends: fail held appends and wake fetches, because no events will follow."""
        for partition in self._partitions.values():
            for append in partition.held:
                append.finish(partition.last_verdict(append))
            for waiter in partition.waiters:
                waiter.wake()
        self._partitions.clear()
        self._lost.clear()
        self._holding.clear()

    def _partition(self, key: Key) -> _Partition:
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = _Partition()
        return partition

    def _forget(self, key: Key) -> None:
        """Forget a partition unless an append or a fetch waits for it."""
        self._lost.pop(key, None)
        partition = self._partitions[key]
        if not partition.held and not partition.waiters:
            del self._partitions[key]

    def _settle(self, key: Key, partition: _Partition) -> int:
        """Finish the appends whose outcome is known, and return their number."""
        before = len(partition.held)
        if not before:
            return 0
        for append in partition.held:
            verdict = partition.verdict(append)
            if verdict is not None:
                append.finish(verdict)
        self._forget_finished(key, partition)
        return before - len(partition.held)

    def _forget_finished(self, key: Key, partition: _Partition) -> None:
        partition.held = [append for append in partition.held if not append.finished]
        if not partition.held:
            self._holding.discard(key)
