"""A consumer of a topic without a group."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import Unavailable
from kafscale.kafka_client.client import Brokers
from kafscale.kafka_client.leaders import Leaders
from kafscale.kafka_client.requests import FETCH, LIST_OFFSETS, Refusal
from kafscale.records.batch import verify_crc, walk
from kafscale.records.record import Record, read_records

LATEST, EARLIEST = -1, -2
_DECODED_BYTES = 256 << 20

Take = Callable[[int, list[Record]], bool]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How many bytes one answer of a broker may contain of a partition, and in all, and how long it waits for records.

    A broker exceeds the bytes for the first batch alone.
    """

    partition: int = 1 << 20
    whole: int = 16 << 20
    wait: timedelta = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a broker answered for a partition. ``end``: the first offset that consumers cannot read yet."""

    partition: int
    batches: bytes
    end: int


class TopicReader:
    """Reads a topic. ``seconds``: how long failures are retried. ``warn`` is called when offsets were skipped."""

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        *,
        seconds: float,
        warn: Callable[[str], None],
        limits: FetchLimits = FetchLimits(),
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._warn = warn
        self._limits = limits
        self._leaders = Leaders(brokers, topic, seconds=seconds)
        self._deadline = float("inf")

    async def open(self) -> list[int]:
        """Look up and return the partitions. Raises Refusal, Unavailable."""
        self._deadline = self._leaders.deadline()
        return await self._leaders.find()

    async def offsets(self, partitions: Iterable[int], timestamp: int) -> dict[int, int]:
        """Return the first offset with this ``timestamp`` or a later one, by partition; -1 if there is none.

        ``timestamp`` can be `EARLIEST` or `LATEST`. Raises Refusal, Unavailable.
        """
        missing, found = set(partitions), dict[int, int]()
        deadline = self._leaders.deadline()
        while missing:
            failures: list[Refusal | Unavailable] = []
            for leader, places in self._leaders.of(missing).items():
                parts = tuple({"partition_index": place, "timestamp": timestamp} for place in places)
                topics = ({"name": self._topic, "partitions": parts},)
                try:
                    reply = await self._brokers.ask(
                        leader, LIST_OFFSETS, {"replica_id": -1, "isolation_level": 0, "topics": topics}
                    )
                except Unavailable as error:
                    failures.append(error)
                    continue
                for answer in reply.topics[0].partitions:
                    if answer.error_code is ErrorCode.none:
                        found[int(answer.partition_index)] = int(answer.offset)
                        missing.discard(int(answer.partition_index))
                    else:
                        failures.append(Refusal(answer.error_code))
            if missing:
                await self._leaders.again(deadline, failures)
        return found

    async def read(self, positions: dict[int, int], ends: Mapping[int, int] | None, take: Take) -> None:
        """Call ``take`` with a partition and records, batch by batch, until it returns False or ``ends`` are reached.

        If ``ends`` is None, read until cancelled. Raises Refusal, Unavailable, and CorruptBatch for damaged batches.
        """
        while unfinished := [place for place, offset in positions.items() if ends is None or offset < ends[place]]:
            for fetched in await self.fetch(positions, unfinished):
                place = fetched.partition
                for following, records in _batches(fetched.batches):
                    end = following if ends is None else ends[place]
                    selected = [each for each in records if positions[place] <= each.offset < end]
                    if selected and not take(place, selected):
                        return
                    positions[place] = max(positions[place], following)

    async def fetch(self, positions: dict[int, int], partitions: Iterable[int]) -> list[Fetched]:
        """Return what comes next in some partitions, from ``positions`` on. It may be nothing.

        Positions below the start of a log are moved to it. Raises Refusal, and Unavailable if the failures have lasted
        for too long.
        """
        failures: list[Refusal | Unavailable] = []
        answers: list[Any] = []
        async with trio.open_nursery() as nursery:
            for leader, places in self._leaders.of(partitions).items():
                nursery.start_soon(self._fetch, leader, places, positions, answers, failures)
        found = []
        for answer in answers:
            place = int(answer.partition_index)
            if answer.error_code is ErrorCode.offset_out_of_range:
                await self._skip(place, positions)
            elif answer.error_code is not ErrorCode.none:
                failures.append(Refusal(answer.error_code))
            else:
                found.append(Fetched(place, bytes(answer.records or b""), int(answer.high_watermark)))
        if failures:
            await self._leaders.again(self._deadline, failures)
        else:
            self._deadline = self._leaders.deadline()
        return found

    async def _fetch(
        self,
        leader: int,
        places: list[int],
        positions: Mapping[int, int],
        answers: list[Any],
        failures: list[Refusal | Unavailable],
    ) -> None:
        parts = tuple(
            {"partition": place, "fetch_offset": positions[place], "partition_max_bytes": self._limits.partition}
            for place in places
        )
        values = {
            "max_wait": self._limits.wait,
            "min_bytes": 1,
            "max_bytes": self._limits.whole,
            "topics": ({"topic": self._topic, "partitions": parts},),
            "forgotten_topics_data": (),
        }
        try:
            reply = await self._brokers.ask(leader, FETCH, values)
        except (Refusal, Unavailable) as error:
            failures.append(error)
            return
        if reply.error_code is not ErrorCode.none:
            failures.append(Refusal(reply.error_code))
        answers += [answer for topic in reply.responses for answer in topic.partitions]

    async def _skip(self, place: int, positions: dict[int, int]) -> None:
        """Move the position to the log start. Raises Refusal if the log ends before it: the topic was recreated."""
        first = (await self.offsets([place], EARLIEST))[place]
        at = positions[place]
        if first <= at:
            raise Refusal(ErrorCode.offset_out_of_range, f"{self._topic}-{place} ends before offset {at}.")
        self._warn(f"{self._topic}-{place}: the offsets from {at} to {first - 1} have been deleted")
        positions[place] = first


def _batches(data: bytes) -> Iterator[tuple[int, list[Record]]]:
    """Yield the next offset and the records of each batch. Control batches have none. Raises CorruptBatch."""
    for position, header in walk(data):
        verify_crc(data, position, header)
        batch = memoryview(data)[position : position + header.size]
        yield header.next_offset, [] if header.is_control else list(read_records(batch, max_bytes=_DECODED_BYTES))
