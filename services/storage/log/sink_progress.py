"""The progress of sink epochs in one partition's log, within one epoch of the partition. No I/O.

Committed progress is in the partition's state, written together with the records. This module also tracks batches that
are appended and not committed yet, so that none is appended twice while it waits in a buffer.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kafscale.v1.metadata_pb2 import PartitionState, Sink, SinkProgress

MAX_SINKS = 16
"""Sinks whose progress one state can hold. Bounded because one transaction writes a hundred states."""


class SinkEpoch(NamedTuple):
    """One committed epoch of a sink. ``committed_ms`` tells it from an equal number of an earlier, forgotten sink."""

    sink: str
    epoch: int
    committed_ms: int

    @classmethod
    def of(cls, value: Sink | SinkProgress) -> "SinkEpoch":
        return cls(value.sink, value.epoch, value.committed_ms)


class SinkPositions:
    """The progress of sink epochs, as a number of batches in the order of the epoch's manifest."""

    def __init__(self) -> None:
        self._appended: dict[SinkEpoch, int] = {}
        self._finished: set[SinkEpoch] = set()

    def position(self, epoch: SinkEpoch, state: PartitionState) -> int:
        """Return how many batches are in the log or the write buffer. ``state`` is the partition's current state."""
        return max(committed_batches(state, epoch), self._appended.get(epoch, 0))

    def known(self, state: PartitionState) -> list[SinkEpoch]:
        """Return the epochs whose progress the state or the write buffer has."""
        return list({SinkEpoch.of(progress): None for progress in state.sinks} | self._appended)

    def has_room(self, epoch: SinkEpoch, state: PartitionState) -> bool:
        """Return whether the state has room for the progress of ``epoch``."""
        others = {SinkEpoch.of(progress) for progress in state.sinks} | self._appended.keys()
        return len(others - self._finished - {epoch}) < MAX_SINKS

    def appended(self, epoch: SinkEpoch, batches: int) -> None:
        self._appended[epoch] = batches

    def finish(self, epoch: SinkEpoch) -> None:
        """Stop recording the epoch in states, because the sink no longer waits for this partition."""
        self._appended.pop(epoch, None)
        self._finished.add(epoch)

    def note(self, state: PartitionState, committing: Iterable[tuple[SinkEpoch, int]]) -> None:
        """Record in ``state``, which is about to be written, the progress that it commits, in log order."""
        kept = {entry.sink: entry for entry in state.sinks if SinkEpoch.of(entry) not in self._finished}
        for epoch, batches in committing:
            if epoch not in self._finished:
                sink, number, committed_ms = epoch
                kept[sink] = SinkProgress(sink=sink, epoch=number, batches=batches, committed_ms=committed_ms)
        noted = list(kept.values())
        del state.sinks[:]
        state.sinks.extend(noted)

    def written(self, state: PartitionState, buffered: set[SinkEpoch]) -> None:
        """Called when ``state`` has been written. ``buffered``: epochs with batches that are in no segment yet."""
        self._finished &= {SinkEpoch.of(progress) for progress in state.sinks} | buffered


def committed_batches(state: PartitionState, epoch: SinkEpoch) -> int:
    """Return how many batches of the sink epoch are in the committed log according to ``state``."""
    return next((progress.batches for progress in state.sinks if SinkEpoch.of(progress) == epoch), 0)
