"""The idempotent producers of one partition: their last sequences, and the check of new batches. No I/O.

The rules are Kafka's (KIP-98, ``ProducerStateManager``): within a producer's epoch each batch begins where the last one
ended, duplicates of the last five batches are detected, and a new epoch begins with sequence 0. Unlike Kafka, which
accepts any first sequence from an unknown producer, this requires 0, because earlier batches may have been lost.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafscale.errors import CorruptData, KafscaleError
from kafscale.records.batch import BatchHeader
from kafscale.records.checksum import crc32c
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import ProducerSnapshot
from kafscale.v1.storage_pb2 import KnownProducer

REMEMBERED_BATCHES = 5
"""Idempotent clients have at most five batches in flight."""
_SEQUENCES = 1 << 31
_FORMAT = 1
_CRC_FIELD_SIZE = 5  # the field's tag and a fixed32


class SequenceRefused(KafscaleError):
    """A batch does not follow what its producer sent before. ``status`` is the reason."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class SentBatch(NamedTuple):
    """The sequences and offsets of a batch's first and last records."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Sequenced(NamedTuple):
    """A batch of an idempotent producer with its offsets in the log."""

    producer_id: int
    producer_epoch: int
    sent: SentBatch

    @classmethod
    def of(cls, header: BatchHeader, base_offset: int) -> "Sequenced":
        """Create from a batch's header and its assigned base offset."""
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
    """A table of at most ``limit`` producers. When it is full, new ones are refused until some have expired."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._producers: dict[int, _Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def original(self, header: BatchHeader) -> SentBatch | None:
        """Return the batch that this one repeats, or None if it may be appended. Raises SequenceRefused."""
        producer_id, epoch, first = header.producer_id, header.producer_epoch, header.base_sequence
        known = self._producers.get(producer_id)
        if known is None:
            if first != 0:
                raise SequenceRefused(
                    Status.UNKNOWN_PRODUCER, f"producer {producer_id} is unknown and starts with sequence {first}"
                )
            if len(self._producers) >= self._limit:
                raise SequenceRefused(Status.BUFFER_FULL, f"the limit of {self._limit} producers is reached")
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
            Status.OUT_OF_ORDER_SEQUENCE, f"producer {producer_id} sent sequence {first}, expected {expected}"
        )

    def add(self, batch: Sequenced, now_ms: int) -> None:
        """Record a batch that was appended to the log at ``now_ms``."""
        known = self._producers.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self._producers[batch.producer_id] = _Producer(batch.producer_epoch, now_ms)
        known.batches.append(batch.sent)
        known.used_ms = now_ms

    def expire(self, before_ms: int) -> None:
        """Remove the producers that have sent nothing since ``before_ms``."""
        for producer_id in [key for key, known in self._producers.items() if known.used_ms < before_ms]:
            del self._producers[producer_id]

    def copy(self) -> "ProducerTable":
        """Return an independent copy."""
        other = ProducerTable(self._limit)
        other._producers = {
            key: _Producer(known.epoch, known.used_ms, known.batches) for key, known in self._producers.items()
        }
        return other

    def describe(self) -> list[KnownProducer]:
        """Return each producer with its last sequence."""
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

    def last_batches(self) -> Iterator[tuple[int, int, int]]:
        """Yield id, epoch and the offset of the last record of each producer."""
        for producer_id, producer in self._producers.items():
            if producer.batches:
                yield producer_id, producer.epoch, producer.batches[-1].last_offset

    def dump(self) -> bytes:
        """Serialize the table as a `ProducerSnapshot`."""
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
        """Parse the output of `dump`. Raises CorruptData."""
        try:
            snapshot = ProducerSnapshot.FromString(data)
        except Exception as error:
            raise CorruptData(f"not a producer snapshot: {error}") from error
        if snapshot.format != _FORMAT:
            raise CorruptData(f"producer snapshot has format {snapshot.format}, expected {_FORMAT}")
        if snapshot.HasField("crc") and (computed := crc32c(memoryview(data)[:-_CRC_FIELD_SIZE])) != snapshot.crc:
            raise CorruptData(f"producer snapshot has checksum {snapshot.crc:#010x}, computed {computed:#010x}")
        table = cls(limit)
        for entry in snapshot.producers:
            batches = [
                SentBatch(sent.first_sequence, sent.last_sequence, sent.base_offset, sent.last_offset)
                for sent in entry.batches
            ]
            if not batches:
                raise CorruptData(f"producer {entry.producer_id} has no batches")
            table._producers[entry.producer_id] = _Producer(entry.epoch, entry.used_ms, batches)
        return table
