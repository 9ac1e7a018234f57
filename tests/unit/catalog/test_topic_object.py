"""Topic objects: readable, exact, and refused with a reason if invalid."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.catalog.topic_object import CorruptTopicObject, TopicObject, parse_topic_object
from tests.support.samples.catalog import TOPIC, TOPIC_OBJECT


def test_the_golden_topic_object_is_still_written_and_read() -> None:
    golden = TOPIC_OBJECT.read_bytes()

    assert TOPIC.encode() == golden
    assert parse_topic_object(golden) == TOPIC
    assert b'\n  "id": "00010203-0405-0607-0809-0a0b0c0d0e0f",\n' in golden


@given(
    configs=st.dictionaries(st.text(), st.text()),
    starts=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5),
    topic_id=st.binary(min_size=16, max_size=16),
)
def test_a_topic_object_is_read_as_written(configs: dict[str, str], starts: list[int], topic_id: bytes) -> None:
    made = replace(TOPIC, configs=configs, log_starts=tuple(starts), id=topic_id)

    assert parse_topic_object(made.encode()) == made


def test_equality_ignores_the_revision() -> None:
    assert TOPIC.same_as(replace(TOPIC, metadata_revision=99))
    assert not TOPIC.same_as(replace(TOPIC, log_starts=(0, 1201, 0)))


def _changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(TOPIC.encode()) | changes).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "format 1"),
        (_changed(format=2), "format 1"),
        (_changed(name="a/b"), "topic name"),
        (_changed(name=7), "name is missing or not a str"),
        (_changed(id="x"), "not a valid id"),
        (_changed(partitions=4), "4 partitions, but 3 log starts"),
        (_changed(partitions=True), "partitions is missing or not a number"),
        (_changed(partitions=0, log_starts=[]), "0 partitions"),
        (_changed(log_starts=[0, -1, 0]), "not an offset"),
        (_changed(log_starts=[0, 1.5, 0]), "not an offset"),
        (_changed(configs={"a": 1}), "config"),
        (_changed(configs={"a": "\ud800"}), "not Unicode text"),
        (_changed(metadata_revision=None), "metadata_revision is missing"),
        (b"9" * 5000, "not JSON"),
    ],
)
def test_an_invalid_topic_object_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(CorruptTopicObject, match=why):
        parse_topic_object(data)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["format", "name", "id", "partitions", "configs", "log_starts"]), inner)
        ),
    )
)
def test_any_json_is_a_topic_object_or_refused(value: Any) -> None:
    try:
        found = parse_topic_object(json.dumps(value).encode())
    except CorruptTopicObject:
        return
    assert isinstance(found, TopicObject)
