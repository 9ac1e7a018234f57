import struct
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.records.codecs import Codec, codec_by_name, codec_of, compress, decompress
from kafscale.records.errors import CorruptBatch
from kafscale.records.lz4_frame import with_right_header_checksum

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
contents = st.binary(max_size=2000) | st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 30_000)).map(
    lambda pair: pair[0] * pair[1]
)


@given(st.sampled_from(Codec), contents)
def test_compressed_data_is_decompressed_to_the_original(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), 1 << 20) == data


@given(st.sampled_from(Codec), contents.filter(len))
def test_one_byte_too_many_is_refused(codec: Codec, data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, data), len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_data_is_refused(codec: Codec) -> None:
    packed = compress(codec, b"some bytes that are there " * 4000)
    for length in (0, 1, 3, 7, 12, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:length], 1 << 20)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_of_another_codec_is_refused(codec: Codec) -> None:
    for junk in (b"\xff" * 40, b"plain text", bytes(100)):
        with pytest.raises(CorruptBatch):
            decompress(codec, junk, 1 << 20)


def test_snappy_is_written_in_the_java_clients_framing() -> None:
    data = bytes(range(256)) * 300
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    sizes, pos = [], 16
    while pos < len(packed):
        (length,) = struct.unpack_from(">i", packed, pos)
        sizes.append(len(cramjam.snappy.decompress_raw(packed[pos + 4 : pos + 4 + length])))
        pos += 4 + length
    assert sizes == [32768, 32768, len(data) - 65536]


def test_snappy_without_framing_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw" * 99)), 1000) == b"raw" * 99


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\x7f"])
def test_snappy_does_not_trust_a_claimed_size(claim: bytes) -> None:
    raw = claim + b"\x00a"
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(raw)) + raw
    for lie in (raw, framed):
        with pytest.raises(CorruptBatch, match="claim"):
            decompress(Codec.SNAPPY, lie, 1 << 40)


def test_snappy_blocks_that_end_after_the_stream_are_refused() -> None:
    packed = bytearray(compress(Codec.SNAPPY, b"abc"))
    for size in (100, 2**31 - 1, 2**32 - 1):
        packed[16:20] = size.to_bytes(4, "big")
        with pytest.raises(CorruptBatch, match="ends at"):
            decompress(Codec.SNAPPY, packed, 1000)


def test_snappy_framing_without_blocks_is_empty() -> None:
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b""), 0) == b""


def test_lz4_frames_have_independent_blocks_as_the_java_client_requires() -> None:
    packed = compress(Codec.LZ4, bytes(200_000))
    assert packed[:4] == bytes.fromhex("04224d18")
    version, independent, content_checksum = packed[4] >> 6, packed[4] & 0x20, packed[4] & 0x04
    assert (version, bool(independent), bool(content_checksum)) == (1, True, False)


def test_lz4_with_linked_blocks_is_read() -> None:
    data = bytes(range(256)) * 1000
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data)), 1 << 20) == data


def test_gzip_with_several_members_is_read() -> None:
    assert decompress(Codec.GZIP, compress(Codec.GZIP, b"one") + compress(Codec.GZIP, b"two"), 100) == b"onetwo"


def test_gzip_can_be_read_by_zlib() -> None:
    assert zlib.decompress(compress(Codec.GZIP, b"abc" * 100), 31) == b"abc" * 100


def test_codec_numbers_and_names_are_kafkas() -> None:
    assert [(codec.name, codec.value) for codec in Codec] == [
        ("NONE", 0), ("GZIP", 1), ("SNAPPY", 2), ("LZ4", 3), ("ZSTD", 4),
    ]  # fmt: skip
    assert [codec_by_name(name) for name in ("none", "uncompressed", "gzip", "snappy", "lz4", "zstd")] == [
        Codec.NONE, *Codec,
    ]  # fmt: skip
    assert [codec_by_name(name) for name in ("producer", "GZIP", "")] == [None, None, None]


@pytest.mark.parametrize("number", [5, 6, 7])
def test_unknown_codec_numbers_are_refused(number: int) -> None:
    with pytest.raises(CorruptBatch, match="codec"):
        codec_of(number | 0x08)


def test_other_attribute_bits_do_not_affect_the_codec() -> None:
    assert codec_of(0x38 | 2) is Codec.SNAPPY
    assert codec_of(-8) is Codec.NONE


def _frame(flags: int, options: bytes) -> bytes:
    """An lz4 frame with one stored block and a wrong header checksum."""
    return (
        bytes.fromhex("04224d18")
        + bytes((flags, 0x40))
        + options
        + b"?"
        + struct.pack("<I", 0x80000003)
        + b"abc"
        + bytes(4)
    )


@pytest.mark.parametrize(("flags", "options"), [(0x60, b""), (0x68, struct.pack("<q", 3))])
def test_lz4_header_checksums_are_corrected(flags: int, options: bytes) -> None:
    frame = _frame(flags, options)
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, frame, 100)
    assert decompress(Codec.LZ4, with_right_header_checksum(frame), 100) == b"abc"


@pytest.mark.parametrize("length", range(15))
def test_lz4_frames_that_end_within_their_header_are_refused(length: int) -> None:
    with pytest.raises(CorruptBatch):
        with_right_header_checksum(_frame(0x69, bytes(12))[:length])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_invalid_streams_are_not_retried_with_larger_buffers(codec: Codec) -> None:
    tracemalloc.start()
    with pytest.raises(CorruptBatch):
        decompress(codec, b"\x01garbage" * 30, 1 << 26)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
