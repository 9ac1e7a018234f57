"""The commit streams: what the gateways that appended to or fetched from a partition are told of it."""

from collections.abc import Awaitable, Callable

import trio

from kafscale.v1.storage_pb2 import CommitsEvent, Committed

_REFUSED = 1000  # partitions whose last refusals are remembered before those are dropped that the caller knows of

Key = tuple[bytes, int]
Send = Callable[[CommitsEvent], Awaitable[None]]


class CommitStream:
    """One gateway's stream, and the order of its appends.

    What waits to be sent is bounded by the partitions subscribed to: a newer end of an epoch replaces the older one.
    """

    def __init__(self) -> None:
        self._pending: dict[Key, list[Committed]] = {}
        self._wake = trio.Event()
        self._subscribed: set[Key] = set()
        self._turn = trio.Event()
        self.applied = 0
        self._ended = False
        # Partition -> the sequence of the append that was refused last.
        self.refused: dict[Key, int] = {}

    def subscribe(self, key: Key, now: Callable[[], Committed]) -> None:
        """Tell of this partition from here on; ``now`` gives how it stands, which is told first."""
        if key not in self._subscribed:
            self._subscribed.add(key)
            self.tell(key, now())

    def tell(self, key: Key, news: Committed) -> None:
        """Queue ``news`` of a partition, if the stream is subscribed to it."""
        if key not in self._subscribed:
            return
        waiting = self._pending.setdefault(key, [])
        if waiting and waiting[-1].epoch == news.epoch and not waiting[-1].lost:
            waiting.pop()
        waiting.append(news)
        self._wake.set()

    def forget(self, key: Key) -> None:
        """Unsubscribe from a partition that this instance has no more.

        What was refused stays so: it may come back before the caller has seen that.
        """
        self._subscribed.discard(key)

    def end(self) -> None:
        """Nothing more will be told than what waits already."""
        self._ended = True
        self._wake.set()
        self._turn.set()

    async def turn(self, sequence: int) -> bool:
        """Wait until the append ``sequence`` is next; False: it was applied before, or never will be."""
        while sequence > self.applied + 1 and not self._ended:
            await self._turn.wait()
        return sequence == self.applied + 1

    def seen(self, sequence: int) -> None:
        """The caller knows of what was refused up to this append."""
        if len(self.refused) > _REFUSED:
            self.refused = {key: refused for key, refused in self.refused.items() if refused > sequence}

    def applied_one(self) -> None:
        self.applied += 1
        self._turn.set()
        self._turn = trio.Event()

    async def pump(self, send: Send, heartbeat_seconds: float) -> None:
        """Send what comes, and a sign of life when nothing does, until `end` or cancelled."""
        await send(CommitsEvent(ready=True))
        while not self._ended or self._pending:
            with trio.move_on_after(heartbeat_seconds):
                await self._wake.wait()
            self._wake = trio.Event()
            pending, self._pending = self._pending, {}
            await send(CommitsEvent(committed=[news for waiting in pending.values() for news in waiting]))


class CommitStreams:
    """All streams of this instance by their id."""

    def __init__(self, heartbeat_seconds: float) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._streams: dict[str, CommitStream] = {}

    def get(self, stream_id: str) -> CommitStream | None:
        return self._streams.get(stream_id)

    async def serve(self, stream_id: str, send: Send) -> None:
        """One stream from its first event until the caller goes."""
        stream = self._streams[stream_id] = CommitStream()
        try:
            await stream.pump(send, self._heartbeat_seconds)
        finally:
            if self._streams.get(stream_id) is stream:
                del self._streams[stream_id]

    def announce(self, key: Key, news: Committed) -> None:
        """Tell every subscribed stream what became of a partition."""
        for stream in self._streams.values():
            stream.tell(key, news)

    def end(self) -> None:
        """The run is over: callers learn it from their streams' end."""
        for stream in self._streams.values():
            stream.end()

    def forget(self, key: Key) -> None:
        for stream in self._streams.values():
            stream.forget(key)
