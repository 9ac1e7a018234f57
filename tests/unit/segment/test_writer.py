"""Batches that the writer refuses, and its cost."""

import tracemalloc

import pytest

from kafscale.records.batch import peek_one, placed_prefix
from kafscale.segment.writer import build_segment
from tests.support.samples.segments import EPOCH, make_batch, placed

BATCH = make_batch([1, 2])


def _build(pieces: list[tuple[bytes, memoryview]]) -> None:
    build_segment(pieces, epoch=EPOCH, created_ms=0)


def test_batches_with_gaps_or_several_epochs_are_refused() -> None:
    first = placed([BATCH], base_offset=10)
    with pytest.raises(ValueError, match="12 is next"):
        _build(first + placed([BATCH], base_offset=13))
    with pytest.raises(ValueError, match="12 is next"):
        _build(first + placed([BATCH], base_offset=11))
    with pytest.raises(ValueError, match="epoch 9 in a segment of epoch 3"):
        _build(first + placed([BATCH], base_offset=12, epoch=9))


def test_a_prefix_that_does_not_match_the_rest_is_refused() -> None:
    prefix, rest = placed([BATCH], base_offset=10)[0]
    with pytest.raises(ValueError, match="bytes after the prefix"):
        _build([(prefix, rest[:-1])])
    with pytest.raises(ValueError, match="bytes after the prefix"):
        _build([(prefix, rest[:10])])


def test_no_batches_make_no_segment() -> None:
    with pytest.raises(ValueError, match="at least one message"):
        _build([])


def test_offsets_end_at_63_bits() -> None:
    header = peek_one(BATCH)
    rest = memoryview(BATCH)[16:]
    _build([(placed_prefix(header, 2**63 - 3, EPOCH), rest)])
    with pytest.raises(ValueError, match="batch at offset"):
        _build([(placed_prefix(header, 2**63 - 2, EPOCH), rest)])


def test_the_batches_bytes_are_copied_once() -> None:
    batch = make_batch([1], value=bytes(1 << 20))
    pieces = placed([batch] * 8, base_offset=0)
    tracemalloc.start()
    try:
        built = build_segment(pieces, epoch=EPOCH, created_ms=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(built.data) <= peak < len(built.data) * 1.1
