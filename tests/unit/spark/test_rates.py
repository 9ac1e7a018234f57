"""Shares of a trigger's limit: nothing is lost, and no partition starves."""

from hypothesis import given
from hypothesis import strategies as st

from kafscale_spark.rates import Behind, Rates, ends_by_bytes, ends_by_offsets, shares, too_few

_keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5))
_behind = st.dictionaries(
    _keys,
    st.builds(lambda start, more, size: Behind(start, start + more, size), *[st.integers(0, 10_000)] * 3),
    max_size=8,
)


@given(st.integers(1, 50_000), st.dictionaries(_keys, st.integers(0, 10_000), max_size=8))
def test_a_limit_is_divided_into_shares(limit: int, amounts: dict[tuple[str, int], int]) -> None:
    found = shares(limit, amounts)
    assert found.keys() == amounts.keys()
    assert all(min(amount, 1) <= found[key] <= amount for key, amount in amounts.items())
    assert sum(found.values()) <= max(limit, 0) + len(amounts)
    if sum(amounts.values()) <= limit:
        assert found == amounts
    total = sum(amounts.values())
    for key, amount in amounts.items():
        assert found[key] >= min(amount, limit * amount // max(total, 1))


@given(_behind, st.integers(1, 30_000))
def test_triggers_by_offsets_reach_every_end(behind: dict[tuple[str, int], Behind], limit: int) -> None:
    for _ in range(sum(part.offsets for part in behind.values()) + 1):
        ends = ends_by_offsets(behind, limit)
        assert sum(ends[key] - part.start for key, part in behind.items()) <= limit + len(behind)
        if all(ends[key] == part.end for key, part in behind.items()):
            return
        assert any(ends[key] > part.start for key, part in behind.items())
        behind = {key: Behind(ends[key], part.end) for key, part in behind.items()}
    raise AssertionError("it does not end")


@given(_behind, st.integers(1, 30_000))
def test_triggers_by_bytes_make_progress(behind: dict[tuple[str, int], Behind], limit: int) -> None:
    ends = ends_by_bytes(behind, limit)
    for key, part in behind.items():
        assert part.start <= ends[key] <= part.end
        assert part.offsets == 0 or ends[key] > part.start
    taken = sum(part.bytes * (ends[key] - part.start) // max(part.offsets, 1) for key, part in behind.items())
    largest = sum(part.bytes // max(part.offsets, 1) + 1 for part in behind.values())
    assert taken <= limit + largest


def test_a_limit_is_shared_in_proportion_to_lag() -> None:
    behind = {("t", 0): Behind(0, 900), ("t", 1): Behind(50, 150), ("t", 2): Behind(7, 7), ("t", 3): Behind(0, 1)}
    assert ends_by_offsets(behind, 100) == {("t", 0): 89, ("t", 1): 59, ("t", 2): 7, ("t", 3): 1}


def test_too_few_records_wait_until_their_time_is_over() -> None:
    rates = Rates(min_offsets=10, max_delay_seconds=5)
    assert too_few({("t", 0): Behind(0, 9)}, rates, 4.9)
    assert not too_few({("t", 0): Behind(0, 9)}, rates, 5.0)
    assert not too_few({("t", 0): Behind(0, 9), ("t", 1): Behind(3, 4)}, rates, 0)
    assert not too_few({}, Rates(), 0)
