"""The batches of simulated producers, and their reports to the checker."""

import math
from dataclasses import dataclass

from kafscale.records.record import build_batch
from tests.sim.client import Connection
from tests.sim.keys import record_of, with_key
from tests.sim.view import Partition, View
from tests.support.checker import Promise

IN_FLIGHT = 5
REQUEST_SECONDS = 1.2
RETRY_SECONDS = 0.05
_RECORDS_TO_THE_NEXT_KEY = 4
_TOMBSTONES = 0.3
"""The share of tombstones in the records for topics with few keys."""


@dataclass(slots=True, eq=False)
class Batch:
    values: list[bytes]
    give_up_at: float
    sequence: int = -1
    epoch: int = -1
    number: int = 0
    # The time of the first attempt.
    sent_at: float = math.inf
    retry_at: float = 0.0


@dataclass(slots=True)
class Source:
    """Generates a producer's records."""

    view: View
    partition: Partition
    name: str
    promise: Promise
    made: int = 0

    def batch(self) -> list[bytes]:
        dice = self.view.faults.dice
        values = []
        for _ in range(dice.choice([1, 1, 2, 4])):
            self.made += 1
            name, padding = b"%s/%d" % (self.name.encode(), self.made), b"." * dice.choice([0, 20, 100, 400])
            values.append(
                b"%s/%s" % (name, padding) if self.partition.compaction is None else self._keyed(name, padding)
            )
        for value in values:
            self.view.stamp(self.partition, value)
            self.view.sent(self.name, self.partition, value, self.promise)
        return values

    def _keyed(self, name: bytes, padding: bytes) -> bytes:
        dice, compaction = self.view.faults.dice, self.partition.compaction
        if compaction is None or not compaction.keys:
            return with_key(name, name.replace(b"/", b"."), padding)
        tombstone = dice.random() < _TOMBSTONES
        # No record of an old key follows, so that some end with a tombstone.
        self.partition.keyed += 1
        key = self.partition.keyed // _RECORDS_TO_THE_NEXT_KEY + dice.randrange(compaction.keys)
        return with_key(name, b"k%d" % key, None if tombstone else padding)

    def records(self, batch: Batch, producer_id: int = -1) -> bytes:
        return build_batch(
            [record_of(value, i, self.view.time_of(value)) for i, value in enumerate(batch.values)],
            base_offset=0,
            producer_id=producer_id,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
        )

    def sends(self, batch: Batch, connection: Connection) -> None:
        names = b" ".join(value[: value.rfind(b"/")] for value in batch.values).decode()
        self.view.trace(self.name, f"sends {names} on connection {connection.number}")

    def acked(self, batch: Batch, base_offset: int) -> None:
        for i, value in enumerate(batch.values):
            offset = base_offset + i if base_offset >= 0 else -1
            self.view.acked(self.partition, value, offset, durable=self.promise.durable)
