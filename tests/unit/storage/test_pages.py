"""Knowledge of pages and segments matches the log in whatever order it arrives, and is bounded."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.storage.log import pages
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.pages import KnownPage, KnownPages
from services.storage.log.segments import SegmentMap


def test_an_unread_page_may_cover_any_offset_and_a_read_one_only_its_own() -> None:
    known = KnownPages()
    for base in (200, 0, 100):
        known.add(KnownPage(base, 1))
    assert known.covering(150) == KnownPage(100, 1)
    known.add(KnownPage(100, 1, end=140, newest=7))
    assert known.covering(139) == KnownPage(100, 1, 140, 7)
    assert known.covering(140) is None
    assert known.covering(5000) == KnownPage(200, 1)
    assert known.last() == KnownPage(200, 1)


def test_the_page_of_the_latest_epoch_is_used_until_it_is_discarded() -> None:
    known = KnownPages()
    for epoch in (2, 10, 9):
        known.add(KnownPage(0, epoch))
    assert known.covering(0) == KnownPage(0, 10)
    known.discard(KnownPage(0, 9))
    assert len(known) == 1
    known.discard(KnownPage(0, 10))
    assert known.covering(0) is None


def test_pages_below_the_log_start_are_forgotten() -> None:
    known = KnownPages()
    for page in (KnownPage(0, 1, 64, 5), KnownPage(64, 1, 128, 5), KnownPage(128, 1)):
        known.add(page)
    known.forget_below(100)
    assert known.covering(0) is None
    assert known.covering(64) is not None
    known.forget_below(128)
    assert known.covering(64) is None
    # The end of this page is not known.
    known.forget_below(500)
    assert known.covering(128) is not None


def test_the_number_of_known_pages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGES", 10)
    known = KnownPages()
    for base in range(100):
        known.add(KnownPage(base, 1))
    assert len(known) == 10


SEGMENTS = [KnownSegment(base, 10 + base, 1000 + base) for base in range(0, 400, 4)]
"""The log: a segment every four offsets. Objects of dead owners are between them."""

_Step = Callable[[SegmentMap], None]


def _listed(start: int, count: int, orphans: bool) -> _Step:
    found = [KnownSegment(s.base_offset, s.size, UNKNOWN_TIME) for s in SEGMENTS[start : start + count]]
    if orphans:
        found += [KnownSegment(s.base_offset + 1, 1, UNKNOWN_TIME) for s in found]
    covered = found[-1].base_offset + 4 if not orphans else found[count - 1].base_offset + 4
    return lambda known: known.listed(4 * start, sorted(found, key=lambda s: s.base_offset), covered)


def _page(start: int, count: int) -> _Step:
    found = SEGMENTS[start : start + count]
    return lambda known: known.catalogued(found, found[-1].base_offset + 4)


_places = st.tuples(st.integers(0, 99), st.integers(1, 30)).map(lambda p: (p[0], min(p[1], 100 - p[0])))
_steps = st.one_of(
    _places.map(lambda place: _page(*place)),
    st.tuples(_places, st.booleans()).map(lambda listing: _listed(*listing[0], listing[1])),
)


@given(before=st.lists(_steps, max_size=8), page=_places, limit=st.sampled_from([100_000, 150]))
def test_a_page_applies_to_its_own_range_and_hides_nothing_elsewhere(
    before: list[_Step], page: tuple[int, int], limit: int
) -> None:
    known = SegmentMap(400, SEGMENTS[-1], limit=limit)
    for step in before:
        step(known)
    room = len(known) + page[1] <= limit
    elsewhere = {offset: known.holding(offset) for offset in range(400)}
    _page(*page)(known)
    assert len(known) <= limit
    covered_by_page = range(4 * page[0], 4 * (page[0] + page[1]))
    for offset in range(400):
        if room and offset in covered_by_page:
            assert known.holding(offset) == SEGMENTS[offset // 4]
            if offset + 4 in covered_by_page:
                assert known.after(SEGMENTS[offset // 4]) == SEGMENTS[offset // 4 + 1]
        elif not room or elsewhere[offset] is not None:
            assert known.holding(offset) == elsewhere[offset]
    # New commits still extend the tail.
    known.committed(KnownSegment(400, 1, 5), 404)
    assert known.holding(403) == KnownSegment(400, 1, 5)
