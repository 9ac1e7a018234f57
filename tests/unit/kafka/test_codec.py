"""Requests and replies by kio's schemas, and the handwritten codecs of versions that kio lacks."""

import contextlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader as kio_reader
from kio.static.constants import EntityType

from kafscale.errors import CorruptData
from kafscale.kafka import codec, legacy
from kafscale.kafka.wire import uvarint
from tests.support.strategies.kio_types import entities, milliseconds, written

CLIENT_APIS = (2, 3, *range(8, 17), *range(18, 24), 32, 33, 37, 42, 44, 60, 75)
KNOWN = [
    (key, version)
    for key in CLIENT_APIS
    for version, kinds in sorted(schema_name_map[api_key_map[key]].items())
    if EntityType.request in kinds
]
WITH_ARRAYS = [(key, version) for key, version in KNOWN if key in (2, 3, 19, 20)]


@pytest.mark.parametrize(("api_key", "version"), KNOWN)
@settings(max_examples=4)
@given(st.data())
def test_requests_of_every_api_are_decoded_as_by_kio(api_key: int, version: int, data: st.DataObject) -> None:
    body = written(data.draw(entities(load_request_schema(api_key, version))))
    expected, _ = kio_reader(load_request_schema(api_key, version))(body, 0)
    assert codec.decode_request(api_key, version, memoryview(body)) == expected


@pytest.mark.parametrize(("api_key", "version"), KNOWN)
@settings(max_examples=6)
@given(st.binary(max_size=100))
def test_no_bytes_make_a_decoder_raise_anything_but_corrupt_data(api_key: int, version: int, body: bytes) -> None:
    with contextlib.suppress(CorruptData):
        codec.decode_request(api_key, version, memoryview(body))


@pytest.mark.parametrize(("api_key", "version"), WITH_ARRAYS)
def test_an_array_that_claims_to_be_huge_is_refused_at_once(api_key: int, version: int) -> None:
    huge = b"\xff\xff\xff\xff\x07" if codec.is_flexible(api_key, version) else b"\x7f\xff\xff\xff"
    before = {2: bytes(4) if version < 2 else bytes(5)}.get(api_key, b"")
    with pytest.raises(CorruptData, match="longer than its request"):
        codec.decode_request(api_key, version, memoryview(before + huge + bytes(20)))


@pytest.mark.parametrize(
    "body",
    [
        uvarint(100_002) + b"\1" * 100_002,
        # One empty name, and many tagged fields without content.
        b"\2\1" + uvarint(1000) + b"\7\0" * 1000,
    ],
)
def test_items_without_content_are_bounded(body: bytes) -> None:
    with pytest.raises(CorruptData, match="more than"):
        codec.decode_request(42, 2, memoryview(body))


@dataclass(frozen=True)
class _Deletable:
    name: str
    error_code: int
    topic_id: bytes
    error_message: str | None = None


@pytest.mark.parametrize("version", range(1, 7))
def test_a_reply_is_reduced_to_the_fields_of_its_version(version: int) -> None:
    reply = SimpleNamespace(throttle_time=3, responses=[_Deletable("t", 3, bytes(15) + b"\x01", "gone")])
    body = codec.encode_response(20, version, reply)
    entity: Any
    entity, end = kio_reader(load_response_schema(20, version))(body, 0)
    assert end == len(body)
    assert milliseconds(entity.throttle_time) == 3
    (response,) = entity.responses
    assert (response.name, response.error_code) == ("t", ErrorCode.unknown_topic_or_partition)
    if version >= 5:
        assert response.error_message == "gone"
    if version >= 6:
        assert response.topic_id.int == 1


def test_a_reply_without_a_required_field_is_an_error() -> None:
    with pytest.raises(AttributeError):
        codec.encode_response(20, 1, SimpleNamespace(throttle_time=0))


@pytest.mark.parametrize(
    ("api_key", "version", "flexible"),
    [
        (0, 0, False),
        (0, 8, False),
        (0, 9, True),
        (0, 99, True),
        (1, 3, False),
        (2, 0, False),
        (18, 99, True),
        (3, -1, False),
        (9999, 0, False),
    ],
)
def test_which_versions_are_flexible(api_key: int, version: int, flexible: bool) -> None:
    assert codec.is_flexible(api_key, version) is flexible


def test_list_offsets_version_0_by_hand() -> None:
    body = bytes.fromhex("ffffffff 00000001 0001 61 00000001 00000002 ffffffffffffffff 00000005")
    request = legacy.decode_list_offsets(memoryview(body), 0)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (request.replica_id, topic.name) == (-1, "a")
    assert (partition.partition_index, partition.timestamp, partition.max_num_offsets) == (2, -1, 5)
    answer = SimpleNamespace(partition_index=2, error_code=3, old_style_offsets=[9, 0])
    encoded = legacy.encode_list_offsets([SimpleNamespace(name="a", partitions=[answer])])
    assert encoded == bytes.fromhex(
        "00000001 0001 61 00000001 00000002 0003 00000002 0000000000000009 0000000000000000"
    )


@pytest.mark.parametrize(("version", "ending", "validate_only"), [(0, "", False), (1, "01", True), (1, "00", False)])
def test_create_topics_versions_0_and_1_by_hand(version: int, ending: str, validate_only: bool) -> None:
    body = bytes.fromhex(
        "00000001 0001 61 ffffffff ffff"
        "00000001 00000000 00000002 00000001 00000002"
        "00000002 0001 6b 0001 76 0001 6e ffff"
        "00000bb8" + ending
    )
    request = legacy.decode_create_topics(memoryview(body), version)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("a", -1, -1)
    assert topic.assignments == [legacy.ReplicaAssignment(0, (1, 2))]
    assert topic.configs == [legacy.TopicConfig("k", "v"), legacy.TopicConfig("n", None)]
    assert (milliseconds(request.timeout), request.validate_only) == (3000, validate_only)
    encoded = legacy.encode_create_topics([SimpleNamespace(name="a", error_code=36, error_message="x")], version)
    assert encoded == bytes.fromhex("00000001 0001 61 0024" + ("0001 78" if version else ""))


def test_delete_topics_version_0_by_hand() -> None:
    request = legacy.decode_delete_topics(memoryview(bytes.fromhex("00000002 0001 61 0001 62 00000064")), 0)
    assert (request.topic_names, milliseconds(request.timeout)) == (["a", "b"], 100)
    encoded = legacy.encode_delete_topics([SimpleNamespace(name="a", error_code=3)])
    assert encoded == bytes.fromhex("00000001 0001 61 0003")


@pytest.mark.parametrize("version", [0, 1])
def test_offset_for_leader_epoch_versions_0_and_1_by_hand(version: int) -> None:
    body = bytes.fromhex("00000001 0001 61 00000001 00000002 00000007")
    (topic,) = legacy.decode_offset_for_leader_epoch(memoryview(body), version).topics
    assert (topic.topic, topic.partitions) == ("a", [legacy.OffsetForLeaderPartition(2, 7)])
    end = SimpleNamespace(error_code=3, partition=2, leader_epoch=7, end_offset=9)
    encoded = legacy.encode_offset_for_leader_epoch([SimpleNamespace(topic="a", partitions=[end])], version)
    epoch = "00000007" if version else ""
    assert encoded == bytes.fromhex("00000001 0001 61 00000001 0003 00000002" + epoch + "0000000000000009")


@pytest.mark.parametrize(
    "decode",
    [
        legacy.decode_list_offsets,
        legacy.decode_create_topics,
        legacy.decode_delete_topics,
        legacy.decode_offset_for_leader_epoch,
    ],
)
@given(st.binary(max_size=100))
def test_no_bytes_make_a_handwritten_decoder_raise_anything_but_corrupt_data(decode: Any, body: bytes) -> None:
    with contextlib.suppress(CorruptData):
        decode(memoryview(body), 0)
