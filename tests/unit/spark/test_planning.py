"""The tasks of a batch: one plan for all partitions, limited by options and filters."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import InputPartition

from kafscale.errors import ConfigError
from kafscale_spark import planning
from kafscale_spark.client import Client
from kafscale_spark.filters import Pushed, push
from kafscale_spark.loss import DataLoss
from kafscale_spark.planning import Range, Split, plan_batch
from kafscale_spark.source_options import batch_settings, source_options
from tests.unit.spark.joined import joined
from tests.unit.spark.storage import Storage


@pytest.fixture
def storage() -> Storage:
    """`a` has 100 and 20 records in batches of 10. Its first partition starts at offset 15."""
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
    options = {"kafscale.endpoints": endpoint, "subscribe": "a"} | options
    asked = batch_settings(source_options(options))
    pushed = push(filters)[0] if filters else Pushed()
    with Client(asked.connection) as client:
        tasks = plan_batch(client, asked, pushed)
    return [(number, first, last) for (_, number), first, last in joined(tasks)]


def _ranges(tasks: list[InputPartition]) -> list[list[tuple[int, int, int]]]:
    """Return the ranges of each task."""
    assert all(isinstance(task, Split) for task in tasks)
    return [
        [(part.partition[1], part.start, part.end) for part in task.ranges] for task in tasks if isinstance(task, Split)
    ]


@pytest.mark.parametrize(
    ("options", "planned"),
    [
        ({}, [(0, 15, 100), (1, 0, 20)]),
        ({"startingOffsets": '{"a":{"0":33,"1":-2}}'}, [(0, 33, 100), (1, 0, 20)]),
        ({"endingOffsets": '{"a":{"0":33,"1":-1}}'}, [(0, 15, 33), (1, 0, 20)]),
        ({"endingOffsets": '{"a":{"0":15,"1":0}}'}, []),
    ],
)
def test_options_divide_the_plan(
    endpoint: str, storage: Storage, options: dict[str, str], planned: list[tuple[int, int, int]]
) -> None:
    assert _plan(endpoint, **options) == planned
    assert len(storage.plans_asked) == 1


def test_tasks_that_only_count_are_larger_unless_they_count_by_time(endpoint: str, storage: Storage) -> None:
    asked = batch_settings(source_options({"kafscale.endpoints": endpoint, "subscribe": "a", "splitBytes": "1k"}))
    for pushed in (Pushed(), Pushed(since_ms=5), Pushed(until_ms=5)):
        with Client(asked.connection) as client:
            plan_batch(client, asked, pushed, counted=True)
    assert [request.split_bytes for request in storage.plans_asked] == [4 * 1024, 1024, 1024]


@pytest.mark.parametrize(("rows", "most", "tasks"), [(30, 100, 4), (10, 5, 5), (1000, 100, 1)])
def test_a_count_has_few_tasks_for_many_rows(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, rows: int, most: int, tasks: int
) -> None:
    """Spark makes rows of all 105 records, which otherwise need only one task per partition."""
    monkeypatch.setattr(planning, "_COUNTED_ROWS", rows)
    monkeypatch.setattr(planning, "_COUNTING_TASKS", most)
    asked = batch_settings(source_options({"kafscale.endpoints": endpoint, "subscribe": "a"}))
    with Client(asked.connection) as client:
        assert len(plan_batch(client, asked, Pushed(), counted=True)) == tasks
        assert len(plan_batch(client, asked, Pushed())) == 2


_MB = 1 << 20


@pytest.mark.parametrize(
    ("slots", "partitions", "each", "options", "planned"),
    [
        # As many as slots if that suffices, and before that at least one for each partition.
        ("2", 6, 200 * _MB, {}, 2),
        ("2", 6, 1, {}, 2),
        ("8", 6, 1, {}, 6),
        ("8", 6, 20 * _MB, {}, 7),
        ("8", 1, 15 * _MB, {}, 1),
        ("8", 1, 200 * _MB, {}, 8),
        # No task exceeds splitBytes, and no slot is idle in the last round.
        ("2", 6, 500 * _MB, {}, 4),
        ("2", 6, 200 * _MB, {"splitBytes": "256MB"}, 6),
        ("8", 1, 9001 * _MB, {}, 16),
        ("8", 6, 1, {"minPartitions": "9"}, 9),
        ("2", 6, 1, {"maxRecordsPerPartition": "300"}, 20),
        # The number of slots is unknown.
        ("", 6, 1, {}, 6),
        ("", 6, 200 * _MB, {}, 6),
        ("", 1, 2000 * _MB, {}, 8),
        ("", 1, 2000 * _MB, {"splitBytes": "100MB"}, 20),
        ("", 1, 2000 * _MB, {"splitBytes": "1GB"}, 2),
    ],
)
def test_the_number_of_tasks_depends_on_slots_and_sizes(
    monkeypatch: pytest.MonkeyPatch, slots: str, partitions: int, each: int, options: dict[str, str], planned: int
) -> None:
    """Each partition has 1000 records."""
    monkeypatch.setenv("KAFSCALE_SPARK_SLOTS", slots)
    asked = batch_settings(source_options({"kafscale.endpoints": "h:1", "subscribe": "a"} | options))
    ranges = [Range(("a", number), 0, 1000, each) for number in range(partitions)]
    found = planning.tasks(ranges, {"a": b"i"}, ("h:1", "h:2"), asked)
    assert len(found) == planned
    assert len({len(task) for task in _ranges(found)}) <= 3


def test_a_task_has_its_topics_ids_and_starts_with_another_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_SPARK_SLOTS", "2")
    asked = batch_settings(source_options({"kafscale.endpoints": "h:1", "subscribe": "a"}))
    ranges = [Range((topic, 0), 0, 10, 20) for topic in ("a", "b", "c")]
    first, second = planning.tasks(ranges, {"a": b"1", "b": b"2", "c": b"3"}, ("h:1", "h:2"), asked)
    assert isinstance(first, Split)
    assert isinstance(second, Split)
    assert first.ranges == (Range(("a", 0), 0, 10, 20), Range(("b", 0), 0, 5, 10))
    assert (first.ids, first.endpoints) == ({"a": b"1", "b": b"2"}, ("h:1", "h:2"))
    assert second.ranges == (Range(("b", 0), 5, 10, 10), Range(("c", 0), 0, 10, 20))
    assert (second.ids, second.endpoints) == ({"b": b"2", "c": b"3"}, ("h:2", "h:1"))


_keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5))


@given(
    st.lists(st.tuples(_keys, st.integers(1, 40), st.integers(0, 9000)), max_size=6, unique_by=lambda one: one[0]),
    st.integers(1, 60),
    st.booleans(),
)
def test_ranges_are_divided_evenly(parts: list[tuple[tuple[str, int], int, int]], count: int, even: bool) -> None:
    """With ``even``, by offsets. Otherwise by bytes; a task has at most its share plus the size of one offset."""
    ranges = [Range(key, 5, 5 + offsets, size) for key, offsets, size in parts]
    found = planning.divided(ranges, count, even=even)
    total = sum(part.end - part.start for part in ranges)
    assert len(found) == min(count, total)
    assert all(part.start < part.end for task in found for part in task)
    covered = [(part.partition, offset) for task in found for part in task for offset in range(part.start, part.end)]
    assert covered == sorted((part.partition, offset) for part in ranges for offset in range(part.start, part.end))
    sizes = [sum(part.end - part.start for part in task) for task in found]
    if found and even:
        assert max(sizes) == -(-total // len(found))
    elif found:
        each = {key: max(size, 1) / offsets for key, offsets, size in parts}
        taken = [sum(each[part.partition] * (part.end - part.start) for part in task) for task in found]
        assert max(taken) <= sum(max(size, 1) for *_, size in parts) / count + max(each.values()) + 0.001


def test_adjacent_ranges_are_joined() -> None:
    ranges = [Range(("a", 0), start, start + 10, 30) for start in (0, 10, 20, 40)] + [Range(("a", 1), 50, 60, 30)]
    [all_of_them] = planning.divided(ranges, 1)
    assert all_of_them == [Range(("a", 0), 0, 30, 90), Range(("a", 0), 40, 50, 30), Range(("a", 1), 50, 60, 30)]


def test_no_task_has_too_many_records_or_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first partition has 10 of 11 GB, and a thousandth of the records."""
    monkeypatch.setenv("KAFSCALE_SPARK_SLOTS", "8")
    asked = batch_settings(
        source_options({"kafscale.endpoints": "h:1", "maxRecordsPerPartition": "5000000", "subscribe": "a"})
    )
    ranges = [Range(("a", 0), 0, 10_000, 10_000 * _MB), Range(("a", 1), 0, 10_000_000, 1_000 * _MB)]
    found = [task.ranges for task in planning.tasks(ranges, {"a": b"i"}, ("h:1",), asked) if isinstance(task, Split)]
    assert max(sum(part.end - part.start for part in task) for task in found) <= 5_000_000
    assert max(sum(part.bytes for part in task) for task in found) <= 700 * _MB


def test_sizes_are_sent_to_the_server(endpoint: str, storage: Storage) -> None:
    assert _plan(endpoint, splitBytes="1k", maxRecordsPerPartition="7") == [(0, 15, 100), (1, 0, 20)]
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
def test_filters_limit_the_plan(endpoint: str, filters: list[object], planned: list[tuple[int, int, int]]) -> None:
    assert _plan(endpoint, *filters) == planned


def test_filters_do_not_hide_lost_offsets(endpoint: str) -> None:
    """A deleted starting offset is data loss even if a filter excludes it, unlike the offset of a filter."""
    with pytest.raises(DataLoss, match="startingOffsets requests offset 3, but the log has 15 to 100"):
        _plan(endpoint, ds.GreaterThan(("offset",), 50), startingOffsets='{"a":{"0":3,"1":0}}')
    assert _plan(endpoint, ds.GreaterThan(("offset",), 3)) == [(0, 15, 100), (1, 4, 20)]


def test_offsets_outside_the_log_are_data_loss(endpoint: str) -> None:
    asked = {"startingOffsets": '{"a":{"0":3,"1":0}}', "endingOffsets": '{"a":{"0":101,"1":20}}'}
    with pytest.raises(DataLoss, match="startingOffsets requests offset 3"):
        _plan(endpoint, **asked)
    assert _plan(endpoint, **asked, failOnDataLoss="false") == [(0, 15, 100), (1, 0, 20)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a,x"}, "no such topic or partition: x"),
        ({"startingOffsets": '{"a":{"0":20}}'}, "startingOffsets must name exactly .* missing: a-1"),
        ({"endingOffsets": '{"a":{"0":20,"1":1,"2":1}}'}, "not read: a-2"),
    ],
)
def test_impossible_plans_are_refused(endpoint: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _plan(endpoint, **options)
