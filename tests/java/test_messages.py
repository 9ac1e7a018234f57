"""Kafka's own serialization checks the messages of every advertised API and version.

The newest kafka-clients checks its versions. The last one of Kafka 3 checks those that Kafka 4 dropped.
"""

import re
import struct
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
import trio
from structlog.testing import capture_logs

from kafscale.kafka import codec, fetch, legacy, produce
from kafscale.kafka.connection import KafkaConnection, Request
from services.gateway.clients.registry import APIS
from services.gateway.clients.unsupported import UNSUPPORTED
from tests.java.compare import differences
from tests.support.gateway.advertised import ADVERTISED, EXCHANGES, closing_line
from tests.support.gateway.harness import Client, read_response, running_gateway
from tests.support.judge import Judge, Judged, judges
from tests.support.strategies.kio_types import written

DROPPED_BY_KAFKA_4 = {(0, 0), (0, 1), (0, 2), (2, 0), (19, 0), (19, 1), (20, 0), (23, 0), (23, 1)}


# One tagged field: tag 10,000, 300 bytes.
UNKNOWN_TAG = b"\x01\x90\x4e\xac\x02" + bytes(300)


@dataclass(frozen=True)
class Exchanged:
    """A client's request and the received reply, both without their sizes."""

    api_key: int
    version: int
    request: bytes
    reply: bytes


class RecordingClient(Client):
    """A client that records what it sends and receives."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream)
        self._sent: dict[int, bytes] = {}
        self.exchanged: list[Exchanged] = []

    async def send_frame(self, frame: bytes) -> None:
        self._sent[struct.unpack_from(">hhi", frame)[2]] = frame
        await super().send_frame(frame)

    async def receive_frame(self) -> bytes:
        frame = await super().receive_frame()
        request = self._sent.pop(struct.unpack_from(">i", frame)[0])
        api_key, version = struct.unpack_from(">hh", request)
        self.exchanged.append(Exchanged(api_key, version, request, frame))
        return frame


async def exchanged(api_key: int, version: int) -> list[Exchanged]:
    """Return all requests and replies of the API's exchange in this version, including error cases."""
    async with running_gateway() as harness:
        client = RecordingClient(await trio.open_tcp_stream("127.0.0.1", harness.listeners[0].port))
        harness.clients.append(client)
        await EXCHANGES[api_key](harness, client, version)
        return client.exchanged


class Court:
    """Assigns a judge to each version."""

    def __init__(self, newest: Judge, old: Judge) -> None:
        self.newest = newest
        self._old = old

    def judge(self, api_key: int, version: int) -> Judge:
        for judge in (self.newest, self._old):
            if judge.knows(api_key, version):
                return judge
        raise AssertionError(f"no kafka-clients has API {api_key} version {version}: it cannot be advertised")

    def lowest(self, api_key: int) -> tuple[Judge, int]:
        """Return a judge that knows the API, and its lowest version there."""
        judge = self.newest if self.newest.apis[api_key][1] else self._old
        return judge, judge.apis[api_key][1][0]


@pytest.fixture(scope="module")
def court() -> Iterator[Court]:
    with judges() as (newest, old):
        yield Court(newest, old)


def test_every_api_of_kafka_is_supported_or_listed_as_unsupported(court: Court) -> None:
    listed = {key: re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() for key, (name, _) in UNSUPPORTED.items()}
    assert listed == {key: name for key, (name, _) in court.newest.apis.items() if key not in APIS}


async def test_an_unsupported_request_written_by_kafka_closes_the_connection(court: Court) -> None:
    async with running_gateway() as harness:
        for api_key, (name, _) in UNSUPPORTED.items():
            judge, version = court.lowest(api_key)
            client = await harness.connect()
            with capture_logs() as logs:
                await client.send_frame(judge.filled(api_key, version).written)
                with pytest.raises(EOFError):
                    await client.receive()
                line = await closing_line(logs)
            assert line["reason"].startswith(f"{name} ({api_key}) is not supported: ")


def test_only_versions_that_kafka_4_dropped_are_judged_by_kafka_3(court: Court) -> None:
    assert {pair for pair in ADVERTISED if court.judge(*pair) is not court.newest} == DROPPED_BY_KAFKA_4


@pytest.mark.parametrize(("api_key", "version"), ADVERTISED)
async def test_kafka_reads_and_writes_the_same_bytes(court: Court, api_key: int, version: int) -> None:
    found = await exchanged(api_key, version)
    assert any((each.api_key, each.version) == (api_key, version) for each in found), "this version was not sent"
    for each in found:
        judge = court.judge(each.api_key, each.version)
        request = judge.request(each.api_key, each.version, each.request)
        reply = judge.response(each.api_key, each.version, each.reply)
        for judged, frame in ((request, each.request), (reply, each.reply)):
            assert judged.left == 0
            assert judged.written == frame
        assert (request.header["requestApiKey"], request.header["requestApiVersion"]) == (each.api_key, each.version)
        assert request.header["correlationId"] == reply.header["correlationId"]
        if (each.api_key, each.version) not in DROPPED_BY_KAFKA_4:
            assert list(differences(read_response(each.api_key, each.version, body_of(each)), reply.body)) == []


# Kafka's reading of the first replies of versions that are encoded by hand; kio does not support them.
DROPPED_REPLIES: dict[tuple[int, int], dict[str, Any]] = {
    **{
        (0, version): {
            "responses": [
                {"name": "t", "partitionResponses": [{"index": 0, "errorCode": 0, "baseOffset": 0, **stamped}]}
            ],
            **throttled,
        }
        for version, stamped, throttled in (
            (0, {}, {}),
            (1, {}, {"throttleTimeMs": 0}),
            (2, {"logAppendTimeMs": 123_000}, {"throttleTimeMs": 0}),
        )
    },
    (2, 0): {
        "topics": [{"name": "t", "partitions": [{"partitionIndex": 0, "errorCode": 0, "oldStyleOffsets": [2, 0]}]}]
    },
    (19, 0): {"topics": [{"name": "new", "errorCode": 0}]},
    (19, 1): {"topics": [{"name": "new", "errorCode": 0, "errorMessage": None}]},
    (20, 0): {"responses": [{"name": "t", "errorCode": 0}]},
    (23, 0): {"topics": [{"topic": "t", "partitions": [{"errorCode": 0, "partition": 0, "endOffset": 2}]}]},
    (23, 1): {
        "topics": [{"topic": "t", "partitions": [{"errorCode": 0, "partition": 0, "leaderEpoch": 1, "endOffset": 2}]}]
    },
}


@pytest.mark.parametrize(("api_key", "version"), sorted(DROPPED_BY_KAFKA_4))
async def test_kafka_3_understands_replies_of_versions_that_kafka_4_dropped(
    court: Court, api_key: int, version: int
) -> None:
    first = next(e for e in await exchanged(api_key, version) if (e.api_key, e.version) == (api_key, version))
    judged = court.judge(api_key, version).response(api_key, version, first.reply)
    assert judged.body == DROPPED_REPLIES[api_key, version]


@pytest.mark.parametrize("version", [5, 999])
async def test_kafka_reads_the_reply_to_an_unknown_version_of_api_versions(court: Court, version: int) -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        await client.send(18, version, b"what this version holds")
        judged = court.newest.response(18, 0, await client.receive_frame())
        assert judged.left == 0
        assert judged.body["errorCode"] == 35
        listed = {each["apiKey"]: (each["minVersion"], each["maxVersion"]) for each in judged.body["apiKeys"]}
        assert listed == {api.key: (api.versions[0], api.versions[-1]) for api in APIS.values()}


def body_of(each: Exchanged) -> bytes:
    """Return a reply without its header."""
    tagged = codec.is_flexible(each.api_key, each.version) and each.api_key != 18
    return each.reply[5 if tagged else 4 :]


@pytest.mark.parametrize("how", ["filled", "nulls", "tagged"])
@pytest.mark.parametrize(("api_key", "version"), ADVERTISED)
def test_every_field_that_kafka_writes_is_read(court: Court, api_key: int, version: int, how: str) -> None:
    judged = court.judge(api_key, version).filled(api_key, version, how)
    request = parsed(judged.written)
    assert (request.api_key, request.api_version, request.correlation_id) == (api_key, version, 7)
    assert request.client_id == (None if how == "nulls" else "judge")
    assert READERS.get((api_key, version), read_by_kio)(request, judged) == []


def parsed(frame: bytes) -> Request:
    connection = KafkaConnection(
        flexible=codec.is_flexible,
        on_ready=lambda: None,
        on_reply=lambda slot, size: None,
        max_request_bytes=1 << 20,
        max_in_flight=1,
        max_in_flight_bytes=1 << 20,
    )
    connection.receive_data(struct.pack(">i", len(frame)) + frame)
    request = connection.next_request()
    assert request is not None
    return request


def test_every_reader_belongs_to_an_advertised_version() -> None:
    assert set(READERS) <= set(ADVERTISED)


def read_by_kio(request: Request, judged: Judged) -> list[str]:
    entity = codec.decode_request(request.api_key, request.api_version, request.body)
    # Unknown tags are skipped.
    assert written(entity) == request.body or UNKNOWN_TAG in request.body.tobytes()
    return list(differences(entity, judged.body))


def read_produce(request: Request, judged: Judged) -> list[str]:
    body = judged.body
    topics = [
        produce.ProduceTopic(
            topic.get("name", ""),
            topic_id(topic),
            [produce.ProducePartition(each["index"], records(each)) for each in topic["partitionData"]],
        )
        for topic in body["topicData"]
    ]
    expected = produce.ProduceRequest(body.get("transactionalId"), body["acks"], body["timeoutMs"], topics)
    got = produce.decode_request(request.body, request.api_version)
    return [] if sized(got) == expected else [f"{got} is not {expected}"]


def records(partition: Mapping[str, Any]) -> Any:
    """Replace records by their size."""
    return partition.get("recordsSizeInBytes")


def sized(request: produce.ProduceRequest) -> produce.ProduceRequest:
    """Return the request with sizes in place of records."""
    for topic in request.topics:
        for partition in topic.partitions:
            partition.records = None if partition.records is None else cast(Any, len(partition.records))
    return request


def read_fetch(request: Request, judged: Judged) -> list[str]:
    body = judged.body
    topics = [
        fetch.FetchTopic(
            topic.get("topic", ""),
            topic_id(topic),
            [
                fetch.FetchPartition(
                    each["partition"],
                    each.get("currentLeaderEpoch", -1),
                    each["fetchOffset"],
                    each["partitionMaxBytes"],
                )
                for each in topic["partitions"]
            ],
        )
        for topic in body["topics"]
    ]
    limits = (body["maxWaitMs"], body["minBytes"], body["maxBytes"], body["isolationLevel"])
    session = (body.get("sessionId", 0), body.get("sessionEpoch", -1))
    forgotten = [
        (topic.get("topic", ""), topic_id(topic), index)
        for topic in body.get("forgottenTopicsData", ())
        for index in topic["partitions"]
    ]
    replica_id = (body | body.get("replicaState", {}))["replicaId"]
    expected = fetch.FetchRequest(replica_id, *limits, *session, topics, forgotten)
    got = fetch.decode_request(request.body, request.api_version)
    return [] if got == expected else [f"{got} is not {expected}"]


def topic_id(topic: Mapping[str, Any]) -> bytes:
    return urlsafe_b64decode(topic.get("topicId", "") + "==")


def read_by(decode: Callable[[memoryview, int], Any], request: Request, judged: Judged) -> list[str]:
    return list(differences(decode(request.body, request.api_version), judged.body))


READERS: dict[tuple[int, int], Callable[[Request, Judged], list[str]]] = {
    **{(0, version): read_produce for version in APIS[0].versions},
    **{(1, version): read_fetch for version in APIS[1].versions},
    (2, 0): partial(read_by, legacy.decode_list_offsets),
    (19, 0): partial(read_by, legacy.decode_create_topics),
    (19, 1): partial(read_by, legacy.decode_create_topics),
    (20, 0): partial(read_by, legacy.decode_delete_topics),
    (23, 0): partial(read_by, legacy.decode_offset_for_leader_epoch),
    (23, 1): partial(read_by, legacy.decode_offset_for_leader_epoch),
}
"""Readers of requests that kio's schemas do not cover."""
