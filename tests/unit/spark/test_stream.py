"""A stream on the driver: its start, the end of each trigger, and errors about lost records."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafscale.errors import ConfigError, Unavailable
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.client import Client
from kafscale_spark.edges import TopicPartition
from kafscale_spark.loss import DataLoss
from kafscale_spark.planning import Split, plan
from kafscale_spark.rates import Rates
from kafscale_spark.source_options import SourceSettings, source_options, stream_settings
from kafscale_spark.stream import Stream
from kafscale_spark.stream_offsets import StreamOffsets, is_ours, parse_offsets
from tests.servers.ports import free_ports
from tests.unit.spark.joined import joined
from tests.unit.spark.storage import Storage


@pytest.fixture
def storage() -> Storage:
    """Two topics: `a` with 100 and 20 records in batches of 10, and `b` without records."""
    made = Storage()
    first, second = made.make("a", 2)
    for _ in range(10):
        first.add(10)
    for _ in range(2):
        second.add(10)
    made.make("b")
    return made


@pytest.fixture
def endpoints(storage: Storage) -> Iterator[tuple[str, ...]]:
    with storage.running() as endpoints:
        yield endpoints


def _settings(endpoints: tuple[str, ...], **options: str) -> SourceSettings:
    which = {} if "assign" in options or "subscribe" in options else {"subscribePattern": "."}
    given = {"kafscale.endpoints": ",".join(endpoints), "kafscale.retryTimeout": "1s", "startingOffsets": "earliest"}
    return stream_settings(source_options(given | which | options))


def _at(offsets: StreamOffsets) -> dict[str, int]:
    return {f"{topic}{number}": offset for (topic, number), offset in offsets.offsets.items()}


def _ranges(stream: Stream, start: StreamOffsets, end: StreamOffsets) -> list[tuple[str, int, int]]:
    return [(f"{topic}{number}", first, last) for (topic, number), first, last in joined(stream.partitions(start, end))]


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({}, {"a0": 0, "a1": 0, "b0": 0}),
        ({"startingOffsets": "latest"}, {"a0": 100, "a1": 20, "b0": 0}),
        ({"startingOffsets": '{"a":{"0":7,"1":-1},"b":{"0":-2}}'}, {"a0": 7, "a1": 20, "b0": 0}),
        ({"assign": '{"a":[1]}'}, {"a1": 0}),
    ],
)
def test_a_stream_starts_at_the_configured_offsets(
    endpoints: tuple[str, ...], options: dict[str, str], begins: dict[str, int]
) -> None:
    assert _at(Stream(_settings(endpoints, **options)).initial()) == begins


def test_a_start_outside_the_log_is_data_loss(storage: Storage, endpoints: tuple[str, ...]) -> None:
    storage.topics["a"][0].delete_before(40)
    asked = {"startingOffsets": '{"a":{"0":7,"1":99}}', "subscribe": "a"}
    with pytest.raises(DataLoss, match="partition 0: startingOffsets requests offset 7, but the log has 40 to 100"):
        Stream(_settings(endpoints, **asked)).initial()
    assert _at(Stream(_settings(endpoints, **asked, failOnDataLoss="false")).initial()) == {"a0": 40, "a1": 20}
    with pytest.raises(ConfigError, match="no such topic or partition: x"):
        Stream(_settings(endpoints, subscribe="a,x")).initial()


def test_a_trigger_reads_everything_and_the_next_one_nothing(storage: Storage, endpoints: tuple[str, ...]) -> None:
    stream = Stream(_settings(endpoints))
    start = stream.initial()
    end = stream.latest(start)
    assert _at(end) == {"a0": 100, "a1": 20, "b0": 0}
    assert _ranges(stream, start, end) == [("a0", 0, 100), ("a1", 0, 20)]
    assert stream.latest(end).json() == end.json()
    assert stream.partitions(end, end) == []
    assert len(storage.plans_asked) == 4


def test_offsets_are_the_same_after_a_checkpoint(endpoints: tuple[str, ...]) -> None:
    end = Stream(_settings(endpoints)).latest(StreamOffsets())
    stored = end.json()
    assert stored == {"a": {"0": 100, "1": 20}, "b": {"0": 0}, "~ids": {"a": "01" * 16, "b": "02" * 16}}
    assert parse_offsets(stored) == end
    assert is_ours(stored)


@pytest.mark.parametrize("stored", [{}, {"a": {"0": 1}}, {"a": {"0": 1}, "~ids": {}}, {"a": 1, "~ids": {"a": ""}}])
def test_offsets_of_another_source_are_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no offsets of the kafscale source"):
        parse_offsets(stored)


def test_limited_triggers_share_in_proportion_to_lag(endpoints: tuple[str, ...]) -> None:
    stream = Stream(_settings(endpoints))
    at = stream.initial()
    seen = []
    while (end := stream.latest(at, Rates(max_offsets=60))) != at:
        seen.append((_at(end), _ranges(stream, at, end)))
        at = end
    assert seen == [
        ({"a0": 50, "a1": 10, "b0": 0}, [("a0", 0, 50), ("a1", 0, 10)]),
        ({"a0": 100, "a1": 20, "b0": 0}, [("a0", 50, 100), ("a1", 10, 20)]),
    ]


def test_bytes_limit_a_trigger_if_records_grow(storage: Storage, endpoints: tuple[str, ...]) -> None:
    for _ in range(10):
        storage.topics["b"][0].add(10, size=10)
    for _ in range(10):
        storage.topics["b"][0].add(10, size=1000)
    stream = Stream(_settings(endpoints, subscribe="b"))
    at = stream.initial()
    sizes = []
    while (end := stream.latest(at, Rates(max_bytes=20_000))) != at:
        [task] = stream.partitions(at, end)
        assert isinstance(task, Split)
        sizes.append(sum(part.bytes for part in task.ranges))
        at = end
    assert _at(at) == {"b0": 200}
    assert max(sizes) <= 22_000
    assert len(sizes) <= 12


def test_a_trigger_waits_for_enough_records(storage: Storage, endpoints: tuple[str, ...]) -> None:
    now = [0.0]
    stream = Stream(_settings(endpoints), clock=lambda: now[0])
    start = stream.initial()
    rates = Rates(min_offsets=11, max_delay_seconds=10)
    first = stream.latest(start, Rates(min_offsets=121, max_delay_seconds=10))
    assert _at(first) == {"a0": 100, "a1": 20, "b0": 0}, "the first trigger does not wait"
    storage.topics["a"][0].add(10)
    assert stream.latest(first, rates) == first
    now[0] = 9.0
    storage.topics["b"][0].add(1)
    second = stream.latest(first, rates)
    assert _at(second) == {"a0": 110, "a1": 20, "b0": 1}
    storage.topics["b"][0].add(1)
    now[0] = 18.0
    assert stream.latest(second, rates) == second
    now[0] = 19.0
    assert _at(stream.latest(second, rates)) == {"a0": 110, "a1": 20, "b0": 2}


def test_available_now_stops_at_the_former_end_of_the_log(storage: Storage, endpoints: tuple[str, ...]) -> None:
    stream = Stream(_settings(endpoints))
    at = stream.initial()
    stream.stop_here()
    storage.topics["a"][0].add(10)
    storage.make("c")[0].add(10)
    seen = []
    while (end := stream.latest(at, Rates(max_offsets=100, min_offsets=1000, max_delay_seconds=900))) != at:
        seen.append(_at(end))
        at = end
    assert seen == [{"a0": 83, "a1": 16, "b0": 0}, {"a0": 100, "a1": 20, "b0": 0}]
    assert stream.newest is not None
    assert _at(stream.newest) == {"a0": 110, "a1": 20, "b0": 0, "c0": 10}


def test_new_partitions_and_topics_are_read_from_their_start(storage: Storage, endpoints: tuple[str, ...]) -> None:
    stream = Stream(_settings(endpoints, startingOffsets="latest"))
    start = stream.initial()
    grown = type(storage.topics["b"][0])()
    grown.add(5)
    storage.topics["b"].append(grown)
    storage.make("c")[0].add(3)
    end = stream.latest(start)
    assert _ranges(stream, start, end) == [("b1", 0, 5), ("c0", 0, 3)]


def test_retention_may_overtake_a_stream(storage: Storage, endpoints: tuple[str, ...]) -> None:
    settings = _settings(endpoints)
    start = Stream(settings).initial()
    storage.topics["a"][0].delete_before(40)
    end = Stream(settings).latest(start)
    with pytest.raises(DataLoss, match="topic a, partition 0: offsets 0 to 39 were deleted before they were read"):
        Stream(settings).partitions(start, end)
    going_on = Stream(replace(settings, fail_on_data_loss=False))
    assert _ranges(going_on, start, end) == [("a0", 40, 100), ("a1", 0, 20)]


def test_a_recreated_topic_is_not_confused_with_the_old_one(storage: Storage, endpoints: tuple[str, ...]) -> None:
    settings = _settings(endpoints, subscribe="a")
    at = Stream(settings).latest(StreamOffsets())
    storage.make("a", 2)[0].add(7)
    with pytest.raises(DataLoss, match=r"topics were deleted and recreated.*: a"):
        Stream(settings).latest(at)
    going_on = Stream(replace(settings, fail_on_data_loss=False))
    end = going_on.latest(at)
    assert _at(end) == {"a0": 7, "a1": 0}
    assert _ranges(going_on, at, end) == [("a0", 0, 7)]


def test_a_deleted_topic_is_data_loss(storage: Storage, endpoints: tuple[str, ...]) -> None:
    settings = _settings(endpoints)
    start = Stream(settings).initial()
    end = Stream(settings).latest(start)
    del storage.topics["a"]
    with pytest.raises(DataLoss, match="2 partitions no longer exist: a-0, a-1"):
        Stream(settings).latest(start)
    with pytest.raises(DataLoss, match="topic a, partition 0 no longer exists"):
        Stream(settings).partitions(start, end)
    going_on = Stream(replace(settings, fail_on_data_loss=False))
    assert _at(going_on.latest(start)) == {"b0": 0}
    assert _ranges(going_on, start, end) == []


def _recreate_before_plans(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recreate topic `a` between the calls for topics and for plans."""

    def racing(client: Client, scans: Mapping[TopicPartition, pb.PartitionScan]) -> dict[TopicPartition, Any]:
        if storage.ids["a"] == b"\x01" * 16:
            storage.make("a", 2)[0].add(7)
        return plan(client, scans)

    monkeypatch.setattr("kafscale_spark.stream.plan", racing)


def test_a_topic_deleted_before_planning_is_data_loss(
    storage: Storage, endpoints: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _settings(endpoints)
    at = Stream(settings).latest(StreamOffsets())
    _recreate_before_plans(storage, monkeypatch)
    with pytest.raises(DataLoss, match="topic a, partition 0 no longer exists"):
        Stream(settings).latest(at)


def test_a_topic_deleted_before_planning_causes_a_warning(
    storage: Storage, endpoints: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = Stream(_settings(endpoints)).latest(StreamOffsets())
    _recreate_before_plans(storage, monkeypatch)
    stream = Stream(_settings(endpoints, failOnDataLoss="false"))
    end = stream.latest(at)
    monkeypatch.undo()
    assert _at(end) == {"b0": 0}
    assert "topic a, partition 0 no longer exists" in caplog.text
    assert _ranges(stream, end, stream.latest(end)) == [("a0", 0, 7)]


@pytest.mark.parametrize(
    ("partitions", "message"), [(0, "2 partitions no longer exist: a-0, a-1"), (2, "deleted and recreated.*: a")]
)
def test_loss_is_detected_if_spark_does_not_report_the_start_of_a_run(
    storage: Storage, endpoints: tuple[str, ...], partitions: int, message: str
) -> None:
    """Like pyspark 4.0 after a restart, which asks for the end of the log before the tasks from the checkpoint on."""
    settings = _settings(endpoints)
    at = Stream(settings).latest(StreamOffsets())
    del storage.topics["a"]
    if partitions:
        storage.make("a", partitions)[0].add(7)
    restarted = Stream(settings)
    end = restarted.latest(StreamOffsets())
    with pytest.raises(DataLoss, match=message):
        restarted.partitions(at, end)
    going_on = Stream(replace(settings, fail_on_data_loss=False))
    assert _ranges(going_on, at, end) == ([("a0", 0, 7)] if partitions else [])


def test_a_lagging_instance_does_not_move_a_stream_back(storage: Storage, endpoints: tuple[str, ...]) -> None:
    stream = Stream(_settings(endpoints))
    at = stream.latest(StreamOffsets())
    storage.topics["a"][0].batches.pop()
    assert stream.latest(at) == at
    assert stream.partitions(at, at) == []


@pytest.mark.parametrize("view", ["unknown", "older"])
def test_an_instance_that_does_not_know_a_topic_yet_is_not_trusted(storage: Storage, view: str) -> None:
    """Only this instance is configured; the client learns the other one from its answer."""
    behind = _behind(storage)
    if view == "older":
        behind.topics["a"], behind.ids["a"] = storage.topics["a"], b"o" * 16
    with storage.running() as knowing, behind.running() as unknowing:
        behind.instances = [f"127.0.0.1:{free_ports(1)[0]}", *unknowing, *knowing]
        at = Stream(_settings(knowing)).latest(StreamOffsets())
        assert Stream(_settings(unknowing)).latest(at) == at
        assert Stream(_settings((*unknowing, *knowing))).latest(at) == at


def test_available_now_stops_at_an_end_for_every_partition_it_reads(
    storage: Storage, endpoints: tuple[str, ...]
) -> None:
    """The instance that reported the end may not know a topic, which is continued and not read from its beginning."""
    at = Stream(_settings(endpoints)).latest(StreamOffsets())
    with _behind(storage).running() as unknowing:
        stream = Stream(_settings((*unknowing, *endpoints)))
        stream.stop_here()
        storage.topics["a"][0].add(10)
        end = stream.latest(at)
        storage.topics["a"][0].add(10)
        assert _at(end) == {"a0": 110, "a1": 20, "b0": 0}
        assert stream.latest(end) == end
    following = Stream(_settings(endpoints))
    assert _ranges(following, end, following.latest(end)) == [("a0", 110, 120)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_topics_unknown_to_a_lagging_instance_are_not_lost(storage: Storage, fail: str) -> None:
    """Like pyspark 4.0 after a restart, which passes no start to compare the answer with."""
    with storage.running() as knowing, _behind(storage).running() as unknowing:
        at = Stream(_settings(knowing)).latest(StreamOffsets())
        restarted = Stream(_settings((*unknowing, *knowing), failOnDataLoss=fail))
        end = restarted.latest(StreamOffsets())
        assert _at(end) == {"b0": 0}
        with pytest.raises(Unavailable, match="does not know a yet; restart the query"):
            restarted.partitions(at, end)


def _behind(storage: Storage) -> Storage:
    """Return an instance that does not know topic `a`."""
    return Storage(topics={"b": storage.topics["b"]}, ids={"b": storage.ids["b"]})


def test_tasks_are_spread_over_the_instances(storage: Storage) -> None:
    with storage.running(2) as endpoints:
        storage.instances = list(endpoints)
        stream = Stream(_settings(endpoints[:1], minPartitions="4"))
        start = stream.initial()
        tasks = stream.partitions(start, stream.latest(start))
    assert len(tasks) == 4
    first = [task.endpoints[0] for task in tasks if isinstance(task, Split)]
    assert first == [*endpoints, *endpoints]
    assert all(set(task.endpoints) == set(endpoints) for task in tasks if isinstance(task, Split))
