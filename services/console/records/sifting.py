"""Takes the records out of fetched batches, piece by piece, and selects those that are to be shown.

Decoding runs in a thread, so that the console answers others meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from kafscale.records.batch import verify_crc, walk
from kafscale.records.errors import CorruptBatch
from kafscale.records.record import Record, read_records
from services.console.records.decoding import TEXT, Decoder, visible
from services.console.records.query import Query

_PIECE_BYTES = 1 << 20
_MOST_RECORDS = 20_000
_MOST_HEADERS = 50


class Found(NamedTuple):
    """A record with its partition. ``appended``: whether its timestamp is the time at which it was appended."""

    partition: int
    record: Record
    appended: bool


@dataclass(slots=True)
class Piece:
    """Some consecutive records. ``following``: the offset after them. ``faults``: what could not be decoded."""

    following: int
    records: list[Found] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def pieces(
    partition: int, batches: bytes, position: int, end: int, *, largest: int, most: int = _MOST_RECORDS
) -> Iterator[Piece]:
    """Yield the records from ``position`` to ``end``, of which up to ``most`` are decoded at a time.

    A batch of more than ``largest`` bytes without compression, or a damaged one, is a fault.
    """
    piece, size = Piece(position), 0
    for start, header in walk(batches):
        if header.next_offset <= piece.following:
            continue
        if header.base_offset >= end:
            break
        try:
            verify_crc(batches, start, header)
            batch = memoryview(batches)[start : start + header.size]
            for record in () if header.is_control else read_records(batch, max_bytes=largest):
                if record.offset >= end:
                    break
                if record.offset >= piece.following:
                    piece.records.append(Found(partition, record, header.is_log_append_time))
                    piece.following = record.offset + 1
                    size += len(record.key or b"") + len(record.value or b"")
                    if size > _PIECE_BYTES or len(piece.records) >= most:
                        yield piece
                        piece, size = Piece(piece.following), 0
        except CorruptBatch as error:
            piece.faults.append(f"partition {partition}, offsets {header.base_offset} to {header.last_offset}: {error}")
        piece.following = min(header.next_offset, end)
    yield piece


@dataclass(frozen=True, slots=True)
class Turns:
    """What all reads and tails share, so that their memory is bounded.

    ``fetching``: held from a request for records until the answer is no longer needed. ``decoding``: held meanwhile by
    what decodes, because decoded records need much more memory than batches.
    """

    fetching: trio.CapacityLimiter
    decoding: trio.CapacityLimiter


class Sieve:
    """Selects and shows records by a query. ``turns``: for those who use it."""

    def __init__(self, query: Query, decoder: Decoder, turns: Turns, *, row_bytes: int) -> None:
        self.turns = turns
        self._query = query
        self._decoder = decoder
        self._row_bytes = row_bytes

    async def passing(self, found: list[Found]) -> list[Found]:
        """Return the records that pass the filter."""
        wanted = self._query.filter
        if wanted.passes_all:
            return found
        if wanted.path is not None:
            await self._decoder.learn(each.record.value for each in found)
        return await trio.to_thread.run_sync(
            lambda: [each for each in found if wanted.passes(each.record, self._decoder)]
        )

    async def rows(self, found: list[Found]) -> list[dict[str, Any]]:
        """Return records as a list shows them."""
        if not found:
            return []
        await self._decoder.learn(part for each in found for part in (each.record.key, each.record.value))
        return await trio.to_thread.run_sync(lambda: [self._row(each) for each in found])

    def _row(self, found: Found) -> dict[str, Any]:
        query, most = self._query, self._row_bytes
        return row(found, self._decoder, key_form=query.key_form, value_form=query.value_form, most=most)


def row(
    found: Found, decoder: Decoder, *, key_form: str, value_form: str, most: int, pretty: bool = False
) -> dict[str, Any]:
    """Return a record for a page. ``most``: how many characters of each part are shown."""
    record = found.record
    share = max(1, most // max(1, len(record.headers[:_MOST_HEADERS])))
    headers = [
        {"name": visible(name[:share].encode("utf-8", "replace").decode()), **decoder.shown(value, TEXT, share)}
        for name, value in record.headers[:_MOST_HEADERS]
    ]
    return {
        "partition": found.partition,
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "appended": found.appended,
        "key": decoder.shown(record.key, key_form, most, pretty=pretty),
        "value": decoder.shown(record.value, value_form, most, pretty=pretty),
        "headers": headers,
        "more_headers": len(record.headers) - len(headers),
    }
