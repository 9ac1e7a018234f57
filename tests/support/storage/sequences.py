"""Batches of an idempotent producer whose values are their sequence numbers."""

from kafscale.records.record import Record, build_batch
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import PartitionAppended
from tests.support.storage.harness import Caller


def numbered(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    """Return a batch whose values are its sequence numbers."""
    records = [Record(i, 1000, None, b"%d" % (sequence + i)) for i in range(count)]
    return build_batch(records, base_offset=0, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def send(caller: Caller, ref: PartitionRef, sequence: int, count: int = 1) -> PartitionAppended:
    return await caller.append(ref, numbered(sequence, count))


async def flushed(caller: Caller, ref: PartitionRef, sequences: range) -> None:
    """Append and flush each sequence number as its own segment."""
    for sequence in sequences:
        assert (await send(caller, ref, sequence)).status == Status.OK
        await caller.flush(ref)


def numbers(end: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(end)]
