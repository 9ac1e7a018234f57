"""The memory of a task for a range of any length: undecoded pieces, and RecordBatches that have not been taken."""

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
    """A partition that repeats one batch, as pieces of this many bytes when decompressed."""

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
        """Read everything as a task does, and yield the number of rows of each RecordBatch."""
        reading = Reading(Connection((endpoint,)), ("offset", "value"), True, self._piece_bytes)
        split = Split([Range(("orders", 0), 0, self.rows)], {"orders": b"i" * 16}, (endpoint,))
        for batch in read_split(reading, split):
            yield batch.num_rows

    def made_while_nobody_reads(self) -> int:
        """Return the total number of pieces sent, when no more are requested."""
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
            # One is being decoded, one has arrived or is arriving, and one waits to be returned, in addition to
            # read-ahead.
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
    # Pieces, three Arrow buffers, one of them partly filled, and batches; also the server's memory in this process.
    assert peak < 3 * _MIB + 3 * Limits().arrow_bytes + 3 * _MIB + 4 * _MIB
