"""Cases of record batches, message sets and what reads them."""

from collections.abc import Callable, Sequence
from functools import partial

from kafscale.compaction.cleaning import Cleaner, collect_keys
from kafscale.compaction.key_map import KeyMap
from kafscale.compaction.transactions import Transactions
from kafscale.errors import CorruptData
from kafscale.records import batch, record
from kafscale.records.codecs import Codec, compress, decompress
from kafscale.records.legacy import upconvert
from tests.fuzz.records import around, batches, bombs, legacy_sets, resealed

MAX_BYTES = 1 << 20
Repair = Callable[[bytes], bytes]
Row = tuple[str, Callable[[bytes], object], Sequence[bytes], tuple[type[Exception], ...], Repair | None]
Rows = list[Row]
_CORRUPT = (CorruptData,)


def record_cases() -> Rows:
    """Return name, decoder, valid inputs, errors, and the function that repairs checksums, for each case."""
    plain = batches()[0][batch.HEADER_SIZE :]
    single = batches()[:-1]
    rows: Rows = [
        ("record headers", _headers, batches(), _CORRUPT, resealed),
        ("records", _records, (*single, *bombs()), _CORRUPT, resealed),
        ("compaction", _compacted, single, _CORRUPT, resealed),
        ("message set", partial(upconvert, now_ms=1, max_bytes=MAX_BYTES), legacy_sets(), _CORRUPT, None),
    ]
    for each in Codec:
        packed = [compress(each, plain), compress(each, bytes(4 * MAX_BYTES)), compress(each, b"")]
        rows.append((f"decompress {each.name}", partial(_decompressed, each), packed, _CORRUPT, None))
        rows.append((f"records in {each.name}", partial(_packed, each), (plain,), _CORRUPT, None))
    return rows


def _headers(data: bytes) -> None:
    for position, header in batch.walk(data):
        batch.verify_crc(data, position, header)
        batch.check_produced(header)
    batch.check_producers(data)
    batch.with_log_append_time(data, 5)


def _records(data: bytes) -> None:
    for read in (
        lambda: list(record.read_records(data, max_bytes=MAX_BYTES)),
        lambda: record.first_at_or_after(data, 0, max_bytes=MAX_BYTES),
        lambda: record.largest_timestamp(data, max_bytes=MAX_BYTES),
        lambda: record.records_without_key(data, max_bytes=MAX_BYTES),
        lambda: record.compress_batch(data, Codec.ZSTD),
    ):
        try:
            read()
        except CorruptData:
            continue


def _compacted(data: bytes) -> None:
    keys = KeyMap(1 << 16, secret=b"secret")
    collect_keys([data], keys, Transactions(), max_bytes=MAX_BYTES)
    Cleaner(keys, Transactions(), {}, now_ms=5, horizon_ms=7, max_bytes=MAX_BYTES).clean(data)


def _decompressed(each: Codec, data: bytes) -> None:
    found = decompress(each, data, MAX_BYTES)
    if len(found) > MAX_BYTES:
        raise AssertionError(f"{len(found)} bytes")


def _packed(each: Codec, data: bytes) -> None:
    count = 2 + (data[0] if data else 0) % 3
    for numbers in ((2, 1), (count, count - 1), (len(data), 2**31 - 1)):
        _records(around(compress(each, data), each, count=numbers[0], last_delta=numbers[1]))
