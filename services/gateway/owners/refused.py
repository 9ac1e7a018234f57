"""The refused batches of idempotent producers that were not sent again yet.

A client with several requests in flight has sent later batches when one is refused. A Kafka broker that is not the
leader refuses them all. A gateway could pass them on to a new owner, which expects the refused batch and answers with
OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then begins a new epoch, in which it sends all its batches again, including any
that may be in the log. So later batches are refused until the refused one comes again.
"""

from typing import NamedTuple

from kafscale.records.batch import BatchHeader

Key = tuple[bytes, int]
"""Topic id and partition."""

_SEQUENCES = 1 << 31
_MOST = 10_000
"""The number of refused batches that are remembered. Beyond it, the oldest is forgotten."""
_SECONDS = 3.0
"""How long a refused batch is remembered: clients send it again within a second, unless they have given it up."""


class SentSequence(NamedTuple):
    """The producer of a batch, and the sequence of its first record."""

    producer_id: int
    epoch: int
    first: int

    @classmethod
    def of(cls, header: BatchHeader) -> "SentSequence":
        return cls(header.producer_id, header.producer_epoch, header.base_sequence)


class RefusedBatches:
    """The first refused batch of each producer and partition. Times are Trio's."""

    def __init__(self) -> None:
        self._refused: dict[tuple[Key, int], tuple[SentSequence, float]] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def note(self, key: Key, batch: SentSequence, now: float) -> None:
        """Remember a refused batch, unless an earlier one of its producer is remembered."""
        known = self._refused.get((key, batch.producer_id))
        if known is not None and known[0].epoch == batch.epoch and not _is_before(batch, known[0]):
            return
        if known is None and len(self._refused) >= _MOST:
            del self._refused[next(iter(self._refused))]
        self._refused[key, batch.producer_id] = batch, now

    def succeeded(self, key: Key, batch: SentSequence) -> None:
        """Forget the refused batch unless it comes after this one, which storage has accepted in order."""
        if not self._refused:
            return
        known = self._refused.get((key, batch.producer_id))
        if known is not None and not (known[0].epoch == batch.epoch and _is_before(batch, known[0])):
            del self._refused[key, batch.producer_id]

    def is_behind(self, key: Key, batch: SentSequence, now: float) -> bool:
        """Return whether an earlier batch of the producer was refused and must be sent first."""
        if not self._refused:
            return False
        known = self._refused.get((key, batch.producer_id))
        if known is None:
            return False
        refused, at = known
        if batch.epoch == refused.epoch and batch.first != refused.first and now - at < _SECONDS:
            return _is_before(refused, batch)
        del self._refused[key, batch.producer_id]
        return False


def _is_before(one: SentSequence, other: SentSequence) -> bool:
    """Return whether one batch of a producer's epoch was sent before another. Sequences begin again at 0."""
    return 0 < (other.first - one.first) % _SEQUENCES < _SEQUENCES // 2
