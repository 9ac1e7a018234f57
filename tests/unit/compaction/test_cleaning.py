"""Compaction of batches, compared with a model of Kafka's rules, and each rule by itself."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.compaction.cleaning import Cleaner, LastOfProducer, collect_keys
from kafscale.compaction.key_map import KeyMap, KeyMapFull
from kafscale.compaction.transactions import AbortedTransaction, Transactions
from kafscale.records.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    pack_header,
    peek_one,
    seal,
    verify_crc,
)
from kafscale.records.checksum import Buffer
from kafscale.records.codecs import Codec
from kafscale.records.errors import CorruptBatch
from kafscale.records.record import Record, build_batch, read_records
from tests.unit.compaction.model import ABORT, COMMIT, B, R, compact

MAX = 1 << 20
SECRET = b"0123456789abcdef"
EPOCH = 3


def encoded(batch: B, codec: Codec = Codec.NONE, *, append_time: bool = False) -> bytes:
    records = [Record(one.offset, one.time, one.key, one.value, (("h", b"x"),)) for one in batch.records]
    if batch.marker is not None:
        key, value = b"\0\0" + batch.marker.to_bytes(2, "big"), b"\0\0\0\0\0\1"
        records = [Record(batch.base, 5, key, value)]
    built = build_batch(
        records,
        base_offset=batch.base,
        codec=codec,
        leader_epoch=EPOCH,
        producer_id=batch.producer,
        producer_epoch=0 if batch.producer >= 0 else -1,
        base_sequence=batch.base if batch.producer >= 0 else -1,
    )
    header, out = peek_one(built), bytearray(built)
    bits = header.attributes | (TRANSACTIONAL_BIT if batch.transactional else 0)
    bits |= (CONTROL_BIT if batch.marker is not None else 0) | (LOG_APPEND_TIME_BIT if append_time else 0)
    out[: len(pack_header(header))] = pack_header(
        header._replace(attributes=bits, last_offset_delta=batch.last - batch.base)
    )
    seal(out)
    return bytes(out)


def decoded(batch: Buffer) -> B:
    header = peek_one(batch)
    verify_crc(batch, 0, header)
    assert header.leader_epoch == EPOCH
    records = list(read_records(batch, max_bytes=MAX))
    marker = None
    if header.is_control:
        marker = records[0].key[3] if records and records[0].key else COMMIT
    elif records and not header.is_log_append_time:
        assert header.max_timestamp == max(record.timestamp for record in records)
    return B(
        header.base_offset,
        header.last_offset,
        tuple(R(one.offset, one.key, one.value, one.timestamp) for one in records),
        header.producer_id,
        header.is_transactional,
        marker,
        header.base_timestamp if header.has_horizon else None,
    )


def cleaned(
    log: Iterable[Buffer],
    *,
    dirty: int = 0,
    now: int | None = 0,
    horizon: int = 0,
    last: dict[int, int | None] | None = None,
    aborted: Iterable[AbortedTransaction] = (),
    from_start: bool = True,
    epoch: int = 0,
) -> list[Buffer]:
    """Return the batches after a pass."""
    log, aborted = list(log), list(aborted)
    keys = KeyMap(1 << 16, secret=SECRET)
    part = [batch for batch in log if peek_one(batch).base_offset >= dirty]
    assert collect_keys(part, keys, Transactions(aborted), max_bytes=MAX) is None
    producers = {producer: LastOfProducer(offset, epoch) for producer, offset in (last or {}).items()}
    cleaner = Cleaner(
        keys,
        Transactions(aborted, from_start=from_start),
        producers,
        now_ms=now,
        horizon_ms=horizon,
        max_bytes=MAX,
    )
    stays = [one for batch in log if (one := cleaner.clean(batch)) is not None]
    assert cleaner.counts.batches_out == len(stays)
    assert cleaner.counts.bytes_out == sum(map(len, stays))
    assert cleaner.counts.records_out == sum(peek_one(batch).record_count for batch in stays)
    return stays


def records_of(batches: Iterable[Buffer]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for batch in batches for one in decoded(batch).records]


KEYS = st.sampled_from([b"a", b"b", b"c", b""])
VALUES = st.sampled_from([b"1", b"2" * 40, None])


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[B], list[AbortedTransaction]]:
    """A log of batches from any producers, with holes between them, and ended transactions."""
    log: list[B] = []
    aborted: list[AbortedTransaction] = []
    open_since: dict[int, int] = {}
    offset = 0

    def mark(producer: int, kind: int) -> None:
        nonlocal offset
        if kind == ABORT:
            aborted.append(AbortedTransaction(producer, open_since[producer], offset))
        del open_since[producer]
        log.append(B(offset, offset, (), producer, True, kind))
        offset += 1

    for _ in range(draw(st.integers(1, 12))):
        producer = draw(st.sampled_from([-1, 1, 2, 3]))
        if producer in open_since and draw(st.booleans()):
            mark(producer, draw(st.sampled_from([COMMIT, ABORT])))
            continue
        offset += draw(st.sampled_from([0, 0, 3]))
        count = draw(st.integers(1, 4))
        records = tuple(R(offset + i, draw(KEYS), draw(VALUES), draw(st.integers(0, 10**13))) for i in range(count))
        # Only producers with a transactional id have transactions.
        if producer in (1, 2):
            open_since.setdefault(producer, offset)
        log.append(B(offset, offset + count - 1, records, producer, producer in (1, 2)))
        offset += count
    for producer in list(open_since):
        mark(producer, draw(st.sampled_from([COMMIT, ABORT])))
    return log, aborted


@given(logs(), logs(), st.data())
def test_passes_leave_what_kafkas_rules_leave(
    first: tuple[list[B], list[AbortedTransaction]],
    second: tuple[list[B], list[AbortedTransaction]],
    data: st.DataObject,
) -> None:
    codecs = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    log, aborted = first
    batches = [encoded(one, data.draw(codecs)) for one in log]
    log = [decoded(batch) for batch in batches]
    dirty, now = 0, 1000
    more, more_aborted = second
    for round_number in range(3):
        last = {
            one.producer: (None if one.marker is not None else one.last)
            for one in log
            if one.producer >= 0 and data.draw(st.booleans())
        }
        horizon = now + data.draw(st.sampled_from([0, 500]))
        at = data.draw(st.sampled_from([now, now + 400, None]))
        batches = list(map(bytes, cleaned(batches, dirty=dirty, now=at, horizon=horizon, last=last, aborted=aborted)))
        log = compact(log, dirty=dirty, now=at, horizon=horizon, last=last)
        assert [decoded(batch) for batch in batches] == log
        dirty = max((one.last for one in log), default=-1) + 1
        now += 300
        if round_number == 0:
            shift = max(dirty, 100)
            added = [_moved(one, shift) for one in more]
            aborted += [
                AbortedTransaction(one.producer_id, one.first_offset + shift, one.last_offset + shift)
                for one in more_aborted
            ]
            added_batches = [encoded(one, data.draw(codecs)) for one in added]
            batches += added_batches
            log += [decoded(batch) for batch in added_batches]


def _moved(batch: B, by: int) -> B:
    records = tuple(replace(one, offset=one.offset + by) for one in batch.records)
    return replace(batch, base=batch.base + by, last=batch.last + by, records=records)


A, B2 = R(0, b"a", b"1", 50), R(1, b"b", None, 40)


def test_a_batch_that_keeps_all_records_is_not_copied() -> None:
    batch = encoded(B(0, 0, (A,)), Codec.ZSTD)
    assert cleaned([batch])[0] is batch


def test_survivors_keep_their_bytes_and_their_batch_its_offsets_producer_and_codec() -> None:
    records = (A, R(1, b"c", b"3", 90), R(2, b"b", b"4" * 90, 70))
    first = encoded(B(0, 2, records, 7), Codec.LZ4)
    (left, _) = cleaned([first, encoded(B(3, 3, (R(3, b"c", b"5", 80),)))])
    before, after = peek_one(first), peek_one(left)
    assert decoded(left) == B(0, 2, (records[0], records[2]), 7)
    assert after.codec is Codec.LZ4
    assert after._replace(batch_length=0, crc=0) == before._replace(
        batch_length=0, crc=0, max_timestamp=70, record_count=2
    )


def test_a_tombstone_stays_until_the_horizon_that_the_first_pass_sets() -> None:
    log = [encoded(B(0, 1, (A, B2), 7), Codec.GZIP)]
    first = cleaned(log, now=10_000, horizon=20_000)
    assert decoded(first[0]) == B(0, 1, (A, B2), 7, horizon=20_000)
    # Later passes do not move the horizon.
    second = cleaned(first, now=19_999, horizon=30_000)
    assert second == first
    assert records_of(cleaned(second, now=20_000)) == [(0, b"a", b"1")]
    # While the time is not certain, it is not past.
    assert cleaned(second, now=None) == second


def test_records_of_a_batch_with_append_time_keep_it() -> None:
    batch = encoded(B(0, 1, (R(0, b"a", None, 5), R(1, b"a", None, 9))), append_time=True)
    (left,) = cleaned([batch], horizon=77)
    assert decoded(left) == B(0, 1, (R(1, b"a", None, 9),), horizon=77)


def test_timestamps_at_both_ends_of_their_range_survive_a_horizon() -> None:
    records = (R(0, b"a", None, -(2**63)), R(1, b"b", None, 2**63 - 1), R(2, b"c", None, -1))
    (left,) = cleaned([encoded(B(0, 2, records))], horizon=2**62)
    assert decoded(left).records == records


def test_the_last_batch_of_an_active_producer_stays_without_records() -> None:
    log = [encoded(B(0, 0, (R(0, b"a", b"1", 5),), 7)), encoded(B(1, 1, (R(1, b"a", b"2", 5),), 8))]
    for _ in range(2):
        log = list(map(bytes, cleaned(log, last={7: 0, 8: 1})))
        assert [decoded(batch).records for batch in log] == [(), (R(1, b"a", b"2", 5),)]
        kept = peek_one(log[0])
        assert (kept.producer_id, kept.base_sequence, kept.max_timestamp, len(log[0])) == (7, 0, 5, 61)
    assert len(cleaned(log, last={8: 1})) == 1


def test_an_emptied_batch_keeps_the_type_of_its_timestamps_and_loses_its_horizon() -> None:
    log = [encoded(B(0, 0, (R(0, b"a", None, 5),), 7), Codec.GZIP, append_time=True)]
    first = cleaned(log, horizon=100, last={7: 0})
    (emptied,) = cleaned(first, now=100, last={7: 0})
    header = peek_one(emptied)
    assert (header.attributes, header.base_timestamp, header.record_count) == (LOG_APPEND_TIME_BIT, -1, 0)


def test_the_last_marker_of_an_active_producer_stays_without_its_record() -> None:
    log = [encoded(B(1, 1, (), 1, True, COMMIT))]
    log = list(map(bytes, cleaned(log, horizon=100)))
    for _ in range(2):
        log = list(map(bytes, cleaned(log, now=100, last={1: None})))
        assert [peek_one(batch).record_count for batch in log] == [0]
    # Later batches of another epoch make it needless.
    assert cleaned(log, now=100, last={1: None}, epoch=1) == []


def test_records_without_a_key_are_removed() -> None:
    assert records_of(cleaned([encoded(B(0, 1, (R(0, None, b"x", 5), R(1, b"", b"y", 5))))])) == [(1, b"", b"y")]


def test_an_aborted_record_neither_stays_nor_removes_an_earlier_one() -> None:
    log = [
        encoded(B(0, 0, (A,))),
        encoded(B(1, 1, (R(1, b"a", b"no", 5),), 1, True)),
        encoded(B(2, 2, (), 1, True, ABORT)),
        encoded(B(3, 3, (R(3, b"b", b"yes", 5),), 1, True)),
        encoded(B(4, 4, (), 1, True, COMMIT)),
    ]
    left = cleaned(log, aborted=[AbortedTransaction(1, 1, 2)])
    assert [decoded(batch).base for batch in left] == [0, 2, 3, 4]
    assert records_of(left[:1]) == [(0, b"a", b"1")]


def test_a_marker_goes_after_the_records_of_its_transaction() -> None:
    log = [
        encoded(B(0, 0, (A,), 1, True)),
        encoded(B(1, 1, (), 1, True, COMMIT)),
        encoded(B(2, 2, (R(2, b"a", b"2", 5),))),
    ]
    # The pass that removes the records still finds them, so only the next one sets the horizon.
    first = cleaned(log, horizon=100)
    assert first == log[1:]
    second = cleaned(first, horizon=100)
    assert decoded(second[0]).horizon == 100
    assert [decoded(batch).base for batch in cleaned(second, now=99)] == [1, 2]
    assert [decoded(batch).base for batch in cleaned(second, now=100)] == [2]
    # Where earlier batches are not read, they may have records of the transaction.
    assert cleaned(first, horizon=100, from_start=False) == first
    assert len(cleaned(second, now=100, from_start=False)) == 2


def test_only_records_of_the_dirty_part_remove_earlier_ones() -> None:
    log = [encoded(B(i, i, (R(i, key, b"%d" % i, 5),))) for i, key in enumerate([b"a", b"a", b"b", b"b"])]
    assert [offset for offset, _, _ in records_of(cleaned(log, dirty=2))] == [0, 1, 3]


def test_a_map_that_is_full_ends_the_pass_at_a_batch() -> None:
    log = [encoded(B(i, i, (R(i, b"%d" % i, b"x", 5),))) for i in range(30)]
    keys = KeyMap(240, secret=SECRET)
    assert collect_keys(log, keys, Transactions(), max_bytes=MAX) == 9
    assert len(keys) == 9


@pytest.mark.parametrize("damaged", [61, 64])
def test_damaged_records_are_reported(damaged: int) -> None:
    batch = bytearray(encoded(B(0, 0, (A,))))
    batch[damaged] = 0x7F
    with pytest.raises(CorruptBatch):
        cleaned([bytes(batch)])


def test_bytes_after_the_last_record_are_reported() -> None:
    batch = bytearray(encoded(B(0, 0, (A,))) + b"\0")
    seal(batch)
    with pytest.raises(CorruptBatch):
        cleaned([bytes(batch)])


def test_a_batch_is_decompressed_up_to_a_limit() -> None:
    batch = encoded(B(0, 0, (R(0, b"a", b"x" * MAX, 5),)), Codec.ZSTD)
    with pytest.raises(CorruptBatch):
        cleaned([batch])


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62))))
def test_the_map_is_a_dict(puts: list[tuple[bytes, int]]) -> None:
    keys, expected = KeyMap(1 << 14, secret=SECRET), dict[bytes, int]()
    for key, offset in puts:
        keys.put(key, offset)
        expected[key] = offset
    assert {key: keys.last_offset(key) for key in expected} == expected
    assert keys.last_offset(b"none of them") == -1
    assert len(keys) == len(expected)


def test_the_smallest_map_has_room_for_a_key_and_knows_no_other() -> None:
    keys = KeyMap(0, secret=SECRET)
    keys.put(b"a", 1)
    assert (keys.last_offset(b"a"), keys.last_offset(b"b")) == (1, -1)
    with pytest.raises(KeyMapFull):
        keys.put(b"b", 2)
