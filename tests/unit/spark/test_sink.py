"""The sink with a storage service in memory: staging, commits, repeated writes and aborts."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.records.batch import peek
from kafscale.records.codecs import Codec
from kafscale.v1 import storage_pb2 as pb
from kafscale.v1.common_pb2 import INVALID, OK, TOO_LARGE, UNAVAILABLE
from kafscale_spark.connection import Connection
from kafscale_spark.schema import HEADER_TYPE
from kafscale_spark.sink.columns import WrongRows, check_columns, rows_by_topic
from kafscale_spark.sink.commit import CommitUnknown, NotCommitted
from kafscale_spark.sink.options import SinkOptions, sink_options
from kafscale_spark.sink.staged import Staged, Target
from kafscale_spark.sink.staging import stage_rows
from kafscale_spark.sink.writer import BatchWriter, StreamWriter
from tests.servers.ports import free_ports
from tests.unit.spark.staging_storage import StagingStorage, staging_storage

VALUES = StructType().add("value", "string")
TARGET = Target("sink", 3)


@pytest.fixture
def storage() -> Iterator[StagingStorage]:
    with staging_storage({"orders": 3, "other": 1}, **{"compression.type": "producer"}) as made:
        yield made


def _options(storage: StagingStorage, **wanted: Any) -> SinkOptions:
    connection = Connection((storage.address,), call_seconds=5.0, retry_seconds=2.0)
    return replace(SinkOptions(connection, topic="orders", commit_seconds=2.0), **wanted)


def _rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def _values(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([_rows(value=list(values))])


# --- rows


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"key": "string"}, "t", "Required attribute 'value' not found"),
        ({"value": "string"}, None, "topic option required when no 'topic' attribute is present"),
        ({"value": "int"}, "t", "value attribute unsupported type int: it must be string or binary"),
        ({"value": "string", "key": "bigint"}, "t", "key attribute unsupported type bigint"),
        ({"value": "string", "topic": "binary"}, None, "topic attribute unsupported type binary"),
        ({"value": "string", "partition": "bigint"}, "t", "partition attribute unsupported type bigint"),
        ({"value": "string", "timestamp": "bigint"}, "t", "timestamp attribute unsupported type bigint"),
        (
            {"value": "string", "timestamp": "timestamp_ntz"},
            "t",
            "timestamp attribute unsupported type timestamp_ntz: it has no time zone; cast it to timestamp",
        ),
        (
            {"value": "string", "headers": "map<string,binary>"},
            "t",
            "headers attribute unsupported type map<string,binary>",
        ),
    ],
)
def test_invalid_columns_are_refused(columns: dict[str, str], topic: str | None, words: str) -> None:
    with pytest.raises(WrongRows) as raised:
        check_columns(columns, topic)
    assert str(raised.value).startswith(words)


def test_the_columns_of_the_source_are_accepted() -> None:
    types = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
    }
    check_columns(types, None)


def test_rows_are_separated_by_topic_and_converted_to_one_form() -> None:
    rows = _rows(
        value=pa.array(["a", "b", "c"], pa.large_string()),
        topic=["x", "y", "x"],
        key=[b"1", None, b"3"],
        timestamp=pa.array([1, 2, 3], pa.timestamp("us", "Europe/Paris")),
        headers=pa.array([[{"key": "h", "value": b"v"}], None, []], pa.list_(HEADER_TYPE)),
        offset=[1, 2, 3],
    )
    found = {topic: part.to_pydict() for topic, part in rows_by_topic(rows, None)}
    assert {topic: part["value"] for topic, part in found.items()} == {"x": [b"a", b"c"], "y": [b"b"]}
    assert found["x"]["key"] == [b"1", b"3"]
    assert set(found["x"]) == {"key", "value", "timestamp", "headers"}
    assert [part for part, _ in rows_by_topic(rows, "z")] == ["z"]


def test_a_null_topic_is_an_error() -> None:
    rows = _rows(value=["a", "b"], topic=["x", None])
    with pytest.raises(WrongRows, match="null topic present in the data"):
        list(rows_by_topic(rows, None))


# --- tasks


def test_a_task_stages_all_rows_and_reports_them_in_order(storage: StagingStorage) -> None:
    values = [f"{number:06d}" for number in range(3000)]
    batches = [
        _rows(value=values[at : at + 500], partition=pa.array([1] * 500, pa.int32())) for at in range(0, 3000, 500)
    ]
    staged = stage_rows(batches, TARGET, _options(storage, batch_bytes=1000, stage_bytes=10_000, uploads=3))
    stages = [pb.Stage.FromString(stage) for stage in staged.stages]
    assert len(stages) > 3
    assert staged.target == TARGET
    assert staged.endpoints == (storage.address,)
    assert sum(stage.records for stage in stages) == 3000
    storage.commits.append(pb.CommitSinkRequest(stages=stages))
    assert [record.value for record in storage.rows("orders", 1)] == [value.encode() for value in values]
    assert all(request.sink == "sink" and request.epoch == 3 for request in storage.requests)


def test_the_memory_of_a_task_with_many_partitions_is_limited(storage: StagingStorage) -> None:
    numbers = pa.array([number % 3 for number in range(900)], pa.int32())
    stage_rows(
        [_rows(value=["v" * 100] * 900, partition=numbers)],
        TARGET,
        _options(storage, batch_bytes=1000, stage_bytes=1 << 20, memory_bytes=40_000),
    )
    assert max(len(request.records) for request in storage.requests) <= 20_000


def test_the_memory_of_a_task_with_many_topics_is_limited() -> None:
    topics = [f"t{number}" for number in range(20)]
    size, before_the_end = 1 << 20, 0

    def batches(storage: StagingStorage) -> Iterator[pa.RecordBatch]:
        nonlocal before_the_end
        for _ in range(2):
            for topic in topics:
                yield _rows(value=["v" * 1000] * 100, topic=[topic] * 100)
        before_the_end = sum(len(request.records) for request in storage.requests)

    with staging_storage(dict.fromkeys(topics, 1), **{"compression.type": "producer"}) as storage:
        options = _options(storage, topic=None, batch_bytes=1 << 14, memory_bytes=size, uploads=1)
        staged = stage_rows(batches(storage), TARGET, options)
    assert sum(pb.Stage.FromString(stage).records for stage in staged.stages) == 4000
    # All except the memory, and a chunk that is being sent.
    assert before_the_end > 4_000_000 - size - 250_000


def test_a_task_stages_at_all_instances_and_reports_those_it_discovered(storage: StagingStorage) -> None:
    with staging_storage(storage.topics, **storage.configs) as other:
        storage.instances.append(other.address)
        storage.troubles["Stage"] = [lambda _: Unavailable("down")] * 100
        staged = stage_rows(_values("a"), TARGET, _options(storage))
        assert len(other.requests) == 1
    assert sorted(staged.endpoints) == sorted([storage.address, other.address])


def test_a_stage_with_an_unknown_outcome_is_retried_and_counts_once(storage: StagingStorage) -> None:
    def lost(request: pb.StageRequest) -> Exception:
        storage._stage(request)
        return Unavailable("the answer got lost")

    storage.troubles["Stage"] = [lost, lambda _: pb.StageReply(status=UNAVAILABLE, detail="store is slow")]
    staged = stage_rows(_values("a"), TARGET, _options(storage))
    assert len(storage.staged) == 2
    assert [pb.Stage.FromString(stage).key for stage in staged.stages] == ["sink/3/1"]


def test_a_refused_stage_fails_the_task(storage: StagingStorage) -> None:
    storage.troubles["Stage"] = [lambda _: pb.StageReply(status=TOO_LARGE, detail="record of 2 MB")]
    with pytest.raises(Refused, match=r"orders-[0-2]: storage rejected the records: TOO_LARGE record of 2 MB"):
        stage_rows(_values("a"), TARGET, _options(storage))


def test_a_missing_topic_fails_the_task(storage: StagingStorage) -> None:
    with pytest.raises(WrongRows, match="topic nowhere does not exist"):
        stage_rows(_values("a"), TARGET, _options(storage, topic="nowhere"))


def test_a_topic_that_one_instance_does_not_know_yet_is_found(storage: StagingStorage) -> None:
    with staging_storage({}) as behind:
        behind.instances.append(storage.address)
        staged = stage_rows(_values("a"), TARGET, _options(behind))
    assert len(staged.stages) == 1


def test_storage_that_never_answers_fails_the_task_in_time() -> None:
    connection = Connection((f"127.0.0.1:{free_ports(1)[0]}",), call_seconds=0.5, retry_seconds=0.5)
    with pytest.raises(Unavailable, match="no storage instance answered"):
        stage_rows(_values("a"), TARGET, SinkOptions(connection, topic="orders"))


@pytest.mark.parametrize(
    ("wanted", "config", "codec"),
    [
        ("topic", "producer", Codec.NONE),
        ("topic", "zstd", Codec.ZSTD),
        ("lz4", "zstd", Codec.LZ4),
        ("none", "gzip", Codec.NONE),
    ],
)
def test_batches_have_the_configured_codec_or_that_of_the_topic(wanted: str, config: str, codec: Codec) -> None:
    with staging_storage({"orders": 1}, **{"compression.type": config}) as storage:
        stage_rows(_values("a" * 1000), TARGET, _options(storage, compression=wanted))
        assert peek(storage.requests[0].records).codec is codec


# --- the driver


def _staged_by(writer: BatchWriter, *values: str) -> Staged:
    return writer.write(_values(*values))


def test_a_batch_write_commits_all_stages_once_in_the_order_of_the_tasks(storage: StagingStorage) -> None:
    writer = BatchWriter(VALUES, False, _options(storage, topic="other"))
    second, first = _staged_by(writer, "c"), _staged_by(writer, "a", "b")
    writer.commit([first, second])
    assert [record.value for record in storage.rows("other", 0)] == [b"a", b"b", b"c"]
    (commit,) = storage.commits
    assert commit.sink.startswith("batch-")
    assert (commit.epoch, commit.once) == (0, True)


def test_two_batch_writes_are_two_sinks(storage: StagingStorage) -> None:
    for _ in range(2):
        writer = BatchWriter(VALUES, False, _options(storage))
        writer.commit([_staged_by(writer, "a")])
    assert len({commit.sink for commit in storage.commits}) == 2


def test_a_repeated_batch_write_with_a_sink_and_an_epoch_changes_nothing(storage: StagingStorage) -> None:
    for value in ("a", "b"):
        writer = BatchWriter(VALUES, False, _options(storage, topic="other", sink_id="mine", epoch_id=7))
        writer.commit([_staged_by(writer, value)])
    assert [record.value for record in storage.rows("other", 0)] == [b"a"]
    assert not storage.commits[0].once


@pytest.mark.parametrize("wanted", [{"sink_id": "mine"}, {"epoch_id": 1}])
def test_a_batch_write_has_both_sink_and_epoch_or_neither(storage: StagingStorage, wanted: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="sinkId and epochId go together"):
        BatchWriter(VALUES, False, _options(storage, **wanted))


def test_a_commit_is_retried_until_its_outcome_is_known(storage: StagingStorage) -> None:
    def lost(request: pb.CommitSinkRequest) -> Exception:
        storage._commitsink(request)
        return Unavailable("the answer got lost")

    storage.troubles["CommitSink"] = [lost, lambda _: pb.CommitSinkReply(status=UNAVAILABLE, detail="not known")]
    writer = BatchWriter(VALUES, False, _options(storage))
    writer.commit([_staged_by(writer, "a")])
    assert len(storage.commits) == 1


def test_only_an_earlier_write_makes_a_write_a_repeated_one(
    storage: StagingStorage, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(request: pb.CommitSinkRequest) -> Exception:
        storage._commitsink(request)
        return Unavailable("the answer got lost")

    storage.troubles["CommitSink"] = [lost]
    for words in ("whether by this write or an earlier one", "a repeated write, which changes nothing"):
        writer = BatchWriter(VALUES, False, _options(storage, sink_id="mine", epoch_id=1))
        writer.commit([_staged_by(writer, "a")])
        assert [words in record.getMessage() for record in caplog.records] == [True]
        caplog.clear()


def test_a_commit_waits_until_it_is_visible(storage: StagingStorage) -> None:
    storage.troubles["CommitSink"] = [lambda _: pb.CommitSinkReply(status=OK)] * 2
    writer = BatchWriter(VALUES, False, _options(storage))
    writer.commit([_staged_by(writer, "a")])
    assert storage.troubles["CommitSink"] == []


def test_an_unknown_outcome_of_a_commit_says_whether_to_repeat_the_write(storage: StagingStorage) -> None:
    for wanted, words in (({}, "check before you repeat it"), ({"sink_id": "mine", "epoch_id": 1}, "is safe")):
        storage.troubles["CommitSink"] = [lambda _: Unavailable("down")] * 100
        writer = BatchWriter(VALUES, False, _options(storage, commit_seconds=0.3, **wanted))
        with pytest.raises(CommitUnknown, match=words):
            writer.commit([_staged_by(writer, "a")])


def test_a_refused_commit_is_an_error(storage: StagingStorage) -> None:
    storage.troubles["CommitSink"] = [lambda _: pb.CommitSinkReply(status=INVALID, detail="a stage is missing")]
    writer = BatchWriter(VALUES, False, _options(storage))
    with pytest.raises(NotCommitted, match="is not committed: INVALID a stage is missing"):
        writer.commit([_staged_by(writer, "a")])


def test_the_driver_reaches_instances_that_only_tasks_discovered(storage: StagingStorage) -> None:
    staged = BatchWriter(VALUES, False, _options(storage)).write(_values("a"))
    nobody = Connection((f"127.0.0.1:{free_ports(1)[0]}",), call_seconds=2.0, retry_seconds=1.0)
    writer = BatchWriter(VALUES, False, _options(storage, connection=nobody))
    writer.commit([staged])
    assert len(storage.commits) == 1


def test_an_aborted_write_discards_its_stages(storage: StagingStorage) -> None:
    writer = BatchWriter(VALUES, False, _options(storage))
    staged = _staged_by(writer, "a", "b", "c", "d", "e")
    writer.abort([None, staged])
    assert sorted(storage.discarded) == sorted(storage.staged)


def test_nothing_is_discarded_after_a_failed_commit_which_may_have_succeeded(storage: StagingStorage) -> None:
    writer = BatchWriter(VALUES, False, _options(storage))
    writer.abort([_staged_by(writer, "a")])
    assert storage.discarded == []


def test_a_write_without_rows_commits_nothing(storage: StagingStorage) -> None:
    writer = BatchWriter(VALUES, False, _options(storage))
    writer.commit([writer.write(iter([]))])
    assert storage.commits == []


def test_the_epochs_of_a_stream_are_its_micro_batches(storage: StagingStorage) -> None:
    writer = StreamWriter(VALUES, False, _options(storage, sink_id="mine"))
    staged = stage_rows(_values("a"), Target("mine", 5), _options(storage))
    with pytest.raises(WrongRows, match="tasks of micro-batch 6 staged for"):
        writer.commit([staged], 6)
    writer.commit([staged], 5)
    assert [(commit.sink, commit.epoch) for commit in storage.commits] == [("mine", 5)]


def test_a_stream_must_write_in_micro_batches(storage: StagingStorage) -> None:
    with pytest.raises(WrongRows, match="is not a streaming query"):
        StreamWriter(VALUES, False, _options(storage)).write_arrow(_values("a"))


def test_topics_cannot_be_overwritten(storage: StagingStorage) -> None:
    for make in (BatchWriter, StreamWriter):
        with pytest.raises(WrongRows, match="records are appended to topics"):
            make(VALUES, True, _options(storage))


# --- options


def test_options_have_the_documented_defaults() -> None:
    found = sink_options({"kafscale.endpoints": "a:1"})
    assert found == SinkOptions(Connection(("a:1",)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sinkid": "x" * 201}, "option sinkId"),
        ({"sinkid": "é" * 43}, "it has 43 characters, 258 percent-encoded"),
        ({"epochId": "-1"}, "option epochId='-1'"),
        ({"topik": "t"}, "did you mean 'topic'"),
        ({"compression": "brotli"}, "expected `topic` or `none`"),
        ({"kafka.bootstrap.servers": "b:9092"}, "use kafscale.endpoints instead"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sink_options({"kafscale.endpoints": "a:1", **given})
