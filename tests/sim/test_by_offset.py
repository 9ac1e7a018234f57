"""A mapping by offset behaves like a dictionary, in the order of offsets."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.by_offset import ByOffset

_OFFSETS = st.integers(0, 3000) | st.sampled_from([1 << 40, (1 << 63) - 1])
_ITEMS = st.lists(st.tuples(_OFFSETS, st.integers(-5, 1 << 40)), max_size=30)


def _mapped(items: list[tuple[int, int]]) -> ByOffset:
    found = ByOffset()
    for offset, number in items:
        found[offset] = number
    return found


@given(_ITEMS, _ITEMS)
def test_numbers_are_found_by_offset_and_in_order(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    found, expected = ByOffset(_mapped(one), _mapped(other)), {**dict(one), **dict(other)}
    assert list(found.items()) == sorted(expected.items())
    assert list(found.descending()) == sorted(expected.items(), reverse=True)
    asked = {near for offset in expected for near in (offset - 1, offset, offset + 1)}
    assert [found.get(offset) for offset in asked] == [expected.get(offset) for offset in asked]


def test_the_first_number_stays_by_default() -> None:
    found = ByOffset()
    assert (found.setdefault(5, 7), found.setdefault(5, 8), found.get(5)) == (7, 7, 7)
    assert found.get(6) is None
