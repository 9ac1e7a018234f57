"""A commit of a partition, as the parts of a run that listen to commits get it."""

from collections.abc import Callable
from typing import NamedTuple

from kafscale.segment.writer import BuiltSegment
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.log.buffer import Buffer
from services.storage.log.partition import Partition


class Commit(NamedTuple):
    """The partition's state, formerly ``former``, was written and includes the segments of ``buffers``, oldest first.

    ``buffers`` is empty if only the log start or the producer snapshot changed.
    """

    partition: Partition
    buffers: list[Buffer]
    former: PartitionState

    @property
    def segments(self) -> list[BuiltSegment]:
        return [buffer.segment for buffer in self.buffers if buffer.segment is not None]


CommitListener = Callable[[Commit], None]
