"""Rewritten objects and their indexes: what is built is verified, and any part of it can be read by itself."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptData
from kafscale.records.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.records.batch import HORIZON_BIT, pack_header, peek_one, place, seal
from kafscale.records.record import Record, build_batch
from kafscale.rewritten.index import CorruptRewrittenIndex, build_rewritten_index, parse_rewritten_index
from kafscale.rewritten.keys import RewrittenKey
from kafscale.rewritten.object import BuiltObject, CorruptObject, ObjectBuilder, batches_of, verify_object

EPOCH, ATTEMPT, CREATED = 9, 4, 1_700_000_000_000
KIB = 1024


def batch(base: int, count: int = 1, *, size: int = 10, epoch: int = 3, time: int = 5) -> bytes:
    records = [Record(base + i, time, b"k", bytes([i % 251]) * size) for i in range(count)]
    return build_batch(records, base_offset=base, leader_epoch=epoch)


def emptied(base: int, *, epoch: int = 3) -> bytes:
    header = peek_one(batch(base, epoch=epoch))
    out = bytearray(pack_header(header._replace(record_count=0, producer_id=7)))
    seal(out)
    return bytes(out)


def built(batches: Sequence[bytes], base: int, next_offset: int) -> BuiltObject:
    builder = ObjectBuilder(base, epoch=EPOCH, attempt=ATTEMPT, created_ms=CREATED)
    for one in batches:
        builder.add(one)
    done = builder.finish(next_offset)
    assert done is not None
    assert len(done.data) == builder.size
    return done


def key(base: int, next_offset: int) -> RewrittenKey:
    return RewrittenKey("n", "t", 0, base, next_offset, EPOCH, ATTEMPT)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[list[bytes], int, int]:
    """Batches with holes, of epochs that do not fall, and a range that contains them."""
    base = offset = draw(st.integers(0, 1000))
    batches, epoch = [], 1
    for _ in range(draw(st.integers(1, 8))):
        offset += draw(st.sampled_from([0, 0, 1, 50]))
        epoch += draw(st.sampled_from([0, 0, 2]))
        count = draw(st.integers(1, 3))
        batches.append(batch(offset, count, size=draw(st.sampled_from([1, 30 * KIB, 70 * KIB])), epoch=epoch))
        offset += count
    return batches, base, offset + draw(st.integers(0, 5))


@given(ranges())
def test_what_is_built_is_verified(case: tuple[list[bytes], int, int]) -> None:
    batches, base, next_offset = case
    one = built(batches, base, next_offset)
    assert (one.entry.base_offset, one.entry.next_offset, one.entry.epoch) == (base, next_offset, EPOCH)
    assert one.entry.records == sum(peek_one(each).record_count for each in batches)
    assert verify_object(key(base, next_offset), one.data, check_batches=True) == one.entry


@given(ranges(), st.integers(1, 300 * KIB), st.data())
def test_a_part_has_all_batches_from_an_offset(
    case: tuple[list[bytes], int, int], max_bytes: int, data: st.DataObject
) -> None:
    batches, base, next_offset = case
    one = built(batches, base, next_offset)
    index = parse_rewritten_index(one.index)
    offset = data.draw(st.integers(base, next_offset - 1))
    first, end = index.part(offset, max_bytes)
    piece = one.data[index.positions[first] : index.positions[end]]
    read = list(map(bytes, batches_of(piece, index, first, end)))
    assert read == [each for each in batches if index.offsets[first] <= peek_one(each).base_offset < index.offsets[end]]
    assert first == 0 or index.offsets[first] <= offset
    assert offset < index.offsets[end]
    assert len(piece) <= max_bytes or end == first + 1


@given(ranges(), st.integers(1, 300 * KIB), st.data())
def test_a_reader_that_goes_on_after_each_part_reads_all_batches(
    case: tuple[list[bytes], int, int], max_bytes: int, data: st.DataObject
) -> None:
    batches, base, next_offset = case
    one = built(batches, base, next_offset)
    index = parse_rewritten_index(one.index)
    start = offset = data.draw(st.integers(base, next_offset - 1))
    read = []
    while offset < next_offset:
        first, end = index.part(offset, max_bytes)
        read += batches_of(one.data[index.positions[first] : index.positions[end]], index, first, end)
        offset = index.offsets[end]
    assert [bytes(each) for each in read if peek_one(each).next_offset > start] == [
        each for each in batches if peek_one(each).next_offset > start
    ]


def test_entries_are_at_least_64_kib_apart() -> None:
    index = parse_rewritten_index(built([batch(i, size=30 * KIB) for i in range(20)], 0, 20).index)
    assert list(index.offsets) == [0, 3, 6, 9, 12, 15, 18, 20]
    assert all(later - earlier >= 64 * KIB for earlier, later in pairwise(index.positions[:-1]))


def test_an_object_may_have_only_batches_without_records() -> None:
    one = built([emptied(5), emptied(9)], 3, 20)
    assert (one.entry.records, one.entry.min_timestamp) == (0, 5)
    assert verify_object(key(3, 20), one.data) == one.entry


def test_a_range_without_batches_has_no_object() -> None:
    assert ObjectBuilder(5, epoch=1, attempt=1, created_ms=0).finish(9) is None


def test_times_are_those_of_the_headers_without_delete_horizons() -> None:
    horizon = bytearray(batch(4, time=300))
    header = peek_one(horizon)
    horizon[: len(pack_header(header))] = pack_header(
        header._replace(attributes=HORIZON_BIT, base_timestamp=2, max_timestamp=800)
    )
    seal(horizon)
    batches = [batch(0, time=700), batch(1, time=-1), batch(2, time=500), batch(3, time=600), bytes(horizon)]
    one = built(batches, 0, 5)
    assert (one.entry.min_timestamp, one.entry.max_timestamp) == (500, 800)


@pytest.mark.parametrize(
    ("batches", "base", "next_offset"),
    [
        ([batch(5), batch(5)], 0, 9),
        ([batch(5, 3), batch(7)], 0, 9),
        ([batch(5)], 6, 9),
        ([batch(5, 3)], 0, 7),
        ([batch(5, epoch=4), batch(6, epoch=3)], 0, 9),
    ],
)
def test_batches_that_do_not_follow_each_other_are_refused(batches: list[bytes], base: int, next_offset: int) -> None:
    with pytest.raises(CorruptObject):
        built(batches, base, next_offset)


@given(st.data())
def test_a_damaged_object_is_noticed(data: st.DataObject) -> None:
    one = built([batch(3, 2), batch(9, epoch=4)], 3, 12)
    damaged = bytearray(one.data)
    # Nothing covers the flags and the time of creation, which the root has.
    covered = [i for i in range(len(damaged)) if not 6 <= i < 8 and not 20 <= i < 28]
    damaged[data.draw(st.sampled_from(covered))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptData):
        verify_object(key(3, 12), bytes(damaged))


@given(st.data())
def test_a_damaged_index_is_noticed(data: st.DataObject) -> None:
    damaged = bytearray(built([batch(3, 2), batch(9)], 3, 12).index)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRewrittenIndex):
        parse_rewritten_index(bytes(damaged))


def test_a_part_with_a_moved_batch_is_not_believed() -> None:
    one = built([batch(0), batch(1)], 0, 5)
    index, body = parse_rewritten_index(one.index), bytearray(one.data[32:-16])
    second = len(body) - len(batch(1))
    assert len(batches_of(bytes(body), index, 0, 1)) == 2
    # Valid by the batch's own checksum, which does not cover base offset and epoch.
    place(body, second, 3, 3)
    with pytest.raises(CorruptRewrittenIndex):
        batches_of(bytes(body), index, 0, 1)
    with pytest.raises(CorruptRewrittenIndex):
        batches_of(bytes(body[:-BATCH_HEADER_SIZE]), index, 0, 1)


@pytest.mark.parametrize(
    ("offsets", "positions", "crcs"),
    [
        ([0, 5], [32, 100], []),
        ([0, 5], [33, 100], [1]),
        ([5, 5], [32, 100], [1]),
        ([-1, 5], [32, 100], [1]),
        ([0, 3, 5], [32, 32, 100], [1, 2]),
    ],
)
def test_an_inconsistent_index_is_not_built(offsets: list[int], positions: list[int], crcs: list[int]) -> None:
    with pytest.raises(CorruptRewrittenIndex):
        build_rewritten_index(offsets, positions, crcs)
