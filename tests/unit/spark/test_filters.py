"""Pushed filters: the source reads all records that they select, and few others."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from kafscale_spark.filters import Pushed, push

_MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("filters", "pushed"),
    [
        ([ds.GreaterThan(("offset",), 4), ds.LessThanOrEqual(("offset",), 9)], Pushed(start=5, end=10)),
        ([ds.GreaterThanOrEqual(("offset",), 4), ds.LessThan(("offset",), 9)], Pushed(start=4, end=9)),
        ([ds.EqualTo(("offset",), 4), ds.GreaterThan(("offset",), 2)], Pushed(start=4, end=5)),
        ([ds.GreaterThan(("offset",), -9)], Pushed()),
        ([ds.IsNotNull(("offset",)), ds.IsNotNull(("topic",)), ds.IsNotNull(("partition",))], Pushed()),
    ],
)
def test_offset_filters_are_exact(filters: list[Any], pushed: Pushed) -> None:
    assert push(filters) == (pushed, [])


@pytest.mark.parametrize(
    ("one", "partitions"),
    [
        (ds.EqualTo(("partition",), 1), [("a", 1), ("b", 1)]),
        (ds.In(("partition",), (1, 2)), [("a", 1), ("b", 1), ("b", 2)]),
        (ds.GreaterThanOrEqual(("partition",), 2), [("b", 2)]),
        (ds.LessThan(("partition",), 1), [("a", 0)]),
        (ds.EqualNullSafe(("topic",), "b"), [("b", 1), ("b", 2)]),
        (ds.In(("topic",), ("a", "x")), [("a", 0), ("a", 1)]),
        (ds.GreaterThan(("topic",), "a"), [("b", 1), ("b", 2)]),
    ],
)
def test_partition_and_topic_filters_select_partitions(one: Any, partitions: list[tuple[str, int]]) -> None:
    pushed, left = push([one])
    assert left == []
    assert [key for key in [("a", 0), ("a", 1), ("b", 1), ("b", 2)] if pushed.wants(key)] == partitions


@pytest.mark.parametrize(
    "one",
    [
        ds.Not(ds.EqualTo(("offset",), 4)),
        ds.EqualTo(("offset",), 4.0),
        ds.EqualTo(("partition",), True),
        ds.In(("offset",), (1, 2)),
        ds.StringStartsWith(("topic",), "a"),
        ds.EqualTo(("value",), b"x"),
        ds.IsNull(("offset",)),
        ds.IsNotNull(("key",)),
        ds.EqualTo(("headers", "offset"), 4),
        ds.In(("partition",), (1, None)),
    ],
)
def test_unsupported_filters_are_left_to_spark(one: Any) -> None:
    assert push([one]) == (Pushed(), [one])


_KINDS: dict[Any, Callable[[int, int], bool]] = {
    ds.EqualTo: lambda a, b: a == b,
    ds.GreaterThan: lambda a, b: a > b,
    ds.GreaterThanOrEqual: lambda a, b: a >= b,
    ds.LessThan: lambda a, b: a < b,
    ds.LessThanOrEqual: lambda a, b: a <= b,
}


@given(st.lists(st.tuples(st.sampled_from(list(_KINDS)), st.integers(-3000, 3000)), max_size=3), st.integers(-4, 4))
def test_rows_with_passing_timestamps_are_read(asked: list[tuple[Any, int]], ms: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    filters = [kind(("timestamp",), epoch + timedelta(microseconds=micros)) for kind, micros in asked]
    pushed, left = push(filters)
    assert left == filters
    passes = all(_KINDS[kind](ms * 1000, micros) for kind, micros in asked)
    since = pushed.since_ms is None or ms >= pushed.since_ms
    until = pushed.until_ms is None or ms < pushed.until_ms
    assert passes == (since and until)


def test_time_zones_are_converted() -> None:
    there = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert push([ds.GreaterThan(("timestamp",), there)])[0].since_ms == 1
