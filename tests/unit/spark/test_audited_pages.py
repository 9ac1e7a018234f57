"""Catalog pages compared with the segments that they describe."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from kafscale.catalog.page import build_page, describe
from kafscale.paths import catalog_page_key, index_key, segment_key
from kafscale.segment.index import build_index
from kafscale.segment.writer import BuiltSegment
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale_spark.audit.bucket import Listed
from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.findings import Kind
from kafscale_spark.audit.objects import Checked, check_object
from kafscale_spark.audit.pages import check_pages
from tests.support.samples.catalog import REF
from tests.support.samples.segments import EPOCH, small_segment

SEGMENTS = [small_segment(base_offset=base) for base in (0, 6, 12)]
WHOLE = Bounds(0, end_before=18, end_after=18, topic_id=REF.topic_id)


class _Objects(dict[str, bytes]):
    """A bucket in memory."""

    def list(self, prefix: str) -> Iterator[Listed]:
        return (Listed(key, len(data)) for key, data in self.items() if key.startswith(prefix))


def _entries(segments: Sequence[BuiltSegment] = SEGMENTS) -> list[CatalogSegment]:
    return [describe(each.data, each.positions, each.next_offset) for each in segments]


def _checked(segments: Sequence[BuiltSegment]) -> list[Checked]:
    objects = _Objects()
    keys = []
    for built in segments:
        at = (REF.topic, REF.partition, built.base_offset)
        keys.append(segment_key("ns", *at))
        objects[keys[-1]] = built.data
        objects[index_key("ns", *at)] = build_index(built.offsets, built.positions)
    return [check_object(objects, key) for key in keys]


def _page(entries: Sequence[CatalogSegment]) -> Checked:
    key = catalog_page_key("ns", REF.topic, REF.partition, entries[0].base_offset, EPOCH)
    page = check_object(_Objects({key: build_page(REF, EPOCH, entries)}), key)
    assert page.findings == []
    return page


def _found(
    entries: Sequence[CatalogSegment], segments: Sequence[BuiltSegment] = SEGMENTS, bounds: Bounds = WHOLE
) -> list[tuple[Kind, int, str]]:
    findings = check_pages([_page(entries)], _checked(segments), bounds)
    return [(finding.kind, finding.offset, finding.detail) for finding in findings]


def test_a_correct_page_has_no_finding() -> None:
    assert _found(_entries()) == []


@pytest.mark.parametrize(
    ("name", "wrong"), [("size", 1), ("records", 2), ("min_timestamp", 3), ("max_timestamp", 4), ("created_ms", 5)]
)
def test_a_page_with_a_wrong_value_is_reported(name: str, wrong: int) -> None:
    entries = _entries()
    right = getattr(entries[1], name)
    setattr(entries[1], name, wrong)
    assert _found(entries) == [
        (Kind.PAGE_WRONG, 6, f"the entry of segment 6 has {name} {wrong} instead of {right}"),
    ]


def test_a_page_that_divides_the_log_differently_is_reported() -> None:
    entries = _entries()
    entries[0].next_offset = entries[1].base_offset = 4
    found = _found(entries)
    assert [(kind, offset) for kind, offset, _ in found] == [(Kind.PAGE_WRONG, 0), (Kind.PAGE_WRONG, 4)]
    assert "next_offset 4 instead of 6" in found[0][2]


@pytest.mark.parametrize(
    ("bounds", "detail"),
    [
        (replace(WHOLE, topic_id=b"x" * 16), "it belongs to a deleted topic with the same name"),
        (replace(WHOLE, end_after=12), "it ends at offset 18, but the log ends at 12"),
        (replace(WHOLE, log_start=18), "the log begins at 18"),
    ],
)
def test_a_page_that_does_not_belong_to_the_log_is_an_orphan(bounds: Bounds, detail: str) -> None:
    assert _found(_entries(), bounds=bounds) == [(Kind.ORPHAN, 0, detail)]


def test_a_page_of_segments_replaced_by_a_later_owner_is_an_orphan() -> None:
    passed = [SEGMENTS[0], small_segment(base_offset=6, batches=6, epoch=EPOCH + 1)]
    assert _found(_entries(), passed) == [(Kind.ORPHAN, 0, "segment 6 has epoch 4, but the page says epoch 3")]


def test_missing_segments_are_not_a_fault_of_their_page() -> None:
    assert _found(_entries(), [SEGMENTS[0], SEGMENTS[2]]) == []
    assert _found(_entries(), [], Bounds(0, start_known=False)) == []
