"""The memory of a task, for a range of any length: pieces that are not decoded yet, and RecordBatches not taken."""

import time
import tracemalloc
from collections.abc import Iterator
from itertools import islice

import grpc
import pytest

from kafscale.records.batch import place
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.connection import WINDOW_BYTES, Connection
from kafscale_spark.decode import Limits
from kafscale_spark.planning import Range, Split
from kafscale_spark.reading import Reading, read_split
from tests.unit.spark.storage import serving

_MIB = 1 << 20
_ROWS = 1000
_BYTES = 96 * _MIB
_STANDSTILL_SECONDS = 0.3


class _Repeated:
    """A partition that repeats one batch, each a piece of the given size after decompression."""

    def __init__(self, piece_bytes: int, codec: Codec = Codec.NONE) -> None:
        records = [Record(n, 1000, None, bytes(piece_bytes // _ROWS - 12)) for n in range(_ROWS)]
        self._batch = build_batch(records, base_offset=0, codec=codec, leader_epoch=3)
        self._piece_bytes = piece_bytes
        self.rows = _BYTES // piece_bytes * _ROWS
        self.made = 0

    def scan(self, request: pb.ScanRequest, _: grpc.ServicerContext) -> Iterator[pb.ScanPiece]:
        for base in range(request.start, request.end, _ROWS):
            batch = bytearray(self._batch)
            place(batch, 0, base, 3)
            self.made += 1
            yield pb.ScanPiece(first_offset=base, next_offset=base + _ROWS, epoch=3, object="obj", records=bytes(batch))

    def read(self, endpoint: str) -> Iterator[int]:
        """Yield the number of rows of each RecordBatch of a task that reads everything."""
        reading = Reading(Connection((endpoint,)), ("offset", "value"), True, self._piece_bytes)
        split = Split([Range(("orders", 0), 0, self.rows)], {"orders": b"i" * 16}, (endpoint,))
        for batch in read_split(reading, split):
            yield batch.num_rows

    def made_while_nobody_reads(self) -> int:
        """Return the number of pieces sent, once no more are requested."""
        before = -1
        while before < self.made:
            before = self.made
            time.sleep(_STANDSTILL_SECONDS)
        return self.made


def test_undecoded_pieces_stay_with_storage() -> None:
    log = _Repeated(4 * _MIB)
    rows = 0
    with serving(Scan=log.scan) as endpoint:
        for found in islice(log.read(endpoint), 3):
            rows += found
            # One is being decoded, one has been or is being received, one is waiting; and the read-ahead.
            assert log.made_while_nobody_reads() - rows // _ROWS <= 3 + WINDOW_BYTES // (4 * _MIB)
    assert 0 < rows < log.rows


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_memory_does_not_grow_with_the_range(codec: Codec) -> None:
    log = _Repeated(_MIB, codec)
    with serving(Scan=log.scan) as endpoint:
        tracemalloc.start()
        try:
            rows = sum(log.read(endpoint))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert rows == log.rows
    # Pieces, three of Arrow, of which one is not full yet, and batches; and those of the server in this process.
    assert peak < 3 * _MIB + 3 * Limits().arrow_bytes + 3 * _MIB + 4 * _MIB
