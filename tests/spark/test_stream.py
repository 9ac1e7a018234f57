"""Topics as streams with a real Spark: limits, checkpoints, growth, retention, and the listener's report."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafscale_spark.listener import KafscaleListener
from tests.spark.frames import Read, offsets
from tests.spark.topics import Topics

pytestmark = pytest.mark.timeout(300)

_WAIT_SECONDS = 120

Batches = list[dict[int, list[int]]]
Drain = Callable[[DataFrame], Batches]


@pytest.fixture
def drain(tmp_path: Path) -> Drain:
    """Run a query with Trigger.AvailableNow and return its rows by micro-batch.

    It continues at the end of the last run.
    """

    def run(frame: DataFrame) -> Batches:
        seen: Batches = []

        def keep(batch: DataFrame, _: int) -> None:
            seen.append(offsets(batch))

        query = (
            frame.writeStream.queryName(f"drain-{tmp_path.name}")
            .foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(_WAIT_SECONDS)
        finally:
            query.stop()
        return [batch for batch in seen if batch]

    return run


def _all(batches: Batches) -> dict[int, list[int]]:
    """Return all values, which must have arrived once and in order."""
    found: dict[int, list[int]] = {}
    for batch in batches:
        for number, each in batch.items():
            found.setdefault(number, []).extend(each)
    return found


def test_a_stream_respects_limits_a_restart_and_new_partitions(
    topics: Topics, read: Read, drain: Drain, spark: SparkSession, tmp_path: Path
) -> None:
    topic = topics.make(2)
    topics.fill(topic, 0, 90)
    topics.fill(topic, 1, 30)
    how: dict[str, Any] = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "60",
        "stream": True,
    }
    listener = KafscaleListener({"kafscale.endpoints": read.endpoints})
    name = f"drain-{tmp_path.name}"
    spark.streams.addListener(listener)
    try:
        first = drain(read(**how))
        # Spark calls listeners asynchronously.
        until = time.monotonic() + _WAIT_SECONDS
        while name not in listener.progress or listener.progress[name].batch < 1:
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert listener.progress[name].behind == {f"{topic}-0": 0, f"{topic}-1": 0}
    assert first == [{0: list(range(45)), 1: list(range(15))}, {0: list(range(45, 90)), 1: list(range(15, 30))}]

    topics.fill(topic, 0, 10, first=90)
    topics.grow(topic, 3)
    topics.fill(topic, 2, 5)
    assert _all(drain(read(**how))) == {0: list(range(90, 100)), 2: list(range(5))}
    assert drain(read(**how)) == []


def test_retention_may_overtake_a_query(topics: Topics, read: Read, drain: Drain) -> None:
    topic = topics.make()
    topics.fill(topic, 0, 50)
    how: dict[str, Any] = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "stream": True,
        "columns": "partition,offset",
    }
    assert drain(read(**how)) == [{0: list(range(50))}]
    topics.fill(topic, 0, 50, first=50)
    topics.delete_before(topic, 0, 80)
    with pytest.raises(Exception, match="offsets 50 to 79 were deleted before they were read"):
        drain(read(**how))
    assert drain(read(**how, failOnDataLoss="false")) == [{0: list(range(80, 100))}]


def test_a_recreated_topic_stops_a_query(topics: Topics, read: Read, drain: Drain) -> None:
    topic = topics.make()
    topics.fill(topic, 0, 10)
    how: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "stream": True}
    assert drain(read(**how)) == [{0: list(range(10))}]
    topics.delete(topic)
    topics.make(name=topic)
    topics.fill(topic, 0, 20)
    with pytest.raises(Exception, match="topics were deleted and recreated"):
        drain(read(**how))
    assert drain(read(**how, failOnDataLoss="false")) == [{0: list(range(20))}]


def test_streams_refuse_ending_offsets(read: Read, drain: Drain) -> None:
    with pytest.raises(Exception, match="endingOffsets: a stream has no end"):
        drain(read(subscribe="t", endingOffsets="latest", stream=True))
