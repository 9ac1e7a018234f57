"""Reads records by a query, with a bound for everything, and says how far it came."""

import heapq
from collections.abc import Mapping
from typing import Any

import trio

from kafscale.kafka_client.reader import EARLIEST, LATEST, Fetched, TopicReader
from services.console.records.faults import Faults
from services.console.records.query import MOST_PARTITIONS, NEWEST, TIME, Query, as_positions, start_of
from services.console.records.settings import RecordsSettings
from services.console.records.sifting import Found, Piece, Sieve, pieces
from services.console.requests import WrongRequest


async def partitions_of(reader: TopicReader, query: Query) -> list[int]:
    """Look up which partitions a query is for. Raises WrongRequest, Refusal, Unavailable."""
    found = await reader.open()
    if query.at is not None:
        found = [place for place in found if place in query.at]
    elif query.partition is not None:
        found = [place for place in found if place == query.partition]
    if not found:
        raise WrongRequest("the topic has no such partition")
    if len(found) > MOST_PARTITIONS:
        raise WrongRequest(f"the topic has {len(found)} partitions; choose one of them")
    return found


async def beginnings(reader: TopicReader, query: Query, places: list[int], ends: Mapping[int, int]) -> dict[int, int]:
    """Return the offset at which each partition is read first. Raises WrongRequest, Refusal, Unavailable."""
    if query.at is not None:
        # One that is not named was added since.
        return {place: query.at.get(place, 0) for place in places}
    if query.start == TIME:
        found = await reader.offsets(places, query.number)
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}
    firsts = await reader.offsets(places, EARLIEST)
    return {place: start_of(query, place, first=firsts[place], end=ends[place]) for place in places}


class Reading:
    """One read. `run` may be cancelled at any moment; `answer` is what was found until then."""

    def __init__(self, query: Query, sieve: Sieve, settings: RecordsSettings) -> None:
        self._query = query
        self._sieve = sieve
        self._settings = settings
        self._newest = query.start == NEWEST and query.at is None
        self._rows: list[tuple[tuple[int, int, int], dict[str, Any]]] = []
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._scanned = self._bytes = 0
        self.faults = Faults()

    async def run(self, reader: TopicReader) -> None:
        """Read until enough is found, the logs end, or so many bytes were read. Raises what `TopicReader` does."""
        places = await partitions_of(reader, self._query)
        self._ends = await reader.offsets(places, LATEST)
        self._positions = await beginnings(reader, self._query, places, self._ends)
        while (unfinished := self._unfinished) and not self._full and self._bytes < self._settings.read_bytes:
            await self._fetch(reader, unfinished)

    async def _fetch(self, reader: TopicReader, places: list[int]) -> None:
        async with self._sieve.turns.fetching:
            for fetched in await reader.fetch(self._positions, places):
                self._bytes += len(fetched.batches)
                async with self._sieve.turns.decoding:
                    await self._take(fetched)

    async def _take(self, fetched: Fetched) -> None:
        place = fetched.partition
        found = pieces(
            place,
            fetched.batches,
            self._positions[place],
            self._ends[place],
            largest=self._settings.decoded_bytes,
        )
        while not self._full and (piece := await trio.to_thread.run_sync(next, found, None)) is not None:
            await self._sift(place, piece)

    async def _sift(self, place: int, piece: Piece) -> None:
        passing = await self._sieve.passing(piece.records)
        following, scanned = piece.following, len(piece.records)
        if not self._newest and len(passing) > self._room:
            passing = passing[: self._room]
            following = passing[-1].record.offset + 1
            scanned = sum(each.record.offset < following for each in piece.records)
        elif self._newest:
            passing = passing[-self._query.limit :]
        rows = await self._sieve.rows(passing)
        for each, row in zip(passing, rows, strict=True):
            self._keep(each, row)
        for fault in piece.faults:
            self.faults.add(fault)
        self._scanned += scanned
        self._positions[place] = following

    def _keep(self, found: Found, row: dict[str, Any]) -> None:
        entry = ((found.record.timestamp, found.partition, found.record.offset), row)
        if not self._newest:
            self._rows.append(entry)
        elif len(self._rows) < self._query.limit:
            heapq.heappush(self._rows, entry)
        else:
            heapq.heappushpop(self._rows, entry)

    @property
    def _room(self) -> int:
        return self._query.limit - len(self._rows)

    @property
    def _full(self) -> bool:
        """Whether enough was found. Newer records may follow the newest ones so far."""
        return not self._newest and self._room <= 0

    @property
    def _unfinished(self) -> list[int]:
        return [place for place, offset in self._positions.items() if offset < self._ends[place]]

    def answer(self) -> dict[str, Any]:
        """Return what was found, and ``next``, at which a request continues; empty if all was read."""
        rows = [row for _, row in sorted(self._rows, key=lambda entry: entry[0])]
        following = {place: self._positions[place] for place in self._unfinished}
        return {
            "records": rows,
            "scanned": self._scanned,
            "bytes": self._bytes,
            "next": as_positions(following),
            "end": as_positions(self._ends),
            "left": str(sum(self._ends[place] - offset for place, offset in following.items())),
            "faults": self.faults.texts(),
        }
