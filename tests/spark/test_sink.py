"""The sink with a real Spark and a real KafScale. A Kafka client reads the results."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

import kafscale_spark
from kafscale_spark.connection import Connection
from kafscale_spark.sink.options import SinkOptions
from kafscale_spark.sink.writer import BatchWriter
from tests.spark.conftest import Kafscale
from tests.spark.consume import Found, consume
from tests.spark.topics import Topics
from tests.support.spark.session import environment, settings

SLOW_SINK = str(Path(__file__).parent / "programs" / "slow_sink.py")
VALUES = StructType().add("value", "string")
T0 = datetime(2024, 5, 6, 7, 8, 9, 123000, UTC)


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    kafscale_spark.register(spark)


@pytest.fixture(scope="module")
def topics(kafscale: Kafscale) -> Topics:
    return Topics(kafscale.bootstrap)


def _write(frame: DataFrame, kafscale: Kafscale, topic: str | None = None, **options: str) -> None:
    writer = frame.write.format("kafscale").mode("append").option("kafscale.endpoints", kafscale.endpoints)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).save()


def _values(found: list[Found]) -> list[str]:
    return sorted((record.value or b"").decode() for record in found)


def test_every_column_is_written(spark: SparkSession, kafscale: Kafscale, topics: Topics) -> None:
    one, other = topics.make(2), topics.make(1)
    rows = [
        (b"k", b"v", one, 1, T0, [("h", b"1"), ("h", None)]),
        (None, None, one, 0, T0 + timedelta(seconds=1), []),
        (b"", b"", other, None, T0 - timedelta(days=400), None),
        (b"last", b"x" * 300_000, one, 1, T0 + timedelta(milliseconds=1), None),
    ]
    columns = (
        "key binary, value binary, topic string, partition int, timestamp timestamp, "
        "headers array<struct<key: string, value: binary>>"
    )
    _write(spark.createDataFrame(rows, columns).coalesce(1), kafscale)
    ms = int(T0.timestamp() * 1000)
    assert consume(kafscale.bootstrap, one, 2) == [
        Found(0, 0, None, None, ms + 1000, ()),
        Found(1, 0, b"k", b"v", ms, (("h", b"1"), ("h", None))),
        Found(1, 1, b"last", b"x" * 300_000, ms + 1, ()),
    ]
    assert consume(kafscale.bootstrap, other, 1) == [Found(0, 0, b"", b"", ms - 400 * 86_400_000, ())]


def test_rows_without_timestamps_get_the_time_of_writing(
    spark: SparkSession, kafscale: Kafscale, topics: Topics
) -> None:
    topic = topics.make()
    before = int(time.time() * 1000)
    _write(spark.createDataFrame([("a",)], "value string"), kafscale, topic)
    [record] = consume(kafscale.bootstrap, topic, 1)
    assert before <= record.timestamp <= int(time.time() * 1000)


def test_keys_go_to_the_partition_that_a_kafka_client_chooses(
    spark: SparkSession, kafscale: Kafscale, topics: Topics
) -> None:
    ours, theirs = topics.make(7), topics.make(7)
    dice = random.Random(4)
    keys = [dice.randbytes(dice.randrange(0, 40)) for _ in range(500)] + [b"", b"a", "schlüssel".encode()]
    _write(spark.createDataFrame([(bytes(key), b"v") for key in keys], "key binary, value binary"), kafscale, ours)
    producer = Producer({"bootstrap.servers": kafscale.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(theirs, b"v", key)
    assert producer.flush(30) == 0

    def placed(topic: str) -> Counter[tuple[int, bytes | None]]:
        return Counter((record.partition, record.key) for record in consume(kafscale.bootstrap, topic, 7))

    assert placed(ours) == placed(theirs)


def test_rows_without_keys_are_spread(spark: SparkSession, kafscale: Kafscale, topics: Topics) -> None:
    topic = topics.make(3)
    _write(spark.range(0, 30_000, 1, 2).selectExpr("repeat(cast(id as string), 20) as value"), kafscale, topic)
    counts = Counter(record.partition for record in consume(kafscale.bootstrap, topic, 3))
    assert sum(counts.values()) == 30_000
    assert min(counts[number] for number in range(3)) > 3000


def test_a_write_with_a_failed_task_is_invisible(spark: SparkSession, kafscale: Kafscale, topics: Topics) -> None:
    topic = topics.make(2)
    frame = spark.range(0, 20_000, 1, 4).select(
        f.when(f.col("id") == 19_999, f.raise_error(f.lit("the last task fails")))
        .otherwise(f.col("id").cast("string"))
        .alias("value")
    )
    with pytest.raises(PySparkException, match="the last task fails"):
        _write(frame, kafscale, topic, stageBytes="64KB")
    assert consume(kafscale.bootstrap, topic, 2) == []
    _write(spark.createDataFrame([("after",)], "value string"), kafscale, topic)
    assert _values(consume(kafscale.bootstrap, topic, 2)) == ["after"]


@pytest.mark.parametrize(
    ("rows", "columns", "topic", "words"),
    [
        ([("a", None)], "value string, topic string", None, "null topic present in the data"),
        ([("a",)], "value string", "nowhere", "topic nowhere does not exist"),
        ([("a",)], "key string", "nowhere", "Required attribute 'value' not found"),
        ([("a",)], "value string", None, "topic option required when no 'topic' attribute is present"),
    ],
)
def test_invalid_rows_are_refused(
    spark: SparkSession, kafscale: Kafscale, rows: list[tuple[str]], columns: str, topic: str | None, words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        _write(spark.createDataFrame(rows, columns), kafscale, topic)


def test_topics_cannot_be_overwritten(spark: SparkSession, kafscale: Kafscale) -> None:
    writer = spark.createDataFrame([("a",)], "value string").write.format("kafscale").mode("overwrite")
    with pytest.raises(PySparkException, match="records are appended to topics"):
        writer.option("kafscale.endpoints", kafscale.endpoints).option("topic", "t").save()


def test_a_repeated_batch_write_with_sink_and_epoch_is_applied_once(
    spark: SparkSession, kafscale: Kafscale, topics: Topics
) -> None:
    topic = topics.make(2)
    for epoch in ("0", "0", "1", "0"):
        frame = spark.createDataFrame([(f"{epoch}-{n}",) for n in range(3)], "value string")
        _write(frame, kafscale, topic, sinkId=f"test-{topic}", epochId=epoch)
    assert _values(consume(kafscale.bootstrap, topic, 2)) == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]


def test_a_task_that_ran_twice_counts_once(kafscale: Kafscale, topics: Topics) -> None:
    topic = topics.make()
    writer = BatchWriter(VALUES, False, SinkOptions(Connection((kafscale.endpoints,)), topic=topic))

    def attempt() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a", "b"]})

    writer.write(attempt())
    writer.commit([writer.write(attempt())])
    assert _values(consume(kafscale.bootstrap, topic, 1)) == ["a", "b"]


# --- streams


class Input:
    """A directory of Parquet files. Each micro-batch reads one."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "input"
        self.path.mkdir()
        self.checkpoint = directory / "checkpoint"
        self.values: list[str] = []

    def add(self, rows: int = 100) -> None:
        number = len(list(self.path.iterdir()))
        values = [f"{number}-{row:04d}" for row in range(rows)]
        self.values += values
        pq.write_table(pa.table({"value": values}), self.path / f"{number}.parquet")

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.path)).repartition(2)

    def forget_last_commit(self) -> None:
        """Delete the last commit of the checkpoint, like a crash between the sink's commit and the checkpoint's."""
        last = max(int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdigit())
        for path in (self.checkpoint / "commits").glob(f"*{last}*"):
            path.unlink()


@pytest.fixture
def given(tmp_path: Path) -> Input:
    return Input(tmp_path)


def _start(spark: SparkSession, given: Input, kafscale: Kafscale, topic: str, **options: str) -> StreamingQuery:
    writer = given.stream(spark).writeStream.format("kafscale").trigger(availableNow=True)
    writer = writer.option("kafscale.endpoints", kafscale.endpoints).option("topic", topic)
    return writer.option("checkpointLocation", str(given.checkpoint)).options(**options).start()


def _run(spark: SparkSession, given: Input, kafscale: Kafscale, topic: str, **options: str) -> None:
    query = _start(spark, given, kafscale, topic, **options)
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def test_a_stream_continues_after_a_restart(
    spark: SparkSession, kafscale: Kafscale, topics: Topics, given: Input
) -> None:
    topic = topics.make(2)
    for _ in range(3):
        given.add()
    _run(spark, given, kafscale, topic)
    given.forget_last_commit()
    given.add()
    _run(spark, given, kafscale, topic)
    assert _values(consume(kafscale.bootstrap, topic, 2)) == sorted(given.values)


def test_a_stream_with_a_new_checkpoint_is_another_sink(
    spark: SparkSession, kafscale: Kafscale, topics: Topics, given: Input
) -> None:
    topic = topics.make()
    given.add(3)
    _run(spark, given, kafscale, topic)
    given.checkpoint = given.checkpoint.with_name("another")
    _run(spark, given, kafscale, topic)
    assert _values(consume(kafscale.bootstrap, topic, 1)) == sorted(given.values * 2)


def test_a_sink_id_overrides_the_checkpoint(
    spark: SparkSession, kafscale: Kafscale, topics: Topics, given: Input
) -> None:
    topic = topics.make()
    given.add(3)
    _run(spark, given, kafscale, topic, sinkId=f"named-{topic}")
    given.checkpoint = given.checkpoint.with_name("another")
    _run(spark, given, kafscale, topic, sinkId=f"named-{topic}")
    assert _values(consume(kafscale.bootstrap, topic, 1)) == sorted(given.values)


def test_foreach_batch_with_a_sink_id_writes_each_batch_once(
    spark: SparkSession, kafscale: Kafscale, topics: Topics, given: Input
) -> None:
    topic = topics.make()
    for _ in range(2):
        given.add(5)

    def write(frame: DataFrame, epoch: int) -> None:
        _write(frame, kafscale, topic, sinkId=f"each-{topic}", epochId=str(epoch))

    for _ in range(2):
        query = (
            given.stream(spark)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(given.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        given.forget_last_commit()
    assert _values(consume(kafscale.bootstrap, topic, 1)) == sorted(given.values)


def test_a_driver_killed_between_stage_and_commit_leaves_one_copy(
    spark: SparkSession, kafscale: Kafscale, topics: Topics, given: Input, tmp_path: Path
) -> None:
    topic = topics.make(2)
    given.add()
    staged = tmp_path / "staged"
    staged.mkdir()
    given.checkpoint = staged / "checkpoint"
    pairs = [word for name, value in settings(tmp_path).items() for word in ("--conf", f"{name}={value}")]
    submit = {"PYSPARK_SUBMIT_ARGS": shlex.join(["--master", "local[2]", *pairs, "pyspark-shell"])}
    with (tmp_path / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, SLOW_SINK, kafscale.endpoints, topic, str(given.path), str(staged)],
            env={**os.environ, **environment(), **submit},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 120
        while len(list(staged.glob("?-?"))) < 2:
            assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        # The process group includes its JVM.
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert consume(kafscale.bootstrap, topic, 2) == []
    _run(spark, given, kafscale, topic)
    assert _values(consume(kafscale.bootstrap, topic, 2)) == sorted(given.values)
