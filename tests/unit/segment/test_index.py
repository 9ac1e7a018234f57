"""The sparse index: which batches get an entry, and where a look-up starts."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.segment.index import CorruptIndex, IndexEntry, build_index, choose_entries, parse_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.verify import verify_index
from tests.support.samples.segments import small_segment


def test_the_first_batch_has_an_entry_and_then_one_every_hundred_messages() -> None:
    offsets = [0, 99, 100, 150, 200, 450, 451, 549, 550]

    assert [offsets[number] for number in choose_entries(offsets, 100)] == [0, 100, 200, 450, 550]


def test_an_index_whose_magic_is_the_number_of_the_spec_is_read_too() -> None:
    data = build_index([5, 105], [32, 500])

    assert data.startswith(b"IDX\0")
    assert parse_index(b"\0IDX" + data[4:]) == parse_index(data)


def test_a_look_up_starts_at_the_last_entry_at_or_below_the_offset() -> None:
    index = parse_index(build_index([100, 200, 300], [32, 500, 900]))

    assert [index.entry_for(offset) for offset in (99, 100, 199, 200, 300, 10**9)] == [
        IndexEntry(100, 32),
        IndexEntry(100, 32),
        IndexEntry(100, 32),
        IndexEntry(200, 500),
        IndexEntry(300, 900),
        IndexEntry(300, 900),
    ]


@pytest.mark.parametrize(
    ("offsets", "positions", "interval"),
    [
        ([], [], 100),
        ([0], [], 100),
        ([0], [32], 0),
        ([0], [32], 2**32),
        ([0], [31], 100),
        ([-1], [32], 100),
        ([5, 5], [32, 200], 100),
        ([5, 4], [32, 200], 100),
        ([5, 6], [32, 92], 100),
        ([5, 6], [32, 2**32], 100),
    ],
)
def test_batches_that_cannot_be_a_segments_get_no_index(
    offsets: list[int], positions: list[int], interval: int
) -> None:
    with pytest.raises(ValueError, match=r"."):
        build_index(offsets, positions, interval)


@pytest.mark.parametrize(
    ("at", "kind", "value", "message"),
    [
        (4, ">H", 2, "version 2"),
        (6, ">I", 3, "3 entries"),
        (6, ">I", 2**32 - 1, "4294967295 entries"),
        (10, ">I", 0, "interval 0"),
        (14, ">H", 1, "reserved 1"),
        (16, ">q", -1, "first entry"),
        (24, ">I", 33, "first entry"),
        (28, ">q", 5, "cannot follow"),
        (36, ">I", 92, "cannot follow"),
    ],
)
def test_the_error_names_the_wrong_field(at: int, kind: str, value: int, message: str) -> None:
    data = bytearray(build_index([5, 105], [32, 500]))
    struct.pack_into(kind, data, at, value)

    with pytest.raises(CorruptIndex, match=message):
        parse_index(data)


def test_an_index_without_entries_is_refused() -> None:
    with pytest.raises(CorruptIndex, match="no entries"):
        parse_index(struct.pack(">4sHIIH", b"IDX\0", 1, 0, 100, 0))


def test_the_verifier_reports_which_entry_is_wrong_and_which_are_missing() -> None:
    built = small_segment(batches=4)
    segment = parse_segment(built.data)
    second = built.positions[1]

    assert verify_index(parse_index(build_index(built.offsets, built.positions, 2)), segment) == []
    assert verify_index(parse_index(build_index([1000, 1003], [32, second], 2)), segment) == [
        f"entry 1 has offset 1003, but the batch at {second} begins at 1002"
    ]
    assert verify_index(parse_index(build_index([1000, 1200], [32, second + 61])), segment) == [
        f"entry 1 (offset 1200) points to {second + 61}, but no batch begins there"
    ]
    sparse = parse_index(build_index([1000], [32], interval=2))
    assert "interval 2 requires 4" in verify_index(sparse, segment)[0]


@given(
    counts=st.lists(st.integers(1, 300), min_size=1, max_size=40),
    interval=st.integers(1, 500),
    base=st.integers(0, 2**50),
)
@settings(max_examples=100)
def test_every_offset_is_found_from_its_entry_within_an_interval(counts: list[int], interval: int, base: int) -> None:
    offsets, positions = [base], [32]
    for count in counts[:-1]:
        offsets.append(offsets[-1] + count)
        positions.append(positions[-1] + 61 + count)
    index = parse_index(build_index(offsets, positions, interval))

    assert set(zip(index.offsets, index.positions, strict=True)) <= set(zip(offsets, positions, strict=True))
    for offset, position in zip(offsets, positions, strict=True):
        entry = index.entry_for(offset)
        assert entry.offset <= offset < entry.offset + interval + max(counts)
        assert entry.position <= position
