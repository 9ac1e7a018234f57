"""A live tail: the records of a topic as they arrive, as many in a second as its user chose.

Nothing waits in the console for a browser. While one does not read, or more records arrive than its user wants to see,
they stay in the log. Those that were there when the tail began are then shown one after the other. Of later ones the
tail leaves some out, which it says, and goes on with the newest. What it leaves out is not fetched without a filter.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import KafscaleError
from kafscale.kafka_client.reader import EARLIEST, LATEST, Fetched, TopicReader
from kafscale.kafka_client.requests import Refusal
from services.console.live import Send
from services.console.records.faults import Faults
from services.console.records.query import Query
from services.console.records.reading import beginnings, partitions_of
from services.console.records.sifting import Piece, Sieve, pieces
from services.console.requests import WrongRequest

_TICK = 0.5
"""Seconds from one fetch to the next, at least."""
_MOST_BEHIND = 5.0
"""Seconds for which a partition may be behind its end before the tail goes on there."""
_LOOK_UP = 10.0
"""Seconds after which a tail looks for new partitions."""
_PAUSE = 1.0

Open = Callable[[Callable[[str], None]], Any]


class Tail:
    """One live tail. ``open_reader`` returns a context manager of a `TopicReader` that warns with its argument, and
    ``lives`` whether the user may still read."""

    def __init__(
        self, query: Query, sieve: Sieve, open_reader: Open, lives: Callable[[], bool], *, largest: int
    ) -> None:
        self._query = query
        self._sieve = sieve
        self._open_reader = open_reader
        self._lives = lives
        self._largest = largest
        self._filters = not query.filter.passes_all
        self._positions: dict[int, int] = {}
        self._old: dict[int, int] = {}
        """Where each partition ended when the tail began: what is below is not left out."""
        self._behind: dict[int, float] = {}
        """Since when a partition has been behind its end."""
        self._tokens = 0.0
        self._filled = trio.current_time()
        self._looked_up = -math.inf
        self._failed = True
        """Whether the page was not told yet that fetches succeed."""
        self._rows: list[dict[str, Any]] = []
        self._left_out: dict[int, tuple[int, int]] = {}
        self._faults = Faults()

    async def run(self, send: Send) -> None:
        """Send messages until the user may not read any more. Failures are sent and survived, too."""
        while self._lives():
            try:
                async with self._open_reader(self._warn) as reader:
                    await self._look_up(reader)
                    await send({"positions": self._as_json()})
                    await self._follow(reader, send)
                    return
            except (KafscaleError, WrongRequest) as error:
                self._failed = True
                await send({"fault": str(error)})
            await trio.sleep(_PAUSE)

    def _warn(self, text: str) -> None:
        self._faults.add(text)

    async def _look_up(self, reader: TopicReader) -> None:
        """Look up the partitions. Those that were added since the tail began are shown from their beginning."""
        self._looked_up = trio.current_time()
        # All of them, also if the page names the positions of those that it knows.
        places = await partitions_of(reader, replace(self._query, at=None))
        if not self._positions:
            ends = await reader.offsets(places, LATEST)
            self._positions = await beginnings(reader, self._query, places, ends)
            self._old = ends
            return
        for gone in set(self._positions).difference(places):
            del self._positions[gone]
            self._faults.add(f"partition {gone} does not exist any more")
        for added in set(places).difference(self._positions):
            self._positions[added] = self._old[added] = 0

    async def _follow(self, reader: TopicReader, send: Send) -> None:
        while self._lives():
            started = trio.current_time()
            if started >= self._looked_up + _LOOK_UP:
                await self._look_up(reader)
            if await self._fetch(reader) and self._failed:
                self._failed = False
                await send({"fault": ""})
            if self._rows or self._left_out or self._faults:
                await send(self._message())
            await trio.sleep_until(started + _TICK)

    async def _fetch(self, reader: TopicReader) -> bool:
        """Take what comes next. Return whether all partitions could be fetched."""
        async with self._sieve.turns.fetching:
            try:
                found = await reader.fetch(self._positions, list(self._positions))
            except Refusal as refusal:
                if refusal.code is not ErrorCode.offset_out_of_range or not await self._begin_again(reader):
                    raise
                return False
            for fetched in _turned(found, trio.current_time()):
                async with self._sieve.turns.decoding:
                    self._refill()
                    await self._take(fetched)
        return len(found) == len(self._positions)

    async def _begin_again(self, reader: TopicReader) -> bool:
        """Go to the beginning of logs that end before their positions. Return whether there is one."""
        ends = await reader.offsets(self._positions, LATEST)
        restarted = {place: at for place, at in self._positions.items() if at > ends[place]}
        firsts = await reader.offsets(restarted, EARLIEST)
        for place, at in restarted.items():
            self._faults.add(
                f"partition {place} ends at offset {ends[place]}, before offset {at}: the topic was created again. "
                f"Its records are shown from offset {firsts[place]} on"
            )
            self._positions[place], self._old[place] = firsts[place], ends[place]
            self._behind.pop(place, None)
        return bool(restarted)

    def _refill(self) -> None:
        now = trio.current_time()
        self._tokens = min(self._query.limit, self._tokens + (now - self._filled) * self._query.limit)
        self._filled = now

    async def _take(self, fetched: Fetched) -> None:
        """Take what may be shown of a fetched part, and go on behind what may not."""
        place = fetched.partition
        position = self._positions[place]
        if self._tokens >= 1 or (self._filters and position >= self._old[place]):
            found = self._pieces(fetched)
            while (piece := await trio.to_thread.run_sync(next, found, None)) is not None:
                passing = await self._sieve.passing(piece.records)
                shown = passing[: math.floor(self._tokens)]
                self._tokens -= len(shown)
                # At once, because records may be much larger than what is shown of them.
                self._rows += await self._sieve.rows(shown)
                for fault in piece.faults:
                    self._faults.add(fault)
                if len(shown) == len(passing):
                    self._positions[place] = piece.following
                    continue
                unseen = passing[len(shown)].record.offset
                self._positions[place] = unseen
                if not self._filters or unseen < self._old[place]:
                    break
                self._leave_out(place, piece.following)
        self._keep_up(place, fetched.end)

    def _pieces(self, fetched: Fetched) -> Iterator[Piece]:
        # Without a filter, only those are decoded that are shown.
        most = {} if self._filters else {"most": math.floor(self._tokens)}
        place = fetched.partition
        return pieces(place, fetched.batches, self._positions[place], fetched.end, largest=self._largest, **most)

    def _keep_up(self, place: int, end: int) -> None:
        """Go on with the newest records if a partition is behind its end, because of the rate or for too long."""
        position, now = self._positions[place], trio.current_time()
        if position >= end or position < self._old[place]:
            self._behind.pop(place, None)
            return
        since = self._behind.setdefault(place, now)
        if self._tokens >= 1 and now - since < _MOST_BEHIND:
            return
        if self._filters and now - since < _MOST_BEHIND:
            return
        spare = 0 if self._filters else math.ceil(self._query.limit * _TICK / len(self._positions))
        self._leave_out(place, max(position, end - spare))
        self._behind.pop(place, None)

    def _leave_out(self, place: int, until: int) -> None:
        position = self._positions[place]
        if until > position:
            first, _ = self._left_out.get(place, (position, until))
            self._left_out[place] = first, until
            self._positions[place] = until

    def _message(self) -> dict[str, Any]:
        rows = sorted(self._rows, key=lambda row: int(row["timestamp"]))
        left_out = [
            {"partition": place, "from": str(first), "to": str(until)}
            for place, (first, until) in sorted(self._left_out.items())
        ]
        faults = self._faults.texts()
        self._rows, self._left_out, self._faults = [], {}, Faults()
        return {"records": rows, "left_out": left_out, "faults": faults, "positions": self._as_json()}

    def _as_json(self) -> dict[str, str]:
        return {str(place): str(offset) for place, offset in self._positions.items()}


def _turned(found: list[Fetched], moment: float) -> list[Fetched]:
    """Begin with another partition each time, so that one does not use up the rate of all."""
    by = int(moment / _TICK) % max(1, len(found))
    return found[by:] + found[:by]
