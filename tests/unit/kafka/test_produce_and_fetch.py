"""The handwritten codecs of the hot path, compared with kio's for every version that kio has."""

import contextlib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from kafscale.errors import CorruptData
from kafscale.kafka import fetch, produce
from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import request
from tests.support.strategies.kio_types import entities, milliseconds, written

PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
SMALL = settings(max_examples=30)


def topic_id(entity: Any) -> bytes:
    return entity.topic_id.bytes if hasattr(entity, "topic_id") else b""


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@SMALL
@given(st.data())
def test_a_produce_request_decodes_to_what_kio_wrote(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(0, version)))
    decoded = produce.decode_request(memoryview(written(entity)), version)
    assert decoded.transactional_id == entity.transactional_id
    assert (decoded.acks, decoded.timeout_ms) == (entity.acks, milliseconds(entity.timeout))
    assert [(topic.name, topic.topic_id) for topic in decoded.topics] == [
        (getattr(topic, "name", ""), topic_id(topic)) for topic in entity.topic_data
    ]
    assert [
        [
            (partition.index, None if partition.records is None else bytes(partition.records))
            for partition in topic.partitions
        ]
        for topic in decoded.topics
    ] == [[(partition.index, partition.records) for partition in topic.partition_data] for topic in entity.topic_data]


RESULTS = st.lists(
    st.builds(
        produce.ProduceResult,
        index=st.integers(0, 1 << 30),
        error_code=st.sampled_from([0, 3, 87, -1]),
        base_offset=st.integers(-1, 1 << 62),
        log_append_time_ms=st.just(-1) | st.integers(0, 1 << 31).map(lambda seconds: seconds * 1000),
        log_start_offset=st.integers(-1, 1 << 62),
        error_message=st.none() | st.text(max_size=200),
    ),
    max_size=3,
)
PRODUCE_TOPICS = st.lists(
    st.builds(
        produce.ProduceTopicResults,
        name=st.text(max_size=200),
        topic_id=st.binary(min_size=16, max_size=16).filter(any),
        results=RESULTS,
    ),
    max_size=3,
)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@SMALL
@given(PRODUCE_TOPICS)
def test_a_produce_response_is_what_kio_reads(version: int, topics: list[produce.ProduceTopicResults]) -> None:
    body = b"".join(produce.encode_response(topics, version))
    entity: Any
    entity, end = entity_reader(load_response_schema(0, version))(body, 0)
    assert end == len(body)
    assert milliseconds(entity.throttle_time) == 0
    assert len(entity.responses) == len(topics)
    for mine, read in zip(topics, entity.responses, strict=True):
        assert mine.topic_id == topic_id(read) if version >= 13 else mine.name == read.name
        assert len(mine.results) == len(read.partition_responses)
        for result, partition in zip(mine.results, read.partition_responses, strict=True):
            assert (result.index, result.error_code) == (partition.index, partition.error_code)
            assert result.base_offset == partition.base_offset
            time = partition.log_append_time
            assert result.log_append_time_ms == (-1 if time is None else round(time.timestamp() * 1000))
            if version >= 5:
                assert result.log_start_offset == partition.log_start_offset
            if version >= 8:
                assert result.error_message == partition.error_message
                assert partition.record_errors == ()


PRODUCE_V2 = bytes.fromhex(
    "0001 000007d0"  # acks, timeout
    "00000001 0003 616263"  # one topic, abc
    "00000002 00000000 00000004 01020304 00000005 ffffffff"  # two partitions, the second with null records
)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_requests_older_than_kio_decode(version: int) -> None:
    decoded = produce.decode_request(memoryview(PRODUCE_V2), version)
    assert decoded.transactional_id is None
    assert (decoded.acks, decoded.timeout_ms) == (1, 2000)
    (topic,) = decoded.topics
    first, second = topic.partitions
    assert (topic.name, first.index, second.index, second.records) == ("abc", 0, 5, None)
    assert first.records is not None
    assert bytes(first.records) == b"\x01\x02\x03\x04"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "00000001 0001 61 00000001 00000002 0003 0000000000000009"),
        (1, "00000001 0001 61 00000001 00000002 0003 0000000000000009 00000000"),
        (2, "00000001 0001 61 00000001 00000002 0003 0000000000000009 0000000000000007 00000000"),
    ],
)
def test_produce_responses_older_than_kio_have_kafkas_bytes(version: int, expected: str) -> None:
    result = produce.ProduceResult(2, error_code=3, base_offset=9, log_append_time_ms=7, log_start_offset=1)
    body = produce.encode_response([produce.ProduceTopicResults("a", b"", [result])], version)
    assert b"".join(body) == bytes.fromhex(expected)


def test_produced_records_are_views_of_the_request() -> None:
    decoded = produce.decode_request(memoryview(PRODUCE_V2), 2)
    records = decoded.topics[0].partitions[0].records
    assert records is not None
    assert records.obj is PRODUCE_V2


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@SMALL
@given(st.data())
def test_a_fetch_request_decodes_to_what_kio_wrote(version: int, data: st.DataObject) -> None:
    entity = data.draw(entities(load_request_schema(1, version)))
    decoded = fetch.decode_request(memoryview(written(entity)), version)
    replica = entity.replica_state.replica_id if version >= 15 else entity.replica_id
    assert decoded.replica_id == replica
    assert decoded.max_wait_ms == milliseconds(entity.max_wait)
    assert (decoded.min_bytes, decoded.max_bytes, decoded.isolation_level) == (
        entity.min_bytes,
        entity.max_bytes,
        entity.isolation_level,
    )
    assert decoded.session_id == getattr(entity, "session_id", 0)
    assert decoded.session_epoch == getattr(entity, "session_epoch", -1)
    assert [
        (
            topic.name,
            topic.topic_id,
            [(p.index, p.current_leader_epoch, p.offset, p.max_bytes) for p in topic.partitions],
        )
        for topic in decoded.topics
    ] == [
        (
            getattr(topic, "topic", ""),
            topic_id(topic),
            [
                (p.partition, getattr(p, "current_leader_epoch", -1), p.fetch_offset, p.partition_max_bytes)
                for p in topic.partitions
            ],
        )
        for topic in entity.topics
    ]


FETCH_RESULTS = st.lists(
    st.builds(
        fetch.FetchResult,
        index=st.integers(0, 1 << 30),
        error_code=st.sampled_from([0, 1, 6]),
        high_watermark=st.integers(-1, 1 << 62),
        log_start_offset=st.integers(-1, 1 << 62),
        records=st.lists(st.binary(max_size=300), max_size=3),
    ),
    max_size=3,
)
FETCH_TOPICS = st.lists(
    st.builds(
        fetch.FetchTopicResults,
        name=st.text(max_size=200),
        topic_id=st.binary(min_size=16, max_size=16).filter(any),
        results=FETCH_RESULTS,
    ),
    max_size=3,
)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@SMALL
@given(FETCH_TOPICS, st.sampled_from([None, 0]), st.sampled_from([0, 70]))
def test_a_fetch_response_is_what_kio_reads(
    version: int, topics: list[fetch.FetchTopicResults], aborted: int | None, error: int
) -> None:
    body = b"".join(fetch.encode_response(topics, version, error_code=error, aborted=aborted))
    entity: Any
    entity, end = entity_reader(load_response_schema(1, version))(body, 0)
    assert end == len(body)
    if version >= 7:
        assert (entity.error_code, entity.session_id) == (error, 0)
    assert len(entity.responses) == len(topics)
    for mine, read in zip(topics, entity.responses, strict=True):
        assert mine.topic_id == topic_id(read) if version >= 13 else mine.name == read.topic
        assert len(mine.results) == len(read.partitions)
        for result, partition in zip(mine.results, read.partitions, strict=True):
            assert (result.index, result.error_code) == (partition.partition_index, partition.error_code)
            assert result.high_watermark == partition.high_watermark == partition.last_stable_offset
            assert partition.aborted_transactions == (None if aborted is None else ())
            assert partition.records == b"".join(result.records)
            if version >= 5:
                assert result.log_start_offset == partition.log_start_offset
            if version >= 11:
                assert partition.preferred_read_replica == -1


def test_fetched_records_are_not_copied() -> None:
    records = bytes(1000)
    body = fetch.encode_response([fetch.FetchTopicResults("a", b"", [fetch.FetchResult(0, records=[records])])], 12)
    assert any(piece is records for piece in body)


@pytest.mark.parametrize("version", [*range(3), *PRODUCE_VERSIONS])
@SMALL
@given(st.binary(max_size=200))
def test_no_bytes_make_the_produce_decoder_raise_anything_but_corrupt_data(version: int, body: bytes) -> None:
    with contextlib.suppress(CorruptData):
        produce.decode_request(memoryview(body), version)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@SMALL
@given(st.binary(max_size=200))
def test_no_bytes_make_the_fetch_decoder_raise_anything_but_corrupt_data(version: int, body: bytes) -> None:
    with contextlib.suppress(CorruptData):
        fetch.decode_request(memoryview(body), version)


@pytest.mark.parametrize("version", [3, 9, 13])
@SMALL
@given(st.data())
def test_a_truncated_produce_request_is_refused(version: int, data: st.DataObject) -> None:
    body = written(data.draw(entities(load_request_schema(0, version))))
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(CorruptData):
        produce.decode_request(memoryview(body)[:end], version)


@pytest.mark.parametrize("version", [8, 9])
def test_only_the_records_of_a_produce_request_may_be_large(version: int) -> None:
    partition = nested(0, version, "PartitionProduceData")
    topic = nested(0, version, "TopicProduceData")

    def body(*partitions: Any) -> memoryview:
        data = (topic(name="t", partition_data=partitions),)
        return memoryview(request(0, version, transactional_id=None, acks=-1, timeout=timedelta(0), topic_data=data))

    large = produce.decode_request(body(partition(index=0, records=bytes(5000))), version, most_without_records=100)
    assert len(large.topics[0].partitions[0].records or b"") == 5000
    many = [partition(index=index, records=None) for index in range(100)]
    with pytest.raises(CorruptData, match="besides its records"):
        produce.decode_request(body(*many), version, most_without_records=100)
