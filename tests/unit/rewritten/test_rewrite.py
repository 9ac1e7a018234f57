"""A rewrite tiles its range, and its objects have all batches, or what compaction leaves of them."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.compaction.cleaning import Cleaner, collect_keys
from kafscale.compaction.key_map import KeyMap
from kafscale.compaction.transactions import Transactions
from kafscale.records.batch import walk
from kafscale.records.checksum import Buffer
from kafscale.records.record import read_records
from kafscale.rewritten.object import CorruptObject, verify_object
from kafscale.rewritten.rewrite import Rewriter, Rewritten
from tests.unit.rewritten.test_object import ATTEMPT, CREATED, EPOCH, batch, key, ranges


def rewritten(
    batches: Sequence[bytes],
    start: int,
    end: int,
    target: int,
    clean: Callable[[Buffer], Buffer | None] = lambda batch: batch,
) -> list[Rewritten]:
    rewriter = Rewriter(start, epoch=EPOCH, attempt=ATTEMPT, created_ms=CREATED, target_bytes=target)
    stay = [stays for batch in batches if (stays := clean(batch)) is not None]
    return [*(part for batch in stay if (part := rewriter.add(batch)) is not None), rewriter.finish(end)]


def batches_in(parts: Sequence[Rewritten]) -> list[bytes]:
    """Return all batches, after verifying the objects."""
    found = []
    for part in parts:
        if part.built is None:
            continue
        assert verify_object(key(part.start, part.end), part.built.data, check_batches=True) == part.built.entry
        body = part.built.data[32:-16]
        found += [body[position : position + header.size] for position, header in walk(body)]
    return found


@given(ranges(), st.integers(1, 200 * 1024))
def test_a_merge_has_all_batches_in_objects_of_limited_size(case: tuple[list[bytes], int, int], target: int) -> None:
    batches, start, end = case
    parts = rewritten(batches, start, end, target)
    assert [parts[0].start, *(part.end for part in parts)] == [*(part.start for part in parts), end]
    assert parts[0].start == start
    assert batches_in(parts) == batches
    for part in parts:
        assert part.built is not None
        assert part.built.entry.size <= target or len(batches_in([part])) == 1


def test_compaction_may_leave_nothing_of_a_range() -> None:
    log = [batch(i, 2) for i in range(0, 10, 2)]
    keys = KeyMap(1 << 10, secret=b"0123456789abcdef")
    collect_keys([*log, batch(10)], keys, Transactions(), max_bytes=1 << 20)
    cleaner = Cleaner(keys, Transactions(), {}, now_ms=0, horizon_ms=0, max_bytes=1 << 20)
    assert rewritten(log, 0, 10, 1 << 20, cleaner.clean) == [Rewritten(0, 10, None)]
    (part,) = rewritten([*log, batch(10)], 0, 11, 1 << 20, cleaner.clean)
    (left,) = batches_in([part])
    assert (part.start, part.end) == (0, 11)
    assert [record.offset for record in read_records(left, max_bytes=1 << 20)] == [10]


def test_batches_outside_of_the_range_are_refused() -> None:
    for start, end in ((6, 9), (0, 5)):
        with pytest.raises(CorruptObject):
            rewritten([batch(5)], start, end, 1 << 20)
