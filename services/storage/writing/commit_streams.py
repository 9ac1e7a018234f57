"""Commit streams: report commits of a partition to the gateways that appended to it or fetched from it."""

from collections.abc import Awaitable, Callable

import trio

from kafscale.signals import Signal
from kafscale.v1.storage_pb2 import CommitsEvent, Committed
from services.storage.log.partition import CommitEvent

_MAX_REFUSED = 1000  # remembered refusals, after which those that the caller has seen are dropped

Key = tuple[bytes, int]
Send = Callable[[CommitsEvent], Awaitable[None]]
Report = Callable[[CommitEvent], bool]
"""Applies an event at once. Returns whether that was possible. It must not raise."""


class CommitStream:
    """The stream of one gateway, and the order of its appends.

    The queue is bounded by the number of subscribed partitions: a newer event of an epoch replaces the pending one.
    """

    def __init__(self) -> None:
        self._pending: dict[Key, list[CommitEvent]] = {}
        self._wake = trio.Event()
        self._subscribed: set[Key] = set()
        self._turn = Signal()
        self.applied = 0
        self._ended = False
        # Partition -> the sequence of the last refused append.
        self.refused: dict[Key, int] = {}
        # An event is due, even if there is no news.
        self._beat = False
        # What replies wait for.
        self._awaited: dict[trio.Event, Callable[[], bool]] = {}
        self.report: Report | None = None
        """Takes the events of a caller in this process. What it does not take is sent."""

    def subscribe(self, key: Key, now: Callable[[], CommitEvent]) -> None:
        """Report this partition from now on, beginning with the event that ``now`` returns."""
        if key not in self._subscribed:
            self._subscribed.add(key)
            self.notify(key, now())

    def notify(self, key: Key, event: CommitEvent) -> None:
        """Queue ``event`` of a partition, if the stream is subscribed to it."""
        if key not in self._subscribed or (self.report is not None and self.report(event)):
            return
        waiting = self._pending.setdefault(key, [])
        if waiting and waiting[-1].epoch == event.epoch and not waiting[-1].lost:
            waiting.pop()
        waiting.append(event)
        self._wake.set()

    def forget(self, key: Key) -> None:
        """Unsubscribe from a partition that this instance no longer owns.

        Refusals are kept, because the partition may come back before the caller has seen them.
        """
        self._subscribed.discard(key)
        if self._awaited:
            self._wake.set()

    def end(self) -> None:
        """End the stream after the pending events are sent."""
        self._ended = True
        self._wake.set()
        self._turn.notify()

    async def turn(self, sequence: int) -> bool:
        """Wait until the append ``sequence`` is next. Return False if it was applied before or never will be."""
        while sequence > self.applied + 1 and not self._ended:
            await self._turn.wait()
        return sequence == self.applied + 1

    def seen(self, sequence: int) -> None:
        """Note that the caller has seen the refusals up to this append."""
        if len(self.refused) > _MAX_REFUSED:
            self.refused = {key: refused for key, refused in self.refused.items() if refused > sequence}

    def applied_one(self) -> None:
        self.applied += 1
        self._turn.notify()

    async def events_for(self, is_reached: Callable[[], bool], *, seconds: float) -> list[Committed]:
        """Wait until ``is_reached()``, at most ``seconds``. Return the events that are pending, for a reply.

        ``is_reached`` is called when there is an event. The wait also ends with the stream.
        """
        if not (is_reached() or self._ended):
            reached = trio.Event()
            self._awaited[reached] = is_reached
            try:
                with trio.move_on_after(seconds):
                    await reached.wait()
            finally:
                del self._awaited[reached]
        return self._take()

    def beat(self) -> None:
        """Send an event even if there is no news."""
        self._beat = True
        self._wake.set()

    async def pump(self, send: Send) -> None:
        """Send events until `end` or cancelled, except those that replies take."""
        try:
            await send(CommitsEvent(ready=True))
            while not self._ended or self._pending:
                await self._wake.wait()
                self._wake = trio.Event()
                beat, self._beat = self._beat, False
                if not self._let_replies_go() or beat or self._ended:
                    await send(CommitsEvent(committed=self._take()))
        finally:
            self.end()
            self._let_replies_go()

    def _let_replies_go(self) -> bool:
        """End the waits that have reached their aim. Return whether a reply will take the pending events."""
        found = [
            reached
            for reached, is_reached in self._awaited.items()
            if not reached.is_set() and (self._ended or is_reached())
        ]
        for reached in found:
            reached.set()
        return bool(found)

    def _take(self) -> list[Committed]:
        pending, self._pending = self._pending, {}
        return [Committed(**event._asdict()) for waiting in pending.values() for event in waiting]


class CommitStreams:
    """All streams of this instance by id. Requires that `run` is running."""

    def __init__(self, heartbeat_seconds: float) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._streams: dict[str, CommitStream] = {}

    def get(self, stream_id: str) -> CommitStream | None:
        return self._streams.get(stream_id)

    async def run(self) -> None:
        """Send heartbeats on all streams until cancelled, so that callers notice a dead instance."""
        while True:
            await trio.sleep(self._heartbeat_seconds)
            for stream in self._streams.values():
                stream.beat()

    async def serve(self, stream_id: str, send: Send) -> None:
        """Serve one stream from its first event until the caller disconnects."""
        stream = self._streams[stream_id] = CommitStream()
        try:
            await stream.pump(send)
        finally:
            if self._streams.get(stream_id) is stream:
                del self._streams[stream_id]

    def announce(self, key: Key, event: CommitEvent) -> None:
        """Report an event of a partition to every subscribed stream."""
        for stream in self._streams.values():
            stream.notify(key, event)

    def end(self) -> None:
        """End all streams, by which callers notice that the run has ended."""
        for stream in self._streams.values():
            stream.end()

    def forget(self, key: Key) -> None:
        for stream in self._streams.values():
            stream.forget(key)
