"""Stand-ins for the parts of the console that do IO."""

import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache

import trio
from kio.schema.errors import ErrorCode

from kafscale.config.settings import load
from kafscale.errors import Unavailable
from kafscale.kafka_client.reader import EARLIEST, LATEST, Fetched
from kafscale.kafka_client.requests import Refusal
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from services.console.records.decoding import Decoder
from services.console.records.query import Query
from services.console.records.registry import Registry
from services.console.records.settings import RecordsSettings
from services.console.records.sifting import Sieve, Turns

FETCH_BYTES = 16 << 10


class _Answer(Fetched):
    """One that can be referred to weakly."""


class Log:
    """A topic whose brokers answer as KafScale's do: whole batches from the one with the wanted offset on.

    As a reader, it counts the bytes that it was asked for, and the answers that are still in memory.
    """

    def __init__(self, partitions: int = 1) -> None:
        self.batches: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.fetched = 0
        self.opened = 0
        self.is_gone = False
        self.answers = self.most_answers = 0
        self.warn: Callable[[str], None] = lambda _: None

    def recreate(self, partitions: int = 1) -> None:
        """Delete the topic, and create it with empty partitions."""
        self.batches = [[] for _ in range(partitions)]
        self.ends = [0] * partitions

    def add_partition(self) -> None:
        self.batches.append([])
        self.ends.append(0)

    def append(self, values: Sequence[bytes], partition: int = 0, codec: Codec = Codec.NONE) -> None:
        """Append a batch. The timestamp of each record is its offset."""
        first = self.ends[partition]
        records = [Record(first + at, first + at, None, value) for at, value in enumerate(values)]
        self.batches[partition].append((first + len(values), build_batch(records, base_offset=first, codec=codec)))
        self.ends[partition] += len(values)

    @asynccontextmanager
    async def reader(self, warn: Callable[[str], None]) -> AsyncIterator["Log"]:
        self.opened += 1
        self.warn = warn
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
            if positions[place] > self.ends[place]:
                raise Refusal(ErrorCode.offset_out_of_range, f"ends before offset {positions[place]}")
            data = b""
            for following, batch in self.batches[place]:
                if following > positions[place] and (not data or len(data) + len(batch) <= FETCH_BYTES):
                    data += batch
            self.fetched += len(data)
            found.append(self._answer(Fetched(place, data, self.ends[place])))
        return found

    def _answer(self, fetched: Fetched) -> Fetched:
        answer = _Answer(fetched.partition, fetched.batches, fetched.end)
        self.answers += 1
        self.most_answers = max(self.most_answers, self.answers)
        weakref.finalize(answer, self._forget)
        return answer

    def _forget(self) -> None:
        self.answers -= 1


def settings(**values: str) -> RecordsSettings:
    """Return the settings of these variables, without their prefix."""
    return load(RecordsSettings, {f"KAFSCALE_CONSOLE_{name}": value for name, value in values.items()})


@cache
def no_registry() -> Registry:
    return Registry(settings())


def turns(fetching: int = 1) -> Turns:
    return Turns(trio.CapacityLimiter(fetching), trio.CapacityLimiter(1))


def sieve(query: Query, shared: Turns | None = None) -> Sieve:
    return Sieve(query, Decoder(no_registry(), largest=1 << 20), shared or turns(), row_bytes=100)
