"""Roots: what is built is parsed, and a damaged or inconsistent root is refused."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.records.checksum import crc32c
from kafscale.rewritten.root import MAX_ENTRIES, CorruptRoot, Entry, Root, build_root, parse_root
from kafscale.v1.metadata_pb2 import EpochHistory
from kafscale.v1.rewritten_pb2 import CompactionPass, RewrittenEntry, RewrittenRoot

TOPIC_ID = b"0123456789abcdef"


def entry(start: int, end: int, **fields: Any) -> Entry:
    described = {"epoch": 3, "attempt": 2, "base_offset": start, "size": 1000, "records": 5, "crc": 7} | fields
    return Entry(start, end, RewrittenEntry(next_offset=end, **described))


def epoch(number: int, first_offset: int) -> EpochHistory.Entry:
    return EpochHistory.Entry(epoch=number, first_offset=first_offset)


ROOT = Root(
    TOPIC_ID,
    9,
    [entry(100, 150, base_offset=90), Entry(150, 200, None), entry(200, 260, min_timestamp=-1, created_ms=5)],
    [epoch(1, 0), epoch(3, 180)],
    first_dirty=150,
    compaction=CompactionPass(end=260, next_offset=200),
    obsolete=("n/t/0/segment-00000000000000000100.kfs",),
)


def test_a_root_says_where_its_range_begins_and_ends() -> None:
    assert (ROOT.start, ROOT.through) == (100, 260)
    assert parse_root(build_root(ROOT)) == ROOT


def test_a_root_without_compaction_and_obsolete_objects() -> None:
    root = Root(TOPIC_ID, 1, [entry(0, 10)], [epoch(1, 0)])
    assert parse_root(build_root(root)) == root


@given(st.data())
def test_a_damaged_byte_is_noticed(data: st.DataObject) -> None:
    stored = bytearray(build_root(ROOT))
    stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRoot):
        parse_root(bytes(stored))


@given(st.integers(1, 300))
def test_a_truncated_root_is_refused(missing: int) -> None:
    with pytest.raises(CorruptRoot):
        parse_root(build_root(ROOT)[:-missing])


def test_another_format_is_refused() -> None:
    body = RewrittenRoot(format=2).SerializeToString()
    with pytest.raises(CorruptRoot, match="format 2"):
        parse_root(body + RewrittenRoot(crc=crc32c(body)).SerializeToString())


@pytest.mark.parametrize(
    "changes",
    [
        {"topic_id": b"short"},
        {"number": 0},
        {"entries": [entry(5, 5)]},
        {"entries": [entry(-1, 5, base_offset=0)]},
        {"entries": [entry(0, 10, size=0)], "epochs": [epoch(1, 0)]},
        {"entries": [entry(0, 10, attempt=0)], "epochs": [epoch(1, 0)]},
        {"entries": [entry(0, 10, base_offset=1)], "epochs": [epoch(1, 0)]},
        {"entries": [entry(i, i + 1) for i in range(MAX_ENTRIES + 1)], "epochs": [epoch(1, 0)]},
        {"epochs": []},
        {"entries": [entry(100, 150), entry(150, 200, base_offset=140)]},
        {"entries": [Entry(100, 260, RewrittenEntry(next_offset=250, epoch=3, attempt=2, base_offset=100, size=9))]},
        {"epochs": [epoch(3, 0), epoch(1, 180)]},
        {"epochs": [epoch(1, 90), epoch(3, 10)]},
        {"epochs": [epoch(1, 0), epoch(1, 180)]},
        {"epochs": [epoch(1, 101)]},
        {"epochs": [epoch(1, 0), epoch(3, 260)]},
        {"first_dirty": 261},
        {"compaction": CompactionPass(end=300, next_offset=261)},
        {"compaction": CompactionPass(end=200, next_offset=200)},
        {"compaction": CompactionPass(end=260, next_offset=99)},
        {"compaction": CompactionPass(end=149, next_offset=100)},
    ],
    ids=str,
)
def test_an_inconsistent_root_is_not_built(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptRoot):
        build_root(replace(ROOT, **changes))
