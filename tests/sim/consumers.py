"""Simulated consumers, which read on, sometimes start again, and report everything to the checker."""

from collections.abc import Sequence

import trio
from kio.schema.errors import ErrorCode

from kafscale.kafka.wire import Buffer
from kafscale.records.batch import walk
from kafscale.records.record import read_records
from tests.sim import wire
from tests.sim.client import Connection, ConnectionLost, connected
from tests.sim.keys import value_of
from tests.sim.view import Partition, View

_SECONDS = 1.5
_MOST_BYTES = 1 << 20
_PASSING = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)


class Position:
    """The position of a reader in a partition, and how it handles answers."""

    def __init__(self, view: View, partition: Partition, name: str) -> None:
        self.partition = partition
        self.offset = 0
        # The epoch of the last batch, which clients that validate positions send; -1: none is sent.
        self.leader_epoch = -1
        self._view = view
        self._name = name
        self.go_to(0)

    def wanted(self, *, by_name: bool = False) -> wire.Wanted:
        topic = self.partition.topic if by_name else self.partition.topic_id
        return wire.Wanted(topic, self.partition.index, self.offset, self.leader_epoch)

    def take(self, fetched: wire.Fetched, asked: float) -> bool:
        """Handle an answer. Return False if the reader must retry after a pause."""
        if not is_good(self._view, self.partition, fetched, asked, self.offset):
            self.leader_epoch = -1
            return False
        if ErrorCode(fetched.error) is ErrorCode.offset_out_of_range:
            if self.offset >= fetched.log_start:
                self._view.complain(
                    "out-of-range",
                    self.partition,
                    f"{self._name} at {self.offset} received the log start {fetched.log_start}",
                )
                return False
            self._view.ends(self.partition, start=fetched.log_start, end=fetched.high_watermark, asked=asked)
            self.go_to(fetched.log_start)
            return True
        self.read(fetched.records, checks_epochs=self._view.faults.dice.random() < 0.5)
        return True

    def read(self, batches: Buffer, *, checks_epochs: bool = False) -> None:
        for offset, value, epoch in epoch_records_of(batches):
            if offset >= self.offset:
                self._view.read(self._name, self.partition, offset, value)
                self._view.checker.epoch(self.partition.log, offset, epoch)
                self.offset = offset + 1
                self.leader_epoch = epoch if checks_epochs else -1
        if (end := end_of(batches)) > self.offset:
            self._view.passed(self._name, self.partition, end)
            self.offset = end

    def go_to(self, offset: int) -> None:
        self.offset = offset
        self._view.checker.moved(self._name, self.partition.log, offset)


class Consumer:
    """Reads partitions from the start, all in each request, until one is deleted."""

    def __init__(self, view: View, partitions: Sequence[Partition], name: str, *, by_name: bool = False) -> None:
        self._view = view
        self._faults = view.faults
        self._positions = [Position(view, partition, name) for partition in partitions]
        self._by_name = by_name
        self._max_bytes = view.faults.one_of([1, 500, 4000, _MOST_BYTES])

    @property
    def _goes_on(self) -> bool:
        # Records read by name may be of the next topic of that name.
        return not any(place.partition.gone or (self._by_name and place.partition.doomed) for place in self._positions)

    async def run(self) -> None:
        """Run until cancelled or a topic is deleted."""
        while self._goes_on:
            try:
                async with connected(self._view.gateways, self._faults) as connection:
                    while self._goes_on:
                        await self._poll(connection)
                        if self._faults.hits("reader-restarts"):
                            self._faults.one_of(self._positions).go_to(0)
                        if self._faults.dice.random() < 0.02:
                            # Reconnect, possibly to another gateway.
                            break
            except* ConnectionLost:
                pass
            await trio.sleep(0.05)

    async def _poll(self, connection: Connection) -> None:
        asked = trio.current_time()
        wanted = [place.wanted(by_name=self._by_name) for place in self._positions]
        answers = await fetch(connection, wanted, max_bytes=self._max_bytes, by_name=self._by_name)
        if not self._goes_on:
            return
        taken = [place.take(answer, asked) for place, answer in zip(self._positions, answers, strict=True)]
        if not all(taken):
            await trio.sleep(0.1)


async def fetch(
    connection: Connection, wanted: Sequence[wire.Wanted], *, max_bytes: int, by_name: bool = False
) -> list[wire.Fetched]:
    """Fetch partitions and return an answer for each. Raise ConnectionLost."""
    body = wire.fetch(wanted, max_bytes=max_bytes, max_wait_ms=400)
    version = wire.BY_NAME if by_name else 0
    answer = await connection.ask(wire.FETCH, body, timeout=_SECONDS, version=version)
    return wire.read_fetched(answer, len(wanted), by_name=by_name)


def is_good(view: View, partition: Partition, fetched: wire.Fetched, asked: float, offset: int) -> bool:
    """Return whether an answer is usable, and report its log start and end. False means that a retry is needed."""
    error = ErrorCode(fetched.error)
    if error is ErrorCode.none:
        view.ends(partition, start=fetched.log_start, end=fetched.high_watermark, asked=asked)
        return True
    if error is ErrorCode.offset_out_of_range:
        return True
    if error is ErrorCode.kafka_storage_error:
        # An unavailable store gives the same error. If it persists, the log is damaged.
        if view.at_ease and not partition.doomed:
            view.complain("damaged", partition, f"a fetch at {offset} failed with {error.name}")
    elif not error.retriable and error not in _PASSING:
        view.complain("refused", partition, f"a fetch at {offset} failed with {error.name}")
    return False


def end_of(batches: Buffer) -> int:
    """Return the offset after the last batch, which may have lost its last records; -1 if there is none."""
    return max([header.next_offset for _, header in walk(batches)], default=-1)


def epoch_records_of(batches: Buffer) -> list[tuple[int, bytes, int]]:
    """Return offset, unique value and leader epoch of each record."""
    return [
        (record.offset, value_of(record), header.leader_epoch)
        for position, header in walk(batches)
        for record in read_records(memoryview(batches)[position : position + header.size], max_bytes=1 << 20)
    ]


async def read_to_end(
    view: View, partition: Partition, *, seconds: float
) -> tuple[int, int, list[tuple[int, bytes]]] | None:
    """Read a log completely like a consumer. Return start, end and records, or None if it takes too long."""
    found: list[tuple[int, bytes]] = []
    offset, start = 0, 0
    with trio.move_on_after(seconds):
        while True:
            try:
                async with connected(view.gateways, view.faults) as connection:
                    while not partition.gone:
                        asked, wanted = trio.current_time(), wire.Wanted(partition.topic_id, partition.index, offset)
                        (fetched,) = await fetch(connection, [wanted], max_bytes=_MOST_BYTES)
                        if not is_good(view, partition, fetched, asked, offset):
                            await trio.sleep(0.1)
                            continue
                        if fetched.error:
                            offset = start = fetched.log_start
                            found.clear()
                            continue
                        found += [(at, value) for at, value, _ in epoch_records_of(fetched.records) if at >= offset]
                        offset = max(offset, end_of(fetched.records))
                        if offset >= fetched.high_watermark:
                            start = max(start, fetched.log_start)
                            return start, fetched.high_watermark, [(at, value) for at, value in found if at >= start]
                    return None
            except* ConnectionLost:
                pass
            await trio.sleep(0.1)
    return None
