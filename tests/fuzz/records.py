"""Record batches: valid ones, with wrong counts and codecs, and small ones that decompress to very much."""

import gzip
from functools import cache

from kafscale.records.batch import HEADER_SIZE, BatchHeader, pack_header, seal
from kafscale.records.codecs import Codec, compress
from kafscale.records.record import Record, build_batch
from tests.support.golden_records import HERE

_NOW_MS = 1_700_000_000_000
_BOMB_BYTES = 64 << 20


@cache
def batches() -> tuple[bytes, ...]:
    """Valid batches: of all codecs, of an idempotent producer, without keys, and with headers."""
    records = [Record(0, _NOW_MS, b"key", b"value " * 20), Record(1, _NOW_MS, None, b"", (("header", b"1"),))]
    plain = [build_batch(records, base_offset=0, codec=each) for each in Codec]
    idempotent = build_batch(records, base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0)
    return (*plain, idempotent, plain[0] + plain[1])


def around(records: bytes, found: Codec, *, count: int = 1, last_delta: int | None = None) -> bytes:
    """Return a batch with the right length and checksum around any ``records``."""
    delta = count - 1 if last_delta is None else last_delta
    header = BatchHeader(0, 0, -1, 2, 0, found, delta, _NOW_MS, _NOW_MS, -1, -1, -1, count)
    out = bytearray(pack_header(header) + records)
    seal(out)
    return bytes(out)


@cache
def legacy_sets() -> tuple[bytes, ...]:
    """Message sets of magic 0 and 1, as clients wrote them."""
    return tuple(path.read_bytes() for path in sorted(HERE.glob("*magic*-small.bin")))


@cache
def bombs() -> tuple[bytes, ...]:
    """Batches with right checksums that decompress to 64 MiB, or claim to have two billion records."""
    zeros = bytes(_BOMB_BYTES)
    packed = {Codec.GZIP: gzip.compress(zeros, 9)} | {
        each: compress(each, zeros) for each in (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    }
    small = build_batch([Record(0, _NOW_MS, b"k", b"v")], base_offset=0)[HEADER_SIZE:]
    return (
        *(around(data, each) for each, data in packed.items()),
        *(around(compress(each, small), each, count=2**31 - 1) for each in Codec),
        *(around(small, each) for each in Codec),
    )


def resealed(data: bytes) -> bytes:
    """Return a damaged batch with the right length and checksum, so that what is behind them is reached."""
    if len(data) < HEADER_SIZE:
        return data
    out = bytearray(data)
    seal(out)
    return bytes(out)
