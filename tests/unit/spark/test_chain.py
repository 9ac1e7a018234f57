"""Segments of a log: missing and leftover ones, and changes while the bucket is in use."""

from dataclasses import replace

import pytest

from kafscale_spark.audit.chain import Bounds, check_chain
from kafscale_spark.audit.findings import Kind
from kafscale_spark.audit.objects import Checked


def _segment(base: int, end: int, epoch: int = 1) -> Checked:
    return Checked(f"{base}", "orders", 0, base, end, epoch)


LOG = [_segment(0, 5), _segment(5, 9), _segment(9, 20, 2)]
WHOLE = Bounds(0, end_before=20, end_after=20)


def _found(segments: list[Checked], bounds: Bounds) -> list[tuple[Kind, int]]:
    return [(finding.kind, finding.offset) for finding in check_chain("orders", 0, segments, bounds)]


@pytest.mark.parametrize(
    ("segments", "bounds", "expected"),
    [
        (LOG, WHOLE, []),
        ([], Bounds(0, end_before=0, end_after=0), []),
        ([], WHOLE, [(Kind.END_DISAGREES, 0)]),
        ([LOG[0], LOG[2]], WHOLE, [(Kind.SEGMENTS_MISSING, 5)]),
        (LOG[1:], WHOLE, [(Kind.SEGMENTS_MISSING, 0)]),
        (LOG[:2], WHOLE, [(Kind.END_DISAGREES, 9)]),
        (LOG, replace(WHOLE, end_before=10, end_after=15), [(Kind.END_DISAGREES, 15)]),
        ([_segment(0, 5, 2), _segment(5, 20, 1)], WHOLE, [(Kind.EPOCHS_FALL, 5)]),
        # Retention: the log begins within the second segment, and the first one will be deleted.
        (LOG, replace(WHOLE, log_start=7), [(Kind.ORPHAN, 0)]),
        # Stored after the listing began, or by an owner that died before its commit.
        ([*LOG, _segment(20, 30, 2)], replace(WHOLE, end_after=30), []),
        ([*LOG, _segment(20, 30, 2)], WHOLE, [(Kind.ORPHAN, 20)]),
        # Committed after the listing.
        (LOG, replace(WHOLE, end_after=30), []),
        # A segment of a dead owner, which the log has passed.
        ([LOG[0], _segment(3, 7), *LOG[1:]], WHOLE, [(Kind.ORPHAN, 3)]),
        # Damage hides the end of a segment, and the next segment determines it.
        ([LOG[0], replace(LOG[1], next_offset=-1, epoch=-1), LOG[2]], WHOLE, []),
        ([*LOG[:2], replace(LOG[2], next_offset=-1)], WHOLE, []),
        # Deleted between the listing and the read.
        ([replace(LOG[0], gone=True), *LOG[1:]], replace(WHOLE, log_start=5), []),
        # The bucket has only an old log start, and no end.
        (LOG[1:], Bounds(2, start_known=False), []),
        ([LOG[0], LOG[2]], Bounds(0, start_known=False), [(Kind.SEGMENTS_MISSING, 5)]),
    ],
)
def test_segments_are_checked_against_the_bounds_of_their_log(
    segments: list[Checked], bounds: Bounds, expected: list[tuple[Kind, int]]
) -> None:
    assert _found(segments, bounds) == expected
