"""Simulated consumers: read on from where they are, begin anew now and then, and tell the checker all that they see."""

import trio
from kio.schema.errors import ErrorCode

from kafscale.records.batch import walk
from kafscale.records.record import read_records
from tests.sim import wire
from tests.sim.client import Connection, ConnectionLost, connected
from tests.sim.view import Partition, View

_SECONDS = 1.5
_MOST_BYTES = 1 << 20
_PASSING = (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch)


class Consumer:
    """Reads one partition from its beginning."""

    def __init__(self, view: View, partition: Partition, name: str) -> None:
        self._view = view
        self._faults = view.faults
        self._partition = partition
        self._name = name
        self._offset = 0
        self._max_bytes = view.faults.one_of([1, 500, 4000, _MOST_BYTES])

    async def run(self) -> None:
        """Until cancelled, or the topic is gone."""
        self._go_to(0)
        while not self._partition.gone:
            try:
                async with connected(self._view.gateways, self._faults) as connection:
                    while not self._partition.gone:
                        await self._poll(connection)
                        if self._faults.hits("reader-begins-anew"):
                            self._go_to(0)
                        if self._faults.dice.random() < 0.02:
                            # To another gateway, maybe.
                            break
            except* ConnectionLost:
                pass
            await trio.sleep(0.05)

    async def _poll(self, connection: Connection) -> None:
        fetched = await fetch(self._view, self._partition, connection, self._offset, max_bytes=self._max_bytes)
        if fetched is None:
            await trio.sleep(0.1)
            return
        if ErrorCode(fetched.error) is ErrorCode.offset_out_of_range:
            if self._offset >= fetched.log_start:
                self._view.complain(
                    "out-of-range",
                    self._partition,
                    f"{self._name} at {self._offset} is told that the log starts at {fetched.log_start}",
                )
                await trio.sleep(0.1)
            else:
                self._view.ends(
                    self._partition, start=fetched.log_start, end=fetched.high_watermark, asked=trio.current_time()
                )
                self._go_to(fetched.log_start)
            return
        for offset, value in records_of(fetched):
            if offset >= self._offset:
                self._view.read(self._name, self._partition, offset, value)
                self._offset = offset + 1

    def _go_to(self, offset: int) -> None:
        self._offset = offset
        self._view.checker.moved(self._name, self._partition.log, offset)


async def fetch(
    view: View, partition: Partition, connection: Connection, offset: int, *, max_bytes: int
) -> wire.Fetched | None:
    """One answer, its ends told to the checker; None: to be tried again. Raises ConnectionLost."""
    asked = trio.current_time()
    body = wire.fetch(partition.topic_id, partition.index, offset, max_bytes=max_bytes, max_wait_ms=400)
    fetched = wire.read_fetched(await connection.ask(wire.FETCH, body, timeout=_SECONDS))
    error = ErrorCode(fetched.error)
    if error is ErrorCode.none:
        view.ends(partition, start=fetched.log_start, end=fetched.high_watermark, asked=asked)
        return fetched
    if error is ErrorCode.offset_out_of_range:
        return fetched
    if partition.doomed:
        return None
    if error is ErrorCode.kafka_storage_error:
        # A store that does not answer is told so as well; for good it is damage.
        if view.at_ease:
            view.complain("damaged", partition, f"a fetch at {offset} is answered {error.name}")
    elif not error.retriable and error not in _PASSING:
        view.complain("refused", partition, f"a fetch at {offset} is answered {error.name}")
    return None


def records_of(fetched: wire.Fetched) -> list[tuple[int, bytes]]:
    return [
        (record.offset, record.value or b"")
        for position, header in walk(fetched.records)
        for record in read_records(fetched.records[position : position + header.size], max_bytes=1 << 20)
    ]


async def read_to_end(
    view: View, partition: Partition, *, seconds: float
) -> tuple[int, int, list[tuple[int, bytes]]] | None:
    """The log from its start to its end, as any consumer gets it: start, end, records; None: not within the time."""
    found: list[tuple[int, bytes]] = []
    offset, start = 0, 0
    with trio.move_on_after(seconds):
        while True:
            try:
                async with connected(view.gateways, view.faults) as connection:
                    while not partition.gone:
                        fetched = await fetch(view, partition, connection, offset, max_bytes=_MOST_BYTES)
                        if fetched is None:
                            await trio.sleep(0.1)
                            continue
                        if fetched.error:
                            offset = start = fetched.log_start
                            found.clear()
                            continue
                        found += [(at, value) for at, value in records_of(fetched) if at >= offset]
                        offset = found[-1][0] + 1 if found else offset
                        if offset >= fetched.high_watermark:
                            start = max(start, fetched.log_start)
                            return start, fetched.high_watermark, [(at, value) for at, value in found if at >= start]
                    return None
            except* ConnectionLost:
                pass
            await trio.sleep(0.1)
    return None
