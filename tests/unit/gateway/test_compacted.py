"""Topics with cleanup.policy=compact: they accept only records with keys, and refuse DeleteRecords."""

import struct
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from kafscale.records.batch import seal
from kafscale.records.codecs import Codec, compress
from kafscale.records.record import Record, build_batch
from tests.support.gateway.asking import produce, produce_body
from tests.support.gateway.exchanges import nested
from tests.support.gateway.harness import NOW_MS, Client, batch, running_gateway
from tests.support.strategies.records import message
from tests.unit.gateway.test_produce import legacy_message, legacy_produce_body

MANY = 600
"""A number of records that is checked in a thread."""


def keyed(*keys: bytes | None, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(place, NOW_MS, key, b"v") for place, key in enumerate(keys)]
    return build_batch(records, base_offset=0, codec=codec)


def refused(reply: Any) -> list[int]:
    """Return the record indexes that a refusal names."""
    assert (reply.error_code, reply.base_offset) == (ErrorCode.invalid_record, -1)
    assert "cannot accept message without key in topic partition t-0" in reply.error_message
    assert all("without key" in error.batch_index_error_message for error in reply.record_errors)
    return [error.batch_index for error in reply.record_errors]


@pytest.mark.parametrize("policy", ["compact", "delete,compact"])
@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [2, MANY])
async def test_a_batch_with_a_keyless_record_is_refused_as_a_whole(policy: str, codec: Codec, count: int) -> None:
    async with running_gateway() as harness:
        topic = await harness.topic(cleanup_policy=policy)
        client = await harness.connect()
        keys = [b"", *[b"k"] * count]
        assert (await produce(client, keyed(*keys, codec=codec))).error_code == 0
        assert refused(await produce(client, keyed(*keys, None, b"k", None, codec=codec))) == [count + 1, count + 3]
        assert harness.partition(topic).end == count + 1


async def test_a_changed_policy_applies_at_once() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        assert (await produce(client, batch(b"v"))).error_code == 0
        await harness.catalog.configure(topic.id, lambda _: {"cleanup.policy": "compact"})
        assert refused(await produce(client, batch(b"v"))) == [0]
        await harness.catalog.configure(topic.id, lambda _: {"cleanup.policy": ""})
        assert (await produce(client, batch(b"v"))).error_code == 0


async def test_the_clusters_policy_applies_to_topics_without_their_own() -> None:
    async with running_gateway(cleanup_policy="compact") as harness:
        await harness.topic()
        await harness.topic("own", cleanup_policy="delete")
        client = await harness.connect()
        assert refused(await produce(client, batch(b"v"))) == [0]
        assert (await produce(client, batch(b"v"), topic="own")).error_code == 0


@pytest.mark.parametrize("version", [3, 7])
async def test_versions_without_record_errors_get_the_code(version: int) -> None:
    async with running_gateway() as harness:
        await harness.topic(cleanup_policy="compact")
        reply = await produce(await harness.connect(), batch(b"v"), version=version)
        assert reply.error_code == ErrorCode.invalid_record


async def test_old_messages_without_a_key_are_refused() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic(cleanup_policy="compact")
        client = await harness.connect()
        for records, error in (
            (legacy_message(), ErrorCode.none),
            (message(b"v", magic=0), ErrorCode.invalid_record),
            (legacy_message() + message(compress(Codec.GZIP, message(b"v")), magic=1, attributes=Codec.GZIP), 87),
        ):
            reply = await client.call(0, 2, legacy_produce_body(records))
            assert reply[15:17] == struct.pack(">h", error)
        assert harness.partition(topic).end == 1


async def test_requests_keep_their_order_if_some_are_checked_in_a_thread() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic(cleanup_policy="compact")
        client = await harness.connect()
        for keys in ([b"a"] * MANY, [b"b"], [b"c"] * MANY, [b"d"]):
            await client.send(0, 9, produce_body({("t", 0): keyed(*keys)}))
        for _ in range(4):
            await client.receive()
        sizes = [following - base for base, following, _ in harness.partition(topic).batches]
        assert sizes == [MANY, 1, MANY, 1]


async def test_unreadable_batches_get_a_final_error() -> None:
    async with running_gateway(upconvert_bytes=1 << 20) as harness:
        await harness.topic(cleanup_policy="compact")
        client = await harness.connect()
        bomb = build_batch([Record(0, NOW_MS, b"k", bytes(2 << 20))], base_offset=0, codec=Codec.ZSTD)
        assert (await produce(client, bomb)).error_code == ErrorCode.invalid_record
        damaged = bytearray(keyed(b"k"))
        damaged[61] = 0x7E
        seal(damaged)
        reply = await produce(client, bytes(damaged))
        assert (reply.error_code, reply.record_errors) == (ErrorCode.invalid_record, ())


async def test_the_number_of_record_errors_in_a_reply_is_limited() -> None:
    async with running_gateway() as harness:
        await harness.topic(partitions=2, cleanup_policy="compact")
        reply = await produce(await harness.connect(), batch(*[b"v"] * 1500))
        assert refused(reply) == list(range(1000))
        assert "1500 of 1500 records" in reply.error_message


async def deleted(client: Client, *offsets: int, topic: str = "t", seconds: int = 5) -> list[tuple[int, int]]:
    """Delete records of partitions from 0 on. Return error and log start of each."""
    partitions = tuple(
        nested(21, 1, "DeleteRecordsPartition")(partition_index=index, offset=offset)
        for index, offset in enumerate(offsets)
    )
    requested = nested(21, 1, "DeleteRecordsTopic")(name=topic, partitions=partitions)
    reply = await client.ask(21, 1, topics=(requested,), timeout=timedelta(seconds=seconds))
    return [(each.error_code, each.low_watermark) for each in reply.topics[0].partitions]


@pytest.mark.parametrize("policy", ["compact", ""])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 9])
@pytest.mark.parametrize("seconds", [0, 5])
async def test_records_are_not_deleted_unless_the_policy_has_delete(policy: str, offset: int, seconds: int) -> None:
    async with running_gateway() as harness:
        topic = await harness.topic(partitions=2, cleanup_policy=policy)
        client = await harness.connect()
        assert (await produce(client, keyed(b"k", b"k"))).error_code == 0
        refusals = [(ErrorCode.policy_violation, -1)] * 2 + [(ErrorCode.unknown_topic_or_partition, -1)]
        assert await deleted(client, offset, offset, offset, seconds=seconds) == refusals
        assert harness.partition(topic).log_start == 0
        await harness.catalog.configure(topic.id, lambda _: {"cleanup.policy": "compact,delete"})
        assert await deleted(client, 1) == [(ErrorCode.none, 1)]


async def test_the_clusters_policy_decides_about_deletes_in_topics_without_their_own() -> None:
    async with running_gateway(cleanup_policy="compact") as harness:
        await harness.topic()
        await harness.topic("own", cleanup_policy="delete")
        client = await harness.connect()
        assert (await produce(client, keyed(b"k"))).error_code == 0
        assert (await produce(client, keyed(b"k"), topic="own")).error_code == 0
        assert await deleted(client, -1) == [(ErrorCode.policy_violation, -1)]
        assert await deleted(client, -1, topic="own") == [(ErrorCode.none, 1)]
