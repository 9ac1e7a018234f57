"""Where a producer's batches go in a log: their checks and offsets. No I/O, and no clock but the caller's."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafscale.errors import KafscaleError
from kafscale.records.batch import BatchHeader, check_producers
from kafscale.records.checksum import Buffer
from kafscale.records.errors import CorruptBatch
from services.storage.log.partition import Partition
from services.storage.log.producers import Sequenced


class NoRoom(KafscaleError):
    """Too many bytes are buffered and not stored yet."""


class Placed(NamedTuple):
    """The offsets of the batches. ``append_time_ms`` is -1 unless the topic has LogAppendTime.

    ``size`` is 0 if the batch is already in the log or in a buffer. The offsets are then those of the original.
    """

    base_offset: int
    end_offset: int
    append_time_ms: int
    size: int


def place(
    partition: Partition,
    records: Buffer,
    batches: Sequence[tuple[int, BatchHeader]],
    *,
    room: int,
    now_ms: Callable[[], int],
    arrival_ms: int,
) -> Placed:
    """Add the batches to the partition's buffer and remember their producer. If it raises, nothing has changed.

    ``batches`` are all those of ``records``, with their positions. ``room`` is the number of bytes that may be added.
    ``now_ms`` returns the time of the wall clock, ``arrival_ms`` is that of the producer clock. Raises CorruptData,
    SequenceRefused, NoRoom.
    """
    buffer = partition.buffer
    if not batches:
        raise CorruptBatch("an append without batches")
    if len(batches) > 1:
        check_producers(records)
    header = batches[0][1]
    if header.producer_id >= 0:
        original = partition.producers.original(header)
        if original is not None:
            return Placed(original.base_offset, original.last_offset + 1, -1, 0)
    if len(records) > room:
        raise NoRoom("too many bytes are buffered and not stored yet")
    append_time = now_ms() if partition.config.log_append_time else None
    base = buffer.append(records, batches, log_append_time_ms=append_time)
    if header.producer_id >= 0:
        batch = Sequenced.of(header, base)
        partition.producers.add(batch, arrival_ms)
        buffer.note(batch)
    return Placed(base, buffer.next_offset, -1 if append_time is None else append_time, len(records))
