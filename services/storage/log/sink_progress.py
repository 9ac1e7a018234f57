"""How far one partition's log has the epochs of sinks that are being appended to it, in one epoch of its own. Pure.

What is committed stands in the partition's state, written with the records. What is appended and not committed yet is
known here besides, so that nothing is appended twice while it waits in a buffer.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kafscale.v1.metadata_pb2 import PartitionState, Sink, SinkProgress

MOST_SINKS = 16
"""Whose progress one state notes at a time: a hundred states go into one transaction."""


class SinkEpoch(NamedTuple):
    """One committed epoch of a sink. A sink that was forgotten may commit a number anew, at another time."""

    sink: str
    epoch: int
    committed_ms: int

    @classmethod
    def of(cls, value: Sink | SinkProgress) -> "SinkEpoch":
        return cls(value.sink, value.epoch, value.committed_ms)


class SinkPositions:
    """Progress counts batches, in the order of the epoch's manifest."""

    def __init__(self) -> None:
        self._appended: dict[SinkEpoch, int] = {}
        self._finished: set[SinkEpoch] = set()

    def position(self, epoch: SinkEpoch, state: PartitionState) -> int:
        """How many batches are in the log or in its buffers; ``state``: the partition's as it is now."""
        return max(committed_batches(state, epoch), self._appended.get(epoch, 0))

    def has_room(self, epoch: SinkEpoch, state: PartitionState) -> bool:
        """Whether the state can note one more."""
        others = {SinkEpoch.of(progress) for progress in state.sinks} | self._appended.keys()
        return len(others - self._finished - {epoch}) < MOST_SINKS

    def appended(self, epoch: SinkEpoch, batches: int) -> None:
        self._appended[epoch] = batches

    def finish(self, epoch: SinkEpoch) -> None:
        """The sink's record is known not to wait for this partition: no state need note the epoch any more."""
        self._appended.pop(epoch, None)
        self._finished.add(epoch)

    def note(self, state: PartitionState, committing: Iterable[tuple[SinkEpoch, int]]) -> None:
        """Let ``state``, about to be written, say how far the log is with what is committed by that, in its order."""
        kept = {entry.sink: entry for entry in state.sinks if SinkEpoch.of(entry) not in self._finished}
        for (sink, number, committed_ms), batches in committing:
            kept[sink] = SinkProgress(sink=sink, epoch=number, batches=batches, committed_ms=committed_ms)
        noted = list(kept.values())
        del state.sinks[:]
        state.sinks.extend(noted)

    def written(self, state: PartitionState) -> None:
        """``state`` is the partition's now."""
        self._finished &= {SinkEpoch.of(progress) for progress in state.sinks}


def committed_batches(state: PartitionState, epoch: SinkEpoch) -> int:
    """How many batches of the sink's epoch are in the committed log, as far as ``state`` says."""
    return next((progress.batches for progress in state.sinks if SinkEpoch.of(progress) == epoch), 0)
