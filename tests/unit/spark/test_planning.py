"""A batch's tasks: one plan for everything, cut by the options and by what filters want."""

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import datasource as ds

from kafscale.errors import ConfigError
from kafscale_spark import planning
from kafscale_spark.client import Client
from kafscale_spark.filters import Pushed, push
from kafscale_spark.loss import DataLoss
from kafscale_spark.planning import Split, plan_batch
from kafscale_spark.source_options import batch_settings, source_options
from tests.unit.spark.storage import Storage


@pytest.fixture
def storage() -> Storage:
    """`a` has 100 and 20 records in batches of 10, and begins at 15 in its first partition."""
    made = Storage()
    first, second = made.make("a", 2)
    for _ in range(10):
        first.add(10)
    for _ in range(2):
        second.add(10)
    first.delete_before(15)
    return made


@pytest.fixture
def endpoint(storage: Storage) -> Iterator[str]:
    with storage.running() as [endpoint]:
        yield endpoint


def _plan(endpoint: str, *filters: object, **options: str) -> list[tuple[int, int, int]]:
    given = {"kafscale.endpoints": endpoint, "subscribe": "a"} | options
    settings = batch_settings(source_options(given))
    pushed = push(filters)[0] if filters else Pushed()
    with Client(settings.connection) as client:
        tasks = plan_batch(client, settings, pushed)
    return [(task.range.partition[1], task.range.start, task.range.end) for task in tasks if isinstance(task, Split)]


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        ({}, [(0, 15, 100), (1, 0, 20)]),
        ({"startingOffsets": '{"a":{"0":33,"1":-2}}'}, [(0, 33, 100), (1, 0, 20)]),
        ({"endingOffsets": '{"a":{"0":33,"1":-1}}'}, [(0, 15, 33), (1, 0, 20)]),
        ({"endingOffsets": '{"a":{"0":15,"1":0}}'}, []),
        ({"minPartitions": "4"}, [(0, 15, 57), (0, 57, 78), (0, 78, 100), (1, 0, 20)]),
    ],
)
def test_options(endpoint: str, storage: Storage, options: dict[str, str], planned: list[tuple[int, int, int]]) -> None:
    assert _plan(endpoint, **options) == planned
    assert len(storage.plans_asked) == 1


def test_tasks_that_only_count_are_larger_unless_they_count_by_time(endpoint: str, storage: Storage) -> None:
    settings = batch_settings(source_options({"kafscale.endpoints": endpoint, "subscribe": "a", "splitBytes": "1k"}))
    for pushed in (Pushed(), Pushed(since_ms=5), Pushed(until_ms=5)):
        with Client(settings.connection) as client:
            plan_batch(client, settings, pushed, counted=True)
    assert [asked.split_bytes for asked in storage.plans_asked] == [4 * 1024, 1024, 1024]


@pytest.mark.parametrize(("rows", "most", "tasks"), [(30, 100, 3), (10, 5, 5), (1000, 100, 2)])
def test_a_count_has_tasks_for_what_spark_makes_rows_of(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, rows: int, most: int, tasks: int
) -> None:
    """Of the 105 records that are there, which one task each would read."""
    monkeypatch.setattr(planning, "_COUNTED_ROWS", rows)
    monkeypatch.setattr(planning, "_COUNTING_TASKS", most)
    settings = batch_settings(source_options({"kafscale.endpoints": endpoint, "subscribe": "a"}))
    with Client(settings.connection) as client:
        assert len(plan_batch(client, settings, Pushed(), counted=True)) == tasks
        assert len(plan_batch(client, settings, Pushed())) == 2


def test_ranges_are_halved_until_all_are_about_as_large() -> None:
    ranges = [planning.Range(("t", partition), 0, 5_000_000, 500 << 20) for partition in range(6)]
    found = planning.at_least(ranges, 30)
    assert set(Counter(part.partition[1] for part in found).values()) <= {4, 5, 6, 7, 8}
    assert {part.end - part.start for part in found} == {1_250_000, 625_000}


def test_sizes_go_to_the_server(endpoint: str, storage: Storage) -> None:
    assert len(_plan(endpoint, splitBytes="1k", maxRecordsPerPartition="7")) > 2
    [asked] = storage.plans_asked
    assert (asked.split_bytes, asked.split_records) == (1024, 7)


@pytest.mark.parametrize(
    ("filters", "planned"),
    [
        ([ds.EqualTo(("partition",), 1)], [(1, 0, 20)]),
        ([ds.EqualTo(("partition",), 7)], []),
        ([ds.GreaterThan(("offset",), 29), ds.LessThan(("offset",), 35)], [(0, 30, 35)]),
        ([ds.LessThan(("offset",), 35)], [(0, 15, 35), (1, 0, 20)]),
        ([ds.LessThan(("offset",), 5)], [(1, 0, 5)]),
        ([ds.LessThan(("offset",), 0)], []),
        ([ds.GreaterThan(("offset",), 1000)], []),
    ],
)
def test_filters(endpoint: str, filters: list[object], planned: list[tuple[int, int, int]]) -> None:
    assert _plan(endpoint, *filters) == planned


def test_filters_never_lose_what_was_asked_for(endpoint: str) -> None:
    """An offset that is gone is lost, whether or not a filter wants it; a filter's own offset is no such thing."""
    with pytest.raises(DataLoss, match="startingOffsets asks for offset 3, the log has 15 to 100"):
        _plan(endpoint, ds.GreaterThan(("offset",), 50), startingOffsets='{"a":{"0":3,"1":0}}')
    assert _plan(endpoint, ds.GreaterThan(("offset",), 3)) == [(0, 15, 100), (1, 4, 20)]


def test_what_is_not_in_the_log(endpoint: str) -> None:
    asked = {"startingOffsets": '{"a":{"0":3,"1":0}}', "endingOffsets": '{"a":{"0":101,"1":20}}'}
    with pytest.raises(DataLoss, match="startingOffsets asks for offset 3"):
        _plan(endpoint, **asked)
    assert _plan(endpoint, **asked, failOnDataLoss="false") == [(0, 15, 100), (1, 0, 20)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a,x"}, "there is no x"),
        ({"startingOffsets": '{"a":{"0":20}}'}, "startingOffsets must name every partition .* lacks a-1"),
        ({"endingOffsets": '{"a":{"0":20,"1":1,"2":1}}'}, "has a-2 beside them"),
    ],
)
def test_what_cannot_be_planned(endpoint: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _plan(endpoint, **options)
