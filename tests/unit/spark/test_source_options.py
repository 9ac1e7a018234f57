"""Combinations of the source's options, and messages for invalid ones."""

import json
from typing import Any

import pytest

from kafscale.errors import ConfigError
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.edges import Edge
from kafscale_spark.options import option_rows
from kafscale_spark.rates import Rates
from kafscale_spark.source_options import (
    SOURCE_OPTIONS,
    batch_settings,
    columns_of,
    source_options,
    stream_settings,
)
from kafscale_spark.subscription import Subscription, java_pattern

_ONE = {"kafscale.endpoints": "a:1", "subscribe": "t"}


def _batch(**given: Any) -> Any:
    return batch_settings(source_options(_ONE | _text(given)))


def _stream(**given: Any) -> Any:
    return stream_settings(source_options(_ONE | _text(given)))


def _text(given: dict[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}


def test_options_have_defaults() -> None:
    batch, stream = _batch(), _stream()
    assert (batch.start.everywhere, batch.end.everywhere) == (-2, -1)
    assert (stream.start.everywhere, stream.end.everywhere) == (-1, -1)
    assert batch.fail_on_data_loss
    assert not batch.latest_if_no_timestamp
    assert (batch.min_partitions, batch.split_records, batch.split_bytes) == (0, 0, None)
    assert stream.rates == Rates(max_delay_seconds=900.0)


def test_timestamps_override_offsets() -> None:
    by_partition = {"t": {"0": 5}}
    every = {
        "startingOffsets": {"t": {"0": 1}},
        "startingOffsetsByTimestamp": by_partition,
        "startingTimestamp": 7,
        "endingOffsets": {"t": {"0": 9}},
        "endingOffsetsByTimestamp": by_partition,
        "endingTimestamp": 8,
    }
    found = _batch(**every)
    assert (found.start, found.end) == (
        Edge("startingTimestamp", 7, by_time=True),
        Edge("endingTimestamp", 8, by_time=True),
    )
    del every["startingTimestamp"], every["endingTimestamp"]
    found = _batch(**every)
    assert found.start == Edge("startingOffsetsByTimestamp", each={("t", 0): 5}, by_time=True)
    assert found.end == Edge("endingOffsetsByTimestamp", each={("t", 0): 5}, by_time=True)
    del every["startingOffsetsByTimestamp"], every["endingOffsetsByTimestamp"]
    found = _batch(**every)
    assert found.start.bound(("t", 0)) == pb.Bound(offset=1)
    assert found.end.bound(("t", 0)) == pb.Bound(offset=9)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: a batch cannot begin at latest"),
        ({"startingOffsets": {"t": {"0": -1}}}, r"cannot begin at latest \(t-0: -1\)"),
        ({"endingOffsets": "earliest"}, "endingOffsets: a batch cannot end at earliest"),
        ({"endingOffsets": {"t": {"0": 3, "1": -2}}}, r"cannot end at earliest \(t-1: -2\)"),
        ({"assign": {"t": [0]}}, "only one of subscribe, assign can be set"),
        ({"subscribePattern": "t.*", "assign": {"t": [0]}}, "only one of subscribe, subscribePattern, assign"),
        ({"startingOffsets": {"t": {"0": -3}}}, r"startingOffsets=.*t-0 has -3"),
        ({"startingOffsets": {"t": {"0": "1"}}}, r"startingOffsets=.*t-0 has '1'"),
        ({"startingOffsets": {"t": 1}}, "topic t is not an object"),
        ({"startingOffsets": {"t": {"x": 1}}}, "'x' is not a partition"),
        ({"startingOffsets": "first"}, "not JSON"),
        ({"startingOffsets": {}}, "no partition is named"),
        ({"startingTimestamp": "now"}, "startingTimestamp='now': not a number of milliseconds"),
        ({"startingOffsetsByTimestamp": {"t": {"0": -1}}}, "t-0 has -1"),
        ({"subscribe": ","}, "subscribe=',': no topic is named"),
        ({"assign": {"t": "0"}, "subscribe": "t"}, "assign=.*topic t is not a list of partitions"),
        ({"subscribePattern": r"\p{Lower}+"}, "not a valid pattern of Python's re"),
        ({"subscribePattern": "[a-z&&[^t]]+"}, "does not support && in character classes"),
        ({"columns": "key,values"}, "'values'|values is not a column"),
        ({"columns": "key,key"}, "twice"),
        ({"kafka.bootstrap.servers": "a:9092"}, "use kafscale.endpoints instead"),
        ({"kafka.group.id": "g"}, "uses no consumer group"),
        ({"path": "t"}, "name the topics with subscribe"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
    ],
)
def test_invalid_batches_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _batch(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets: a stream has no end"),
        ({"endingTimestamp": 5}, "endingTimestamp: a stream has no end"),
        ({"endingOffsetsByTimestamp": {"t": {"0": 5}}}, "endingOffsetsByTimestamp: a stream has no end"),
        ({"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 4}, "greater than maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": 0}, "not a whole number in this range"),
    ],
)
def test_invalid_streams_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _stream(**given)


def test_topics_are_required() -> None:
    with pytest.raises(ConfigError, match="one of subscribe, subscribePattern, assign is required"):
        batch_settings(source_options({"kafscale.endpoints": "a:1"}))


def test_columns_are_selected() -> None:
    assert columns_of(source_options({}))[-1] == "timestampType"
    assert columns_of(source_options({"includeHeaders": "true"}))[-1] == "headers"
    assert columns_of(source_options({"columns": "offset, key"})) == ("offset", "key")
    assert columns_of(source_options({"columns": ""})) == ()


def test_offsets_must_be_given_for_exactly_the_partitions_of_the_topic() -> None:
    edge = _batch(startingOffsets={"t": {"0": 1, "2": 1}}).start
    edge.check([("t", 0), ("t", 2)])
    with pytest.raises(ConfigError, match=r"startingOffsets must name .* missing: t-1; not read: t-2"):
        edge.check([("t", 0), ("t", 1)])


_TOPICS = [
    pb.TopicDescription(name="t-a", id=b"A" * 16, partitions=2),
    pb.TopicDescription(name="t-b", id=b"B" * 16, partitions=1),
]


@pytest.mark.parametrize(
    ("subscription", "partitions", "missing"),
    [
        (Subscription(topics=("t-b", "x")), [("t-b", 0)], ["x"]),
        (Subscription(pattern="t-."), [("t-a", 0), ("t-a", 1), ("t-b", 0)], []),
        (Subscription(pattern="^t$"), [], []),
        (Subscription(pattern="-a"), [("t-a", 0), ("t-a", 1)], []),
        (Subscription(partitions={"t-a": (1, 2), "x": (0,)}), [("t-a", 1)], ["t-a-2", "x-0"]),
    ],
)
def test_partitions_are_selected(
    subscription: Subscription, partitions: list[tuple[str, int]], missing: list[str]
) -> None:
    found = subscription.select(_TOPICS)
    assert list(found.partitions) == partitions
    assert found.ids == {name: topic.id for topic in _TOPICS for name, _ in partitions if name == topic.name}
    assert subscription.missing(found) == missing


def test_named_groups_have_the_syntax_of_python() -> None:
    assert java_pattern(r"(?<year>\d+)-\k<year>(?<!x)(?<=y)") == r"(?P<year>\d+)-(?P=year)(?<!x)(?<=y)"


def test_every_option_has_a_row_with_a_description() -> None:
    rows = option_rows(SOURCE_OPTIONS)
    assert len({row[0].lower() for row in rows}) == len(rows) == len(SOURCE_OPTIONS)
    assert all(cell.strip() for row in rows for cell in row)
    for option in SOURCE_OPTIONS:
        if option.default_text:
            assert option.parser.read(option.default_text) == option.default, option.name
