"""The idempotent producers of one partition: which sequences came, and what a batch that comes now is to them. Pure.

The rules are Kafka's (KIP-98, ``ProducerStateManager``): within a producer's epoch each batch begins where the last one
ended, the last five batches are known again when they are repeated, and a new epoch begins with sequence 0. Unlike in
Kafka, which takes any sequence from it, so does a producer that nobody knows: what it sent before may have been lost.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kafscale.errors import CorruptData, KafscaleError
from kafscale.records.batch import BatchHeader
from kafscale.records.checksum import crc32c
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import ProducerSnapshot
from kafscale.v1.storage_pb2 import KnownProducer

REMEMBERED_BATCHES = 5
"""Clients have at most five batches in flight when they are idempotent."""
_SEQUENCES = 1 << 31
_FORMAT = 1
_CRC_FIELD_SIZE = 5  # the field's tag and a fixed32


class SequenceRefused(KafscaleError):
    """A batch does not fit what its producer sent before; ``status`` says how."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class SentBatch(NamedTuple):
    """Sequences and offsets of a batch's first and last record."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Sequenced(NamedTuple):
    """A batch of an idempotent producer in its place in the log."""

    producer_id: int
    producer_epoch: int
    sent: SentBatch

    @classmethod
    def of(cls, header: BatchHeader, base_offset: int) -> "Sequenced":
        """From a batch's header and the offset that it got."""
        last_sequence = (header.base_sequence + header.last_offset_delta) % _SEQUENCES
        sent = SentBatch(header.base_sequence, last_sequence, base_offset, base_offset + header.last_offset_delta)
        return cls(header.producer_id, header.producer_epoch, sent)


class _Producer:
    __slots__ = ("batches", "epoch", "used_ms")

    def __init__(self, epoch: int, used_ms: int, batches: Iterable[SentBatch] = ()) -> None:
        self.epoch = epoch
        self.used_ms = used_ms
        self.batches = deque(batches, REMEMBERED_BATCHES)


class ProducerTable:
    """At most ``limit`` producers; when they are that many, new ones are refused until some have expired."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def original(self, header: BatchHeader) -> SentBatch | None:
        """None where the batch may be appended, else the batch that it repeats. Raises SequenceRefused."""
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        known = self._producers.get(producer_id)
        if known is None:
            if first != 0:
                raise SequenceRefused(
                    Status.UNKNOWN_PRODUCER, f"producer {producer_id} is not known and begins with sequence {first}"
                )
            if len(self._producers) >= self._limit:
                raise SequenceRefused(Status.BUFFER_FULL, f"{self._limit} producers are known, no more can be")
            return None
        if epoch < known.epoch:
            raise SequenceRefused(
                Status.FENCED_PRODUCER, f"producer {producer_id} has epoch {known.epoch}, the batch {epoch}"
            )
        expected = (known.batches[-1].last_sequence + 1) % _SEQUENCES if epoch == known.epoch else 0
        if first == expected:
            return None
        last = (first + header.last_offset_delta) % _SEQUENCES
        if epoch == known.epoch:
            for sent in known.batches:
                if (sent.first_sequence, sent.last_sequence) == (first, last):
                    return sent
        raise SequenceRefused(
            Status.OUT_OF_ORDER_SEQUENCE, f"producer {producer_id} sent sequence {first} where {expected} was due"
        )

    def add(self, batch: Sequenced, now_ms: int) -> None:
        """A batch is in the log: what follows is measured by it."""
        known = self._producers.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self._producers[batch.producer_id] = _Producer(batch.producer_epoch, now_ms)
        known.batches.append(batch.sent)
        known.used_ms = now_ms

    def expire(self, before_ms: int) -> None:
        """Forget the producers that have sent nothing since."""
        for producer_id in [key for key, known in self._producers.items() if known.used_ms < before_ms]:
            del self._producers[producer_id]

    def copy(self) -> "ProducerTable":
        """One that goes its own way."""
        other = ProducerTable(self._limit)
        other._producers = {
            key: _Producer(known.epoch, known.used_ms, known.batches) for key, known in self._producers.items()
        }
        return other

    def shown(self) -> list[KnownProducer]:
        """Each with its last sequence."""
        return [
            KnownProducer(
                producer_id=key,
                epoch=known.epoch,
                last_sequence=known.batches[-1].last_sequence,
                used_ms=known.used_ms,
            )
            for key, known in self._producers.items()
            if known.batches
        ]

    def dump(self) -> bytes:
        """The table as it is kept, a `ProducerSnapshot`."""
        snapshot = ProducerSnapshot(format=_FORMAT)
        for producer_id, known in self._producers.items():
            entry = snapshot.producers.add(producer_id=producer_id, epoch=known.epoch, used_ms=known.used_ms)
            for sent in known.batches:
                entry.batches.add(
                    first_sequence=sent.first_sequence,
                    last_sequence=sent.last_sequence,
                    base_offset=sent.base_offset,
                    last_offset=sent.last_offset,
                )
        body = snapshot.SerializeToString()
        return body + ProducerSnapshot(crc=crc32c(body)).SerializeToString()

    @classmethod
    def load(cls, data: bytes, limit: int) -> "ProducerTable":
        """What `dump` gave. Raises CorruptData."""
        try:
            snapshot = ProducerSnapshot.FromString(data)
        except Exception as error:
            raise CorruptData(f"not a producer snapshot: {error}") from error
        if snapshot.format != _FORMAT:
            raise CorruptData(f"producer snapshot of format {snapshot.format}, known is {_FORMAT}")
        if snapshot.HasField("crc") and (computed := crc32c(memoryview(data)[:-_CRC_FIELD_SIZE])) != snapshot.crc:
            raise CorruptData(f"checksum of the producers is {computed:#010x}, the snapshot says {snapshot.crc:#010x}")
        table = cls(limit)
        for entry in snapshot.producers:
            batches = [
                SentBatch(sent.first_sequence, sent.last_sequence, sent.base_offset, sent.last_offset)
                for sent in entry.batches
            ]
            if not batches:
                raise CorruptData(f"producer {entry.producer_id} without a batch")
            table._producers[entry.producer_id] = _Producer(entry.epoch, entry.used_ms, batches)
        return table
