"""Collects appends for one storage instance into numbered messages, and distributes the results in their replies.

While a message is in flight, new appends are queued for the next one. A message whose outcome is unknown is never sent
again. If an append is refused, all later appends for its partition that are still queued are refused too, so that they
do not overtake a retry. One that arrives later may do so, as in Kafka, unless its producer is idempotent.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio
from kio.schema.errors import ErrorCode

from kafscale.returning import Returning
from kafscale.signals import Signal
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import AppendRequest
from services.gateway.owners.commit_view import CommitEvent, CommitView, Key
from services.gateway.owners.errors import MAY_BE_KEPT, NEVER_KEPT, TIMED_OUT, append_code_of, behind
from services.gateway.owners.pending import PendingAppend

_LONGEST_GATHER = 2
"""How many times ``gather`` a message waits at most, if more producers are answered meanwhile."""
_SHORT_REPLIES = 2
"""How many of the messages in flight have replies that do not wait, so that slow records do not delay others."""


class AppendQueue:
    """Appends that wait to be sent. Their bytes count from `put` until the reply arrives or they are refused.

    Callers should `wait_for_room` before they `put` an append into a queue that is full. A message waits for the
    producers that were just answered (`Returning`), because it costs more than its appends: for ``gather`` seconds
    after the answer, and for twice that in all if more are answered meanwhile.
    """

    def __init__(self, *, max_bytes: int, message_bytes: int, gather: float) -> None:
        self._max_bytes = max_bytes
        self._message_bytes = message_bytes
        self._gather = gather
        self._waiting: deque[PendingAppend] = deque()
        self._waiting_bytes = 0
        self._returning = Returning()
        self._gathered = Signal()
        self._bytes = 0
        self._carried: Counter[Key] = Counter()
        self._arrived = Signal()
        self._room = Signal()
        self._use = Signal()
        self._used = False
        # The queue is not being emptied, so nobody should wait for space.
        self._stuck = False
        self._ended = False

    @property
    def full(self) -> bool:
        return self._bytes >= self._max_bytes

    @property
    def stuck(self) -> bool:
        return self._stuck

    @stuck.setter
    def stuck(self, stuck: bool) -> None:
        self._stuck = stuck
        if stuck:
            self._room.notify()

    @property
    def empty(self) -> bool:
        return not self._waiting

    @property
    def keys(self) -> list[Key]:
        """The partitions of the appends that are queued or in flight."""
        return list(self._carried)

    def carries(self, key: Key) -> bool:
        """Whether an append to the partition is queued or in flight."""
        return key in self._carried

    async def wait_for_room(self) -> None:
        """Wait while the queue is full, but not for long if no stream empties it."""
        while self.full and not self._stuck:
            await self._room.wait()

    async def wait_for_work(self) -> None:
        """Wait for appends, and for those of the producers that were just answered."""
        while not self._waiting:
            await self._arrived.wait()
        latest = trio.current_time() + _LONGEST_GATHER * self._gather
        while not self._is_gathered and (until := min(self._returning.until, latest)) > trio.current_time():
            with trio.move_on_at(until):
                await self._gathered.wait()

    @property
    def _is_gathered(self) -> bool:
        enough = len(self._waiting) >= self._returning.expected
        return enough or self._waiting_bytes >= self._message_bytes or self.full

    def answered(self, count: int) -> None:
        """Called when ``count`` appends were answered, so that their producers may send the next ones."""
        if not (count and self._gather):
            return
        now, before = trio.current_time(), len(self._waiting)
        if now < self._returning.until:
            # Not all of those who were answered before have returned yet.
            before = max(before, self._returning.expected)
        self._returning.answered(now, count, waiting=before, seconds=self._gather)
        self._gathered.notify()

    async def wait_for_use(self) -> None:
        """Wait until an append was put since the last call of `rest`."""
        while not self._used:
            await self._use.wait()

    def rest(self) -> None:
        self._used = False

    def put(self, append: PendingAppend) -> None:
        """Send the records with the next message. ``append.finish`` is called with the outcome."""
        if self._ended:
            append.finish(NEVER_KEPT)
            return
        append.keep_records()
        if not self._used:
            self._used = True
            self._use.notify()
        self._waiting.append(append)
        self._waiting_bytes += append.message_size
        self._bytes += append.size
        self._carried[append.key] += 1
        self._arrived.notify()
        if self._returning.expected and self._is_gathered:
            self._gathered.notify()

    def take(self) -> list[PendingAppend]:
        """Remove and return the appends for one message: at least one, unless the queue is empty."""
        if self._returning.expected:
            in_time = trio.current_time() < self._returning.until
            self._returning.began(gathered=self._is_gathered or in_time)
        taken: list[PendingAppend] = []
        size = 0
        waiting = self._waiting
        while waiting:
            size += waiting[0].message_size
            if taken and size > self._message_bytes:
                break
            taken.append(waiting.popleft())
            self._waiting_bytes -= taken[-1].message_size
        return taken

    def release(self, appends: list[PendingAppend]) -> None:
        """Release the bytes of appends that are no longer in flight."""
        for append in appends:
            self._bytes -= append.size
            self._carried[append.key] -= 1
            if not self._carried[append.key]:
                del self._carried[append.key]
        if not self.full:
            self._room.notify()

    def refuse(self, key: Key, error: ErrorCode) -> None:
        """Refuse all queued appends for one partition."""
        self._drop([append for append in self._waiting if append.key == key], error)

    def refuse_all(self, error: ErrorCode) -> None:
        self._drop(list(self._waiting), error)

    def end(self) -> None:
        """Refuse all appends that are queued, and all later ones."""
        self._ended = True
        self.refuse_all(NEVER_KEPT)

    def expire(self, now: float) -> None:
        """Refuse queued appends whose deadline has passed, and the other queued appends for their partitions."""
        for key in {append.key for append in self._waiting if append.deadline <= now}:
            self.refuse(key, NEVER_KEPT)

    def _drop(self, dropped: list[PendingAppend], error: ErrorCode) -> None:
        if not dropped:
            return
        gone = set(map(id, dropped))
        self._waiting = deque(append for append in self._waiting if id(append) not in gone)
        self._waiting_bytes = sum(append.message_size for append in self._waiting)
        for append in dropped:
            append.finish(error)
        self.release(dropped)


@dataclass(slots=True)
class AppendMessage:
    """An `AppendRequest` that shares its records with the appends. In this process, storage takes it as it is.

    A reply to an unacknowledged append does not wait, so ``wait_ms`` counts only if there is none.
    """

    stream_id: str
    sequence: int
    seen: int
    wait_ms: int
    appends: Sequence[PendingAppend]

    def request(self) -> AppendRequest:
        """Return the message for a call, and drop the records, which it has then."""
        wait_ms = 0 if any(append.unacknowledged for append in self.appends) else self.wait_ms
        request = AppendRequest(stream_id=self.stream_id, sequence=self.sequence, seen=self.seen, wait_ms=wait_ms)
        for append in self.appends:
            entry = request.appends.add()
            entry.partition.CopyFrom(append.partition)
            entry.records = bytes(append.records)
            entry.unacknowledged = append.unacknowledged
            if append.trace:
                entry.trace = append.trace
        self.drop_records()
        return request

    def drop_records(self) -> None:
        for append in self.appends:
            append.records, append.header = b"", None


class Appended(Protocol):
    """A `PartitionAppended`, or what storage in this process has in its place."""

    @property
    def status(self) -> Status: ...
    @property
    def detail(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def log_start(self) -> int: ...
    @property
    def append_time_ms(self) -> int: ...
    @property
    def hold_until(self) -> int: ...
    @property
    def owner(self) -> str: ...
    @property
    def durable_soon(self) -> bool: ...


class AppendStream:
    """The append messages of one commit stream: their numbers, those in flight, and the replies.

    ``moved`` is called for each partition that the instance does not own, with the owner if the instance knows it.
    While few of ``most`` messages are in flight, replies wait up to ``wait_ms`` until records are durable. Otherwise,
    only the commit stream reports that.
    """

    def __init__(
        self,
        stream_id: str,
        queue: AppendQueue,
        view: CommitView,
        moved: Callable[[Key, str], None],
        *,
        most: int,
        wait_ms: int,
    ) -> None:
        self.stream_id = stream_id
        self._most_waiting = most - _SHORT_REPLIES
        self._wait_ms = wait_ms
        self._moved = moved
        self._queue = queue
        self._view = view
        self._sequence = 0
        self._seen = 0
        self._under_way: dict[int, list[PendingAppend]] = {}
        self._quiet = Signal()

    async def quiet(self) -> None:
        """Wait until no message is in flight."""
        while self._under_way:
            await self._quiet.wait()

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    @property
    def appends(self) -> int:
        """The number of appends in the messages in flight."""
        return sum(map(len, self._under_way.values()))

    def next_message(self) -> AppendMessage:
        """Return a message with queued appends. The queue must not be empty."""
        appends = self._queue.take()
        self._sequence += 1
        self._under_way[self._sequence] = appends
        wait_ms = self._wait_ms if len(self._under_way) <= self._most_waiting else 0
        return AppendMessage(self.stream_id, self._sequence, self._seen, wait_ms, appends)

    def replied(self, sequence: int, results: Sequence[Appended], committed: Iterable[CommitEvent] = ()) -> int:
        """Finish or hold the appends of one message according to its reply. Return how many have become durable."""
        appends = self._under_way.pop(sequence, [])
        if not self._under_way:
            self._quiet.notify()
        # The highest number without a gap, because a later reply may overtake an earlier one with a refusal.
        self._seen = min(self._under_way, default=self._sequence + 1) - 1
        self._queue.release(appends)
        if len(results) != len(appends):
            for append in appends:
                append.finish(MAY_BE_KEPT)
            return 0
        durable = self._view.apply(committed)
        for append, result in zip(appends, results, strict=True):
            if result.status != common_pb2.OK:
                error = append_code_of(result.status)
                if result.status == common_pb2.NOT_OWNER:
                    self._moved(append.key, result.owner)
                if result.status == common_pb2.UNKNOWN_PRODUCER:
                    append.log_start = result.log_start
                append.finish(error, result.detail)
                self._queue.refuse(append.key, behind(error))
                continue
            append.epoch = result.epoch
            append.base_offset = result.base_offset
            append.log_start = result.log_start
            append.append_time_ms = result.append_time_ms
            append.hold_until = result.hold_until
            if not append.unacknowledged or (append.acks and result.durable_soon):
                append.wait_for = result.end_offset
            if append.wait_for or append.hold_until:
                self._view.hold(append)
                durable += append.finished
            else:
                append.finish(ErrorCode.none)
        return durable

    def expire(self, now: float) -> None:
        for appends in self._under_way.values():
            for append in appends:
                if append.deadline <= now:
                    append.finish(TIMED_OUT)

    def end(self) -> None:
        """Called when the stream ends: the outcome of the appends in flight is unknown."""
        under_way, self._under_way = self._under_way, {}
        for appends in under_way.values():
            for append in appends:
                append.finish(MAY_BE_KEPT)
            self._queue.release(appends)
