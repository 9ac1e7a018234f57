"""Gathers appends for one storage instance into numbered messages, and deals out what their replies say.

While a message is under way, whatever arrives waits and goes in the next one. A message of unknown outcome is never
sent again. What is refused takes along all that stands behind it for its partition, so that nothing overtakes a retry.
"""

from collections import Counter, deque
from collections.abc import Callable

import trio
from kio.schema.errors import ErrorCode

from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import AppendReply, AppendRequest
from services.gateway.owners.commit_view import CommitView, Key
from services.gateway.owners.errors import MAY_BE_KEPT, NEVER_KEPT, TIMED_OUT, append_code_of, behind
from services.gateway.owners.pending import PendingAppend

_ENTRY_BYTES = 32
"""Of an append in a message, beside its records and the name of its partition."""


class AppendQueue:
    """What waits for its message. Bytes count from `put` until the reply, or until they are given up."""

    def __init__(self, *, max_bytes: int, message_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._message_bytes = message_bytes
        self._waiting: deque[PendingAppend] = deque()
        self._bytes = 0
        self._carried: Counter[Key] = Counter()
        self._arrived = trio.Event()
        self._room = trio.Event()
        # Nothing leaves it at present: who waits for room gives up.
        self._stuck = False

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
            self._wake()

    @property
    def empty(self) -> bool:
        return not self._waiting

    @property
    def keys(self) -> list[Key]:
        """The partitions of what waits here or is under way."""
        return list(self._carried)

    def carries(self, key: Key) -> bool:
        """Whether an append to the partition waits here or is under way."""
        return key in self._carried

    async def wait_for_room(self) -> None:
        """Wait while it is full and not stuck."""
        while self.full and not self._stuck:
            await self._room.wait()

    async def wait_for_work(self) -> None:
        while not self._waiting:
            await self._arrived.wait()

    def put(self, append: PendingAppend) -> None:
        self._waiting.append(append)
        self._bytes += append.size
        self._carried[append.key] += 1
        if not self._arrived.is_set():
            self._arrived.set()

    def take(self) -> list[PendingAppend]:
        """What goes into one message: at least one append where any waits."""
        taken: list[PendingAppend] = []
        size = 0
        waiting = self._waiting
        while waiting:
            # A message of many small appends is mostly what stands around them.
            size += waiting[0].size + waiting[0].partition.ByteSize() + _ENTRY_BYTES
            if taken and size > self._message_bytes:
                break
            taken.append(waiting.popleft())
        if not waiting:
            self._arrived = trio.Event()
        return taken

    def release(self, appends: list[PendingAppend]) -> None:
        """These are under way no more."""
        for append in appends:
            self._bytes -= append.size
            self._carried[append.key] -= 1
            if not self._carried[append.key]:
                del self._carried[append.key]
        if not self.full:
            self._wake()

    def refuse(self, key: Key, error: ErrorCode) -> None:
        """Give up all that waits for one partition."""
        self._drop([append for append in self._waiting if append.key == key], error)

    def refuse_all(self, error: ErrorCode) -> None:
        self._drop(list(self._waiting), error)

    def expire(self, now: float) -> None:
        """Give up what has waited for its producer's whole timeout, with all that stands behind it."""
        for key in {append.key for append in self._waiting if append.deadline <= now}:
            self.refuse(key, NEVER_KEPT)

    def _wake(self) -> None:
        self._room.set()
        self._room = trio.Event()

    def _drop(self, dropped: list[PendingAppend], error: ErrorCode) -> None:
        if not dropped:
            return
        gone = set(map(id, dropped))
        self._waiting = deque(append for append in self._waiting if id(append) not in gone)
        if not self._waiting:
            self._arrived = trio.Event()
        for append in dropped:
            append.finish(error)
        self.release(dropped)


class AppendStream:
    """The messages of one commit stream: numbers, what is under way, and the replies.

    ``moved`` is told of partitions that the instance does not own, and of their owner as far as it knows.
    """

    def __init__(self, stream_id: str, queue: AppendQueue, view: CommitView, moved: Callable[[Key, str], None]) -> None:
        self.stream_id = stream_id
        self._moved = moved
        self._queue = queue
        self._view = view
        self._sequence = 0
        self._seen = 0
        self._under_way: dict[int, list[PendingAppend]] = {}
        self._quiet = trio.Event()

    async def quiet(self) -> None:
        """Wait until no message is under way."""
        while self._under_way:
            await self._quiet.wait()

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    def next_message(self) -> AppendRequest:
        """A message with what waits; the queue is not empty."""
        appends = self._queue.take()
        self._sequence += 1
        self._under_way[self._sequence] = appends
        message = AppendRequest(stream_id=self.stream_id, sequence=self._sequence, seen=self._seen)
        for append in appends:
            entry = message.appends.add()
            entry.partition.CopyFrom(append.partition)
            entry.records = bytes(append.records)
            entry.unacknowledged = append.unacknowledged
            if append.trace:
                entry.trace = append.trace
            append.records = b""
        return message

    def replied(self, sequence: int, reply: AppendReply) -> None:
        """Deal out one reply."""
        appends = self._under_way.pop(sequence, [])
        if not self._under_way:
            self._quiet.set()
            self._quiet = trio.Event()
        # Highest without a gap: a later reply may overtake an earlier one that holds the refusal.
        self._seen = min(self._under_way, default=self._sequence + 1) - 1
        self._queue.release(appends)
        if len(reply.results) != len(appends):
            for append in appends:
                append.finish(MAY_BE_KEPT)
            return
        for append, result in zip(appends, reply.results, strict=True):
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
            append.wait_for = result.hold_until if append.unacknowledged else result.end_offset
            if append.wait_for:
                self._view.hold(append)
            else:
                append.finish(ErrorCode.none)

    def expire(self, now: float) -> None:
        for appends in self._under_way.values():
            for append in appends:
                if append.deadline <= now:
                    append.finish(TIMED_OUT)

    def end(self) -> None:
        """No reply will come: the outcome of what is under way is unknown."""
        under_way, self._under_way = self._under_way, {}
        for appends in under_way.values():
            for append in appends:
                append.finish(MAY_BE_KEPT)
            self._queue.release(appends)
