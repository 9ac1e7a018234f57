"""Topics with the cleanup policy compact keep the last record of each key, and accept only records with keys."""

import time
from typing import Any

import pytest
import trio
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType
from confluent_kafka.admin._resource import ResourceType

from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch
from tests.support.clients.compaction import compacted_log
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import (
    INVALID_CONFIG,
    INVALID_RECORD,
    Client,
    ClientError,
    Message,
    Received,
)
from tests.support.configs import changed, described
from tests.support.gateway.asking import produce
from tests.support.gateway.harness import Client as Wire
from tests.support.members import eventually
from tests.support.wire import gateways_partitions

FIRST_MESSAGE_VERSION = 8


@pytest.fixture
def compacted(bootstrap: str, topic: str) -> str:
    """A new topic with one partition."""
    name = f"{topic}-compacted"
    ConfluentClient(bootstrap).create_topic(name, configs={"cleanup.policy": "compact"})
    # A Kafka broker may learn about a new topic after the controller has answered.
    eventually(lambda: gateways_partitions(bootstrap, name) == {1})
    return name


def produced(bootstrap: str, topic: str, records: bytes, version: int) -> Any:
    """Produce ``records`` and return the partition's part of the reply."""

    async def ask() -> Any:
        host, port = bootstrap.split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            return await produce(Wire(stream), records, topic=topic, version=version)

    return trio.run(ask)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_with_records_without_keys_is_refused_and_the_reply_lists_them(
    bootstrap: str, compacted: str, codec: Codec
) -> None:
    now = int(time.time() * 1000)
    keys = [b"k", None, b"", None]
    mixed = build_batch([Record(place, now, key, b"v") for place, key in enumerate(keys)], base_offset=0, codec=codec)
    reply = produced(bootstrap, compacted, mixed, FIRST_MESSAGE_VERSION)
    assert (reply.error_code, reply.base_offset) == (INVALID_RECORD, -1)
    message = f"Compacted topic cannot accept message without key in topic partition {compacted}-0"
    errors = [(error.batch_index, error.batch_index_error_message) for error in reply.record_errors]
    assert errors == [(1, message), (3, message)]
    assert message in reply.error_message
    assert produced(bootstrap, compacted, mixed, FIRST_MESSAGE_VERSION - 1).error_code == INVALID_RECORD
    keyed = build_batch([Record(0, now, b"", b"v"), Record(1, now, b"k", None)], base_offset=0, codec=codec)
    assert produced(bootstrap, compacted, keyed, FIRST_MESSAGE_VERSION).error_code == 0
    assert ConfluentClient(bootstrap).offsets(compacted) == (0, 2)


def test_clients_report_that_a_record_needs_a_key(client: Client, compacted: str) -> None:
    client.produce(compacted, [Message(b"v", key=b"k")])
    with pytest.raises(ClientError) as refused:
        client.produce(compacted, [Message(b"v")])
    assert refused.value.code in (INVALID_RECORD, -1)
    assert client.offsets(compacted) == (0, 1)


def test_a_cleanup_policy_is_described_exactly_as_it_was_set(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for operation, value, shown in (
        (AlterConfigOpType.APPEND, "compact", "delete,compact"),
        (AlterConfigOpType.SUBTRACT, "delete", "compact"),
        (AlterConfigOpType.SUBTRACT, "compact", ""),
        (AlterConfigOpType.SET, "compact, delete", "compact,delete"),
        (AlterConfigOpType.DELETE, None, "delete"),
    ):
        changed(admin, topic, ("cleanup.policy", operation, value))
        assert described(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == shown
    with pytest.raises(ClientError) as refused:
        ConfluentClient(bootstrap).create_topic(f"{topic}-odd", configs={"cleanup.policy": "compact,"})
    assert refused.value.code == INVALID_CONFIG


@pytest.fixture(scope="session")
def left(bootstrap: str) -> list[Received]:
    """The records that are left in the topic ``compacted-log``."""
    return compacted_log(bootstrap, "compacted-log")


def test_a_client_reads_what_compaction_left(client: Client, left: list[Received]) -> None:
    assert client.consume("compacted-log", count=4)[:3] == left[:3]
    for offset in (1, 4, 11):
        expected = [one for one in left[:3] if one.offset >= offset]
        assert client.consume("compacted-log", count=len(expected), offset=offset) == expected
