"""Record sets made by librdkafka and by the Java client (tests/golden/records/README.md)."""

import pytest

from kafscale.records.batch import check_produced, peek_one, verify_crc, walk
from kafscale.records.codecs import Codec, codec_by_name, decompress
from kafscale.records.errors import CorruptBatch
from kafscale.records.legacy import upconvert
from kafscale.records.record import build_batch, compress_batch, first_at_or_after, largest_timestamp, read_records
from tests.support.golden_records import HERE, LARGE, RECORDS, SMALL, T0, golden, without_headers

NAMES = sorted(path.stem for path in HERE.glob("*.bin"))
BATCHES = [name for name in NAMES if "magic" not in name]
MESSAGE_SETS = [name for name in NAMES if "magic" in name]
MAX = 1 << 20


def test_the_golden_files_are_all_there() -> None:
    assert (len(BATCHES), len(MESSAGE_SETS)) == (2 * (5 + 4), 2 * (4 + 3))


@pytest.mark.parametrize("name", BATCHES)
def test_batches_contain_the_known_records(name: str) -> None:
    batch = golden(name)
    _, codec, size = name.split("-")
    records = RECORDS[size]
    header = peek_one(batch)
    verify_crc(batch, 0, header)
    check_produced(header)
    assert list(walk(batch)) == [(0, header)]
    assert header.codec is codec_by_name(codec)
    assert header[:3] == (0, len(batch) - 12, header.leader_epoch)
    assert (header.record_count, header.last_offset) == (len(records), len(records) - 1)
    assert (header.base_timestamp, header.max_timestamp) == (T0, max(record.timestamp for record in records))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert tuple(read_records(batch, max_bytes=MAX)) == records


@pytest.mark.parametrize("name", MESSAGE_SETS)
def test_message_sets_become_batches_of_the_known_records(name: str) -> None:
    _, magic, codec, size = name.split("-")
    batch = upconvert(golden(name), now_ms=42, max_bytes=MAX)
    verify_crc(batch, 0, peek_one(batch))
    assert peek_one(batch).codec is codec_by_name(codec)
    expected = without_headers(RECORDS[size])
    if magic == "magic0":
        expected = tuple(record._replace(timestamp=42) for record in expected)
    assert tuple(read_records(batch, max_bytes=MAX)) == expected


def test_our_uncompressed_batch_is_the_java_clients_byte_for_byte() -> None:
    assert build_batch(SMALL, base_offset=0) == golden("java-none-small")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressing_the_java_clients_batch_keeps_its_records(codec: str) -> None:
    number = codec_by_name(codec)
    assert number is not None
    packed = compress_batch(golden("java-none-small"), number)
    verify_crc(packed, 0, peek_one(packed))
    assert peek_one(packed).codec is number
    assert tuple(read_records(packed, max_bytes=MAX)) == SMALL


@pytest.mark.parametrize("name", [name for name in BATCHES if name.endswith("small")])
def test_timestamps_are_found_inside_batches(name: str) -> None:
    batch = golden(name)
    assert first_at_or_after(batch, T0 + 4, max_bytes=MAX) == (4, T0 + 1000)
    assert first_at_or_after(batch, T0 - 1, min_offset=6, max_bytes=MAX) == (7, T0 + 1002)
    assert largest_timestamp(batch, max_bytes=MAX) == (7, T0 + 1002)


def test_the_magic_0_lz4_files_have_kafkas_wrong_header_checksum() -> None:
    # Otherwise the test above would not show that it can be read.
    message_set = golden("librdkafka-magic0-lz4-small")
    frame = message_set[message_set.index(bytes.fromhex("04224d18")) :]
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, frame, MAX)


def test_the_large_files_contain_more_than_one_block() -> None:
    assert sum(len(record.value or b"") for record in LARGE) > 2 * 64 * 1024
