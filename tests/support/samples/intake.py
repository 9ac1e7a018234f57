"""A small intake object and a seal, which are also golden files."""

from pathlib import Path

from kafscale.intake.format import Entry, encode, encode_seal
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import SinkProgress
from tests.support.samples.segments import EPOCH, make_batch, placed

GOLDEN = Path(__file__).parents[2] / "golden" / "intake"
RECORDS = GOLDEN / "00000000000000000017"
SEAL = GOLDEN / "00000000000000000018"
RUN = "4ksrqv5lp2d8"

ORDERS = PartitionRef(topic="orders", topic_id=bytes(range(16)), partition=2)
CLICKS = PartitionRef(topic="clicks", topic_id=bytes(range(16, 32)), partition=0)


def entries() -> list[Entry]:
    """Return two entries; the second has two batches and the progress of a sink."""
    first = placed([make_batch([10], value=b"one")], base_offset=1000)
    second = placed([make_batch([20], value=b"two"), make_batch([30], value=b"three")], base_offset=7)
    progress = SinkProgress(sink="job", epoch=3, batches=2, committed_ms=1_700_000_000_000)
    return [
        Entry(ORDERS, EPOCH, 1000, 1001, [piece for batch in first for piece in batch]),
        Entry(CLICKS, EPOCH, 7, 9, [piece for batch in second for piece in batch], (progress,)),
    ]


def golden_object() -> bytes:
    return b"".join(encode("ns", RUN, number=17, checkpoint=12, created_ms=1_700_000_000_000, entries=entries()))


def golden_seal() -> bytes:
    return encode_seal("ns", RUN, number=18, created_ms=1_700_000_000_000)
