"""Stand-ins for the parts of the console that do IO."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache

import trio

from kafscale.config.settings import load
from kafscale.errors import Unavailable
from kafscale.kafka_client.reader import EARLIEST, LATEST, Fetched
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from services.console.records.decoding import Decoder
from services.console.records.query import Query
from services.console.records.registry import Registry
from services.console.records.settings import RecordsSettings
from services.console.records.sifting import Sieve

FETCH_BYTES = 16 << 10


class Log:
    """A topic whose brokers answer as KafScale's do: whole batches from the one with the wanted offset on.

    As a reader, it counts the bytes that it was asked for.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.batches: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.fetched = 0
        self.opened = 0
        self.is_gone = False

    def append(self, values: Sequence[bytes], partition: int = 0, codec: Codec = Codec.NONE) -> None:
        """Append a batch. The timestamp of each record is its offset."""
        first = self.ends[partition]
        records = [Record(first + at, first + at, None, value) for at, value in enumerate(values)]
        self.batches[partition].append((first + len(values), build_batch(records, base_offset=first, codec=codec)))
        self.ends[partition] += len(values)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator["Log"]:
        self.opened += 1
        yield self

    async def open(self) -> list[int]:
        if self.is_gone:
            raise Unavailable("no broker answers")
        return list(range(len(self.ends)))

    async def offsets(self, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
        known = {EARLIEST: lambda _: 0, LATEST: lambda place: self.ends[place]}
        find: Callable[[int], int] = known.get(
            timestamp, lambda place: timestamp if timestamp < self.ends[place] else -1
        )
        return {place: find(place) for place in partitions}

    async def fetch(self, positions: dict[int, int], partitions: Iterable[int]) -> list[Fetched]:
        await trio.sleep(0.01)
        if self.is_gone:
            raise Unavailable("the broker is gone")
        found = []
        for place in partitions:
            data = b""
            for following, batch in self.batches[place]:
                if following > positions[place] and (not data or len(data) + len(batch) <= FETCH_BYTES):
                    data += batch
            self.fetched += len(data)
            found.append(Fetched(place, data, self.ends[place]))
        if not any(each.batches for each in found):
            await trio.sleep(0.5)
        return found


def settings(**values: str) -> RecordsSettings:
    """Return the settings of these variables, without their prefix."""
    return load(RecordsSettings, {f"KAFSCALE_CONSOLE_{name}": value for name, value in values.items()})


@cache
def no_registry() -> Registry:
    return Registry(settings())


def sieve(query: Query) -> Sieve:
    return Sieve(query, Decoder(no_registry(), largest=1 << 20), trio.CapacityLimiter(1), row_bytes=100)
