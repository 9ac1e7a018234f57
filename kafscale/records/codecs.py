"""Kafka's compression codecs, in the framings that Kafka's own clients write and read.

Decompression never trusts a size in the data. Output buffers grow as needed to at most ``max_bytes``; with the returned
copy, memory use is at most twice ``max_bytes``. In addition, the decoder has a window: at most 8 MiB for lz4, and for
zstd the size in the frame up to 128 MiB, of which only the decoded part is touched.
"""

from collections.abc import Callable
from enum import IntEnum

from cramjam import DecompressionError, gzip, lz4, snappy, zstd

from kafscale.records.checksum import Buffer
from kafscale.records.errors import CorruptBatch

CODEC_BITS = 0x07


class Codec(IntEnum):
    """Kafka's codec ids: the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS = tuple(Codec)
_NAMES = {"none": Codec.NONE, "uncompressed": Codec.NONE} | {codec.name.lower(): codec for codec in Codec}

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_LZ4_LEVEL = 0  # the fast compressor

_BUFFER_TOO_SMALL = "failed to write whole buffer"
"""The message of all cramjam codecs if the output buffer is too small. Any other error means damage."""
_SMALLEST_BUFFER = 1 << 16
_GROWTH = 4

# The Java client's snappy stream: magic, version, lowest compatible version, then blocks, each preceded by its size.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_XERIAL_SIZE_BYTES = 4
_SNAPPY_BEST_RATIO = 32  # a 3-byte copy gives at most 64 bytes
_SNAPPY_MAX_SIZE_BYTES = 5


def codec_of(attributes: int) -> Codec:
    """Return the codec in the attributes of a batch or message. Raises CorruptBatch for the ids 5 to 7."""
    number = attributes & CODEC_BITS
    if number >= len(_CODECS):
        raise CorruptBatch(f"unknown codec {number}")
    return _CODECS[number]


def codec_by_name(name: str) -> Codec | None:
    """Return the codec with this Kafka name (``none`` and ``uncompressed`` both mean NONE), or None."""
    return _NAMES.get(name)


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress ``data`` in the Java client's framing: xerial blocks for snappy, independent blocks for lz4."""
    return _COMPRESSORS[codec](data)


def decompress(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Return the decompressed ``data``. Raises CorruptBatch if it is damaged or decompresses to over ``max_bytes``."""
    return _DECOMPRESSORS[codec](data, max_bytes)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(_XERIAL_SIZE_BYTES, "big"), block)
    return b"".join(parts)


def _compress_lz4(data: Buffer) -> bytes:
    # The Java client rejects linked blocks, which are the default of lz4's frame functions.
    compressor = lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it accepts only bytes
    return bytes(compressor.finish())


_COMPRESSORS: dict[Codec, Callable[[Buffer], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: lambda data: bytes(gzip.compress(data, level=_GZIP_LEVEL)),
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: lambda data: bytes(zstd.compress(data, level=_ZSTD_LEVEL)),
}


def _keep(data: Buffer, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise CorruptBatch(f"{len(data)} bytes exceed the limit of {max_bytes}")
    return bytes(data)


def _grow(name: str, decode_into: Callable[[Buffer, bytearray], int]) -> Callable[[Buffer, int], bytes]:
    """Return a decompressor that calls ``decode_into`` with growing buffers, as it fails if the buffer is too small."""

    def decompress_bounded(data: Buffer, max_bytes: int) -> bytes:
        size = min(max_bytes, max(_SMALLEST_BUFFER, _GROWTH * len(data)))
        while True:
            out = bytearray(size)
            try:
                written = decode_into(data, out)
            except DecompressionError as error:
                if str(error) != _BUFFER_TOO_SMALL or size >= max_bytes:
                    raise CorruptBatch(f"{name}: cannot be decoded within {max_bytes} bytes: {error}") from error
                size = min(max_bytes, _GROWTH * size)
                continue
            return bytes(memoryview(out)[:written])

    return decompress_bounded


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    parts: list[bytes] = []
    remaining = max_bytes
    pos, end = len(_XERIAL_HEADER), len(view)
    if end < pos:
        raise CorruptBatch("snappy: the stream ends in its header")
    while pos < end:
        start = pos + _XERIAL_SIZE_BYTES
        pos = start + int.from_bytes(view[start - _XERIAL_SIZE_BYTES : start], "big")
        if pos > end:
            raise CorruptBatch(f"snappy: a block ends at {pos}, but the data at {end}")
        part = _decompress_snappy_block(view[start:pos], remaining)
        remaining -= len(part)
        parts.append(part)
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    try:
        size = snappy.decompress_raw_len(block[:_SNAPPY_MAX_SIZE_BYTES])
        if size > max_bytes or size > len(block) * _SNAPPY_BEST_RATIO:
            raise CorruptBatch(f"snappy: {len(block)} bytes claim to contain {size}, but at most {max_bytes} may come")
        out = bytearray(size)
        snappy.decompress_raw_into(block, out)
    except DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error
    return bytes(out)


_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int], bytes]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _grow("gzip", gzip.decompress_into),
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _grow("lz4", lz4.decompress_into),
    Codec.ZSTD: _grow("zstd", zstd.decompress_into),
}
