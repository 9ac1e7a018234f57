"""The jobs archive, replay and rollup on real services. Their results are read by a Kafka client or from Parquet."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from jobs import archive, replay, rollup
from tests.spark.conftest import Kafscale
from tests.spark.consume import Found, consume
from tests.spark.topics import Message, Topics
from tests.support.spark.session import ROOT, environment, settings

HOUR_MS = 3_600_000
WAIT_SECONDS = 150
T0 = int(datetime(2024, 5, 6, 22, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture(scope="module")
def topics(kafscale: Kafscale) -> Topics:
    return Topics(kafscale.bootstrap)


class Jobs:
    """Jobs that run in the tests' Spark, with their directories."""

    def __init__(self, spark: SparkSession, kafscale: Kafscale, directory: Path, output: Any) -> None:
        self.spark = spark
        self.bootstrap = kafscale.bootstrap
        self.output = directory / "archive"
        self._endpoints = ["--endpoints", kafscale.endpoints]
        self._checkpoint = ["--checkpoint", str(directory / "checkpoint")]
        self._output = output
        self.warned = ""

    def archive(self, *argv: str) -> str:
        return self._run(archive, [*self._checkpoint, "--output", str(self.output), *argv])

    @contextmanager
    def archiving(self, *argv: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the archive job in its own process and process group with its JVM, which are killed at the end."""
        directory = self.output.parent
        asked = {"spark.master": "local[2]", **settings(directory)}
        conf = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in asked.items())
        command = [sys.executable, str(ROOT / "spark" / "jobs" / "archive.py"), *self._endpoints, *self._checkpoint]
        with (directory / "archive.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--output", str(self.output), *argv],
                env={**os.environ, **environment(), "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def replay(self, *argv: str) -> str:
        return self._run(replay, ["--input", str(self.output), *argv])

    def rollup(self, *argv: str) -> str:
        return self._run(rollup, [*self._checkpoint, *argv])

    def files(self) -> list[Path]:
        return sorted(self.output.glob("topic=*/date=*/hour=*/*.parquet"))

    def rows(self) -> list[dict[str, Any]]:
        """Read the archive with Spark, by partition and offset."""
        rows = self.spark.read.parquet(str(self.output)).orderBy("topic", "partition", "offset").collect()
        return [row.asDict(recursive=True) for row in rows]

    def _run(self, job: Any, argv: Sequence[str]) -> str:
        status = job.main([*self._endpoints, *argv], self.spark)
        output = self._output.readouterr()
        assert status == 0, output.err
        self.warned = str(output.err)
        return str(output.out)


@pytest.fixture
def jobs(spark: SparkSession, kafscale: Kafscale, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Jobs:
    return Jobs(spark, kafscale, tmp_path, capfd)


def _messages(count: int, *, first: int = 0) -> list[Message]:
    """Messages in two partitions, six minutes apart, some with keys and headers."""
    return [
        Message(
            n % 2,
            None if n % 7 == 3 else f"value {n}".encode(),
            None if n % 5 == 4 else f"key {n}".encode(),
            T0 + n * HOUR_MS // 10,
            (("number", str(n).encode()), ("none", None)) if n % 3 == 0 else (),
        )
        for n in range(first, first + count)
    ]


def _contents(found: Sequence[Found]) -> list[tuple[Any, ...]]:
    return [(one.partition, one.key, one.value, one.timestamp, one.headers) for one in found]


def test_archived_topics_can_be_replayed(jobs: Jobs, topics: Topics) -> None:
    topic, again, hour = topics.make(2), topics.make(2), topics.make(2)
    topics.produce(topic, _messages(40))
    output = jobs.archive("--topics", topic, "--max-file-records", "7")
    assert output.startswith("40 records read")
    topics.produce(topic, _messages(10, first=40))
    assert jobs.archive("--topics", topic, "--max-file-records", "7").startswith("10 records read")

    written = consume(jobs.bootstrap, topic, 2)
    rows = jobs.rows()
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
        (one.partition, one.offset, one.key, one.value) for one in written
    ]
    for row, one in zip(rows, written, strict=True):
        at = datetime.fromtimestamp(one.timestamp / 1000, UTC)
        assert (row["topic"], row["date"], row["hour"]) == (topic, at.date(), at.hour)
        assert row["timestamp"].replace(tzinfo=UTC) == at
    assert all(pq.read_metadata(path).num_rows <= 7 for path in jobs.files())

    # Twice, like an operator who does not know the outcome of the first run.
    for _ in range(2):
        jobs.replay("--topic", again, "--id", again, "--keep-partitions")
    assert _contents(consume(jobs.bootstrap, again, 2)) == _contents(written)

    jobs.replay("--topic", hour, "--from", "2024-05-06T23:00", "--until", "2024-05-07T00:00", "--keep-partitions")
    wanted = [one for one in written if T0 + HOUR_MS // 2 <= one.timestamp < T0 + 3 * HOUR_MS // 2]
    assert len(wanted) == 10
    assert _contents(consume(jobs.bootstrap, hour, 2)) == _contents(wanted)


def test_an_archive_killed_before_its_commit_has_every_record_once_after_a_restart(
    jobs: Jobs, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make(2)
    topics.produce(topic, _messages(40))
    # The task of partition 1 sleeps, so nothing is committed when that of partition 0 has written its files.
    asleep = "IF(partition = 1, CAST(java_method('java.lang.Thread', 'sleep', 600000L) AS TIMESTAMP), timestamp)"
    with jobs.archiving("--topics", topic, "--event-time", asleep) as driver:
        deadline = time.monotonic() + WAIT_SECONDS
        while not any(map(_rows_of, jobs.files())):
            assert driver.poll() is None
            assert time.monotonic() < deadline, "no file is written"
            time.sleep(0.05)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    written = consume(jobs.bootstrap, topic, 2)
    assert jobs.archive("--topics", topic).startswith("40 records read")
    found = [(row["partition"], row["offset"], row["value"]) for row in jobs.rows()]
    assert found == [(one.partition, one.offset, one.value) for one in written]
    # The files of the killed job remain but do not count.
    assert sum(map(_rows_of, jobs.files())) > len(written)


def _rows_of(path: Path) -> int:
    """Return the number of rows of a complete file."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return 0


def test_json_is_archived_by_its_own_time_and_invalid_json_goes_to_the_dead_letters(jobs: Jobs, topics: Topics) -> None:
    topic, dead, again = topics.make(), topics.make(), topics.make()
    good = [{"id": n, "at": f"2023-0{n}-01T0{n}:15:00Z"} for n in range(1, 5)]
    values = [*(json.dumps(each).encode() for each in good), b"not json", b'{"id": "seven"}', None, b'{"id": 9}']
    topics.produce(topic, [Message(0, value, b"k", T0, (("h", b"v"),)) for value in values])
    arguments = ["--topics", topic, "--format", "json", "--schema", "id BIGINT, at TIMESTAMP", "--dead-letters", dead]
    jobs.archive(*arguments, "--event-time", "data.at")
    rows = jobs.rows()
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 6, 7]
    assert [row["data"] and row["data"]["id"] for row in rows] == [1, 2, 3, 4, None, 9]
    assert [(row["date"].month, row["hour"]) for row in rows] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 22), (5, 22)]
    found = consume(jobs.bootstrap, dead, 1)
    assert [(one.key, one.value, one.timestamp) for one in found] == [
        (b"k", b"not json", T0),
        (b"k", b'{"id": "seven"}', T0),
    ]
    assert found[1].headers == (
        ("h", b"v"),
        ("kafscale.topic", topic.encode()),
        ("kafscale.partition", b"0"),
        ("kafscale.offset", b"5"),
    )
    jobs.replay("--topic", again, "--value-column", "data")
    brought = [json.loads(one.value) for one in consume(jobs.bootstrap, again, 1) if one.value is not None]
    assert [each["id"] for each in brought] == [1, 2, 3, 4, 9]


def test_any_parquet_can_be_replayed_to_a_topic(jobs: Jobs, topics: Topics) -> None:
    topic = topics.make()
    rows = [("a", 1), ("b", 2)]
    columns = "name", "struct(number) as fields", "timestamp_ntz'2024-05-06 22:30:00' as at"
    frame = jobs.spark.createDataFrame(rows, "name string, number int").selectExpr(*columns)
    frame.coalesce(1).write.parquet(str(jobs.output))
    others = ["--timestamp-column", "at", "--headers-column", "none"]
    jobs.replay("--topic", topic, "--key-column", "name", "--value-column", "fields", *others)
    assert [(one.key, one.value, one.timestamp) for one in consume(jobs.bootstrap, topic, 1)] == [
        (b"a", b'{"number":1}', T0),
        (b"b", b'{"number":2}', T0),
    ]


def test_a_replay_warns_of_records_that_retention_deletes(jobs: Jobs, topics: Topics) -> None:
    topic = topics.make(configs={"retention.ms": "604800000"})
    rows = [(b"old", datetime(2024, 5, 6, tzinfo=UTC)), (b"new", datetime.now(UTC)), (b"none", None)]
    jobs.spark.createDataFrame(rows, "value binary, timestamp timestamp").coalesce(1).write.parquet(str(jobs.output))
    assert jobs.replay("--topic", topic, "--key-column", "none", "--headers-column", "none").startswith("3 records")
    assert f"replay: 1 records are older than the retention of topic {topic} (retention.ms=604800000)" in jobs.warned


def test_a_rollup_aggregates_windows_and_counts_late_and_invalid_records(jobs: Jobs, topics: Topics) -> None:
    topic, results = topics.make(), topics.make()
    arguments = ["--topics", topic, "--output", results, "--schema", "who STRING, amount INT", "--group-by", "data.who"]
    arguments += ["--aggregate", "sum(data.amount) AS total", "--watermark", "1 minute"]

    def produce(*records: tuple[int, str, int]) -> None:
        topics.produce(
            topic,
            [
                Message(0, json.dumps({"who": who, "amount": amount}).encode(), timestamp=T0 + second * 1000)
                for second, who, amount in records
            ],
        )

    produce((0, "ann", 1), (10, "bob", 5), (50, "ann", 2), (70, "ann", 4))
    topics.produce(topic, [Message(0, b"bad", timestamp=T0)])
    assert jobs.rollup(*arguments).endswith("0 late, 1 bad\n")
    produce((300, "ann", 100))
    jobs.rollup(*arguments)
    # The watermark has passed the first two windows.
    produce((20, "ann", 1000), (310, "ann", 100))
    assert jobs.rollup(*arguments).endswith("1 late, 0 bad\n")
    found = [(json.loads(one.key or b""), json.loads(one.value or b"")) for one in consume(jobs.bootstrap, results, 1)]
    assert sorted((value["window_start"], value["who"], value["total"]) for _, value in found) == [
        ("2024-05-06T22:30:00.000Z", "ann", 3),
        ("2024-05-06T22:30:00.000Z", "bob", 5),
        ("2024-05-06T22:31:00.000Z", "ann", 4),
    ]
    assert all(set(key) == {"window_start", "window_end", "who"} for key, _ in found)


def test_a_rollup_in_update_mode_writes_changed_windows(jobs: Jobs, topics: Topics) -> None:
    topic, results = topics.make(), topics.make()
    arguments = ["--topics", topic, "--output", results, "--schema", "amount INT", "--mode", "update"]
    arguments += ["--aggregate", "sum(data.amount) AS total"]
    for amount in (1, 2):
        topics.produce(topic, [Message(0, json.dumps({"amount": amount}).encode(), timestamp=T0)])
        jobs.rollup(*arguments)
    found = consume(jobs.bootstrap, results, 1)
    assert [json.loads(one.value or b"")["total"] for one in found] == [1, 3]
    assert len({one.key for one in found}) == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--topics", "t", "--format", "json"], "--format json needs --schema and --dead-letters"),
        (["--topics", "t", "--option", "kafscale.tls.cart=x"], "did you mean 'kafscale.tls.cert'"),
        (
            ["--pattern", "o", "--format", "json", "--schema", "id INT", "--dead-letters", "orders.dead"],
            "the job would read topic orders.dead, which it writes to",
        ),
    ],
)
def test_a_job_with_impossible_arguments_fails(
    jobs: Jobs, argv: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    status = archive.main(["--endpoints", "127.0.0.1:1", "--checkpoint", "c", "--output", "o", *argv], jobs.spark)
    assert status == 2
    assert words in capfd.readouterr().err
