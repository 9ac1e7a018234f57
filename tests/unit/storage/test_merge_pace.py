"""The pace of merges: a minimum for old segments, and what keeps up with producers."""

import pytest

from services.storage.rewriting.merge_pace import MergePace


def test_a_merge_may_do_the_minimum_if_nothing_arrives() -> None:
    pace = MergePace(4000)
    for second in range(0, 600, 15):
        pace.note(10**9, second)
    assert pace.bytes_per_second == 4000


def test_merges_may_do_six_times_what_arrives() -> None:
    pace = MergePace(4000)
    for second in range(0, 600, 15):
        pace.note(10**6 * second, second)
    assert pace.bytes_per_second == pytest.approx(6 * 10**6, rel=0.01)
    # A pause of producers counts for a minute on average.
    pace.note(10**6 * 585, 645)
    assert pace.bytes_per_second == pytest.approx(6 * 10**6 / 2.718, rel=0.01)


def test_there_is_no_limit_if_none_is_set() -> None:
    pace = MergePace(0)
    pace.note(0, 0)
    pace.note(10**9, 15)
    assert (pace.limited, pace.bytes_per_second) == (False, 0)
