"""Topics as tables: batch reads with every option, with a real Spark and a real KafScale."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.spark.frames import Read, offsets
from tests.spark.topics import Message, Topics
from tests.support.broker import KafscaleBroker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def numbers(topics: Topics) -> str:
    """A topic of three partitions with 300, 200 and no records, whose values are their offsets."""
    topic = topics.make(3)
    topics.fill(topic, 0, 300)
    topics.fill(topic, 1, 200)
    return topic


def test_all_columns_of_all_kinds_of_records_are_read(topics: Topics, read: Read) -> None:
    topic = topics.make()
    topics.produce(
        topic,
        [
            Message(0, b"value", b"key", 1_700_000_000_123, (("h", b"1"), ("h", None))),
            Message(0, None, None, 1_700_000_000_124),
            Message(0, b"", b"", 1_700_000_000_125),
        ],
    )
    frame = read(subscribe=topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    times = [
        datetime.fromtimestamp(1_700_000_000, UTC).replace(tzinfo=None, microsecond=ms * 1000) for ms in (123, 124, 125)
    ]
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [tuple(row)[:7] for row in rows] == [
        (b"key", b"value", topic, 0, 0, times[0], 0),
        (None, None, topic, 0, 1, times[1], 0),
        (b"", b"", topic, 0, 2, times[2], 0),
    ]
    assert [row.headers and [tuple(h) for h in row.headers] for row in rows] == [[("h", b"1"), ("h", None)], None, None]


def test_records_are_counted_without_reading_them(numbers: str, read: Read) -> None:
    """Spark's count(*) reads every column if there are any.

    Without columns, or with constant ones, no records are needed.
    """
    assert read(subscribe=numbers).count() == 500
    assert read(subscribe=numbers, columns="").count() == 500
    assert read(subscribe=numbers, schema=StructType()).count() == 500
    counted = read(subscribe=numbers, columns="partition,topic").groupBy("partition", "topic").count()
    assert sorted(tuple(row) for row in counted.collect()) == [(0, numbers, 300), (1, numbers, 200)]


def test_columns_are_returned_as_requested_and_in_that_order(numbers: str, read: Read) -> None:
    wanted: dict[str, Any] = {"subscribe": numbers, "startingOffsets": {numbers: {"0": 298, "1": 200, "2": 0}}}
    assert read(**wanted, columns="offset,value").collect() == [(298, b"298"), (299, b"299")]
    assert read(**wanted, schema="value BINARY, offset BIGINT").collect() == [(b"298", 298), (b"299", 299)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": {"T": {"0": 290, "1": -2, "2": 0}}, "endingOffsets": {"T": {"0": -1, "1": 3, "2": 0}}},
            {0: range(290, 300), 1: range(3)},
        ),
        (
            {
                "startingTimestamp": "1700000150000",
                "endingTimestamp": "1700000155000",
                "startingOffsetsByTimestampStrategy": "latest",
            },
            {0: range(150, 155), 1: range(150, 155)},
        ),
        (
            {
                "startingOffsetsByTimestamp": {"T": {"0": 1700000295000, "1": 1700000900000, "2": 0}},
                "startingOffsetsByTimestampStrategy": "latest",
            },
            {0: range(295, 300)},
        ),
        (
            {"assign": {"T": [1]}, "minPartitions": "3", "maxRecordsPerPartition": "60", "splitBytes": "4KB"},
            {1: range(200)},
        ),
    ],
    ids=["offsets", "timestamps", "timestamps each", "assign"],
)
def test_ranges_are_selected(numbers: str, read: Read, options: dict[str, Any], expected: dict[int, range]) -> None:
    given = json.loads(json.dumps(options).replace('"T"', json.dumps(numbers)))
    which: dict[str, Any] = {} if "assign" in given else {"subscribe": numbers}
    frame = read(**which, **given)
    assert offsets(frame) == {number: list(each) for number, each in expected.items()}
    if "minPartitions" in given:
        assert frame.rdd.getNumPartitions() >= 4


def test_topics_are_selected_by_a_pattern(topics: Topics, read: Read) -> None:
    made = [topics.make(name=f"pattern-{n}.x") for n in (1, 2)]
    topics.make(name="pattern-3.x.not")
    for topic in made:
        topics.fill(topic, 0, 5)
    found = read(subscribePattern=r"pattern-\d\.x$", columns="topic").distinct().collect()
    assert sorted(row.topic for row in found) == made


def test_filters_are_pushed_down(numbers: str, read: Read) -> None:
    frame = read(subscribe=numbers).where("partition = 0 and offset >= 100 and offset < 250")
    frame = frame.where("timestamp >= timestamp_millis(1700000120000) and timestamp < timestamp_millis(1700000123000)")
    assert offsets(frame) == {0: [120, 121, 122]}
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "timestamp" in plan
    # Spark does not evaluate exact filters again.
    assert "Filter" in plan
    assert "offset#" not in plan[plan.index("Filter") : plan.index("\n", plan.index("Filter"))]
    assert offsets(read(subscribe=numbers, pushDownFilters="false").where("offset = 299")) == {0: [299]}


def test_records_deleted_by_retention_are_data_loss(topics: Topics, read: Read) -> None:
    topic = topics.make()
    topics.fill(topic, 0, 100)
    topics.delete_before(topic, 0, 60)
    assert offsets(read(subscribe=topic)) == {0: list(range(60, 100))}
    asked: dict[str, Any] = {"subscribe": topic, "startingOffsets": {topic: {"0": 10}}}
    with pytest.raises(Exception, match=r"requests offset 10, but the log has 60 to 100.*failOnDataLoss=false"):
        read(**asked).collect()
    assert offsets(read(**asked, failOnDataLoss="false")) == {0: list(range(60, 100))}


def test_topics_without_records_are_empty_tables(topics: Topics, read: Read) -> None:
    topic = topics.make(2)
    assert read(subscribe=topic).collect() == []
    assert read(subscribe=topic, columns="").count() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "no-such-topic"}, "no such topic or partition: no-such-topic"),
        ({"subscribe": "t", "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "t", "schema": "values BINARY"}, "'values' is not a column"),
        ({"subscribe": "t", "schema": "value STRING"}, "column value must be a nullable binary"),
    ],
)
def test_errors_reach_the_user(read: Read, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        read(**options).collect()


def test_a_damaged_segment_fails_the_query_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    broker = KafscaleBroker(tmp_path, {})
    try:
        own = Topics(broker.bootstrap)
        topic = own.make()
        own.fill(topic, 0, 100)
        broker.stop()
        [segment, *_] = sorted((tmp_path / "data").rglob("segment-*.kfs"))
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 0xFF
        segment.write_bytes(content)
        broker.kill_and_restart()
        read = Read(spark, broker.rpc)
        message = rf"topic {topic}, partition 0, offset 0.*DAMAGED.*{segment.name}"
        with pytest.raises(Exception, match=message):
            read(subscribe=topic, failOnDataLoss="false").collect()
    finally:
        broker.process.kill()
