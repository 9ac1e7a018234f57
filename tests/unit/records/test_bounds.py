"""Decompression bombs and wrong sizes: how much memory a fresh process uses to refuse them."""

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import cramjam
import pytest

from kafscale.records import batch as batches
from kafscale.records.codecs import Codec, compress
from kafscale.records.varint import append_varint
from tests.support.strategies.records import message

MIB = 1 << 20
MAX = 4 * MIB
# Output buffer and its copy, a decoder's own window (8 MiB for lz4), and the interpreter's noise.
ALLOWED = 2 * MAX + 16 * MIB
BOMB = 512 * MIB

# getrusage's maximum is of no use: across exec it keeps that of the parent process.
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")

DRIVER = """
import sys
from pathlib import Path
from kafscale.errors import CorruptData
from kafscale.records.codecs import Codec, decompress
from kafscale.records.legacy import upconvert
from kafscale.records.record import compress_batch, first_at_or_after, largest_timestamp, read_records
MAX = int(sys.argv[1])
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
for codec in Codec:
    for tiny in (b"", b"x" * 64):
        try: decompress(codec, tiny, MAX)
        except CorruptData: pass
data = Path(sys.argv[2]).read_bytes()
calls = {
    "read": lambda: sum(1 for _ in read_records(data, max_bytes=MAX)),
    "first": lambda: first_at_or_after(data, 0, max_bytes=MAX),
    "largest": lambda: largest_timestamp(data, max_bytes=MAX),
    "upconvert": lambda: upconvert(data, now_ms=0, max_bytes=MAX),
}
before = peak()
try: calls[sys.argv[3]]()
except CorruptData: print("refused", end=" ")
print(peak() - before)
"""


def zstd_bomb(window_log: int) -> bytes:
    """A frame that requires a window of 2**window_log bytes and repeats one byte in every block."""
    count = BOMB // (128 * 1024)
    blocks = b"".join(
        ((128 * 1024) << 3 | 1 << 1 | (i == count - 1)).to_bytes(3, "little") + b"a" for i in range(count)
    )
    return b"\x28\xb5\x2f\xfd" + b"\x00" + bytes(((window_log - 10) << 3,)) + blocks


def zstd_lie(claimed: int) -> bytes:
    """A frame of one stored byte that claims a content of ``claimed`` bytes in a single segment."""
    return b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", claimed) + (1 << 3 | 1).to_bytes(3, "little") + b"a"


def lz4_lie() -> bytes:
    """A frame that claims 2**62 bytes of content in blocks of 4 MiB, and a block of 2**31 - 1 bytes."""
    return b"\x04\x22\x4d\x18" + b"\x68\x70" + struct.pack("<Q", 1 << 62) + b"\x00" + b"\xff\xff\xff\x7f" + b"abc"


def snappy_lie(claimed: bytes, size: int) -> bytes:
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, size) + claimed + b"\x00a"


ZEROS = bytes(BOMB // 4)
SNAPPY_BLOCK = bytes(cramjam.snappy.compress_raw(bytes(2 * MIB)))
BOMBS = {
    "gzip": (Codec.GZIP, gzip.compress(ZEROS, 1) * 4),
    "gzip of very many members": (Codec.GZIP, gzip.compress(b"") * 100_000),
    "snappy, one block": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(ZEROS))),
    "snappy, many blocks": (
        Codec.SNAPPY,
        b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(SNAPPY_BLOCK)) + SNAPPY_BLOCK) * 256,
    ),
    "snappy, claimed size": (Codec.SNAPPY, snappy_lie(b"\xff\xff\xff\xff\x0f", 7)),
    "snappy, block size": (Codec.SNAPPY, snappy_lie(b"\x01", 2**31 - 1)),
    "lz4": (Codec.LZ4, compress(Codec.LZ4, ZEROS)),
    "lz4, linked blocks": (Codec.LZ4, bytes(cramjam.lz4.compress(ZEROS))),
    "lz4, claimed sizes": (Codec.LZ4, lz4_lie()),
    "zstd": (Codec.ZSTD, zstd_bomb(20)),
    "zstd, window of 128 MiB": (Codec.ZSTD, zstd_bomb(27)),
    "zstd, window of 2 TiB": (Codec.ZSTD, zstd_bomb(41)),
    "zstd, claims 100 MB": (Codec.ZSTD, zstd_lie(100_000_000)),
    "zstd, claims all there is": (Codec.ZSTD, zstd_lie(2**63)),
}


def growth(data: bytes, call: str, tmp_path: Path) -> tuple[str, int]:
    """The output of a fresh process for ``data``, and the number of bytes by which its peak memory grew."""
    (tmp_path / "data").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(MAX), str(tmp_path / "data"), call],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    *verdict, taken = done.stdout.split()
    return " ".join(verdict), int(taken)


def batch_around(records: bytes, codec: Codec, count: int = 1) -> bytes:
    header = batches.BatchHeader(0, 0, -1, 2, 0, codec, count - 1, 0, 2**62, -1, -1, -1, count)
    out = bytearray(batches.pack_header(header) + records)
    batches.seal(out)
    return bytes(out)


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("call", ["read", "upconvert"])
def test_a_decompression_bomb_is_refused_within_the_bound(name: str, call: str, tmp_path: Path) -> None:
    codec, packed = BOMBS[name]
    bomb = batch_around(packed, codec) if call == "read" else message(packed, attributes=codec)
    verdict, taken = growth(bomb, call, tmp_path)
    assert verdict == "refused"
    assert taken < ALLOWED + 2 * len(packed)


@pytest.mark.parametrize("call", ["read", "first", "largest"])
def test_a_batch_that_claims_two_billion_records_is_refused_within_the_bound(call: str, tmp_path: Path) -> None:
    verdict, taken = growth(batch_around(bytes(1000), Codec.NONE, 2**31 - 1), call, tmp_path)
    assert verdict == "refused"
    assert taken < ALLOWED


def test_many_small_records_are_not_held_at_once(tmp_path: Path) -> None:
    count = 200_000
    records = bytearray()
    for number in range(count):
        delta = bytearray()
        append_varint(delta, number)
        records += bytes(((5 + len(delta)) * 2, 0, 0)) + delta + b"\x01\x01\x00"
    batch = batch_around(compress(Codec.ZSTD, bytes(records)), Codec.ZSTD, count)
    verdict, taken = growth(batch, "read", tmp_path)
    assert verdict == ""
    assert taken < 4 * len(records) + 4 * MIB
