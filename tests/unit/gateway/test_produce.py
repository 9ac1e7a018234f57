"""Produce: validation, and the replies for each acks setting."""

import struct
import zlib
from datetime import UTC, datetime
from typing import cast

import pytest
import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import Refused
from kafscale.records.batch import peek, seal, walk
from kafscale.records.codecs import Codec, compress
from kafscale.rpc.limits import LARGEST_PAYLOAD, RpcLimits
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import AppendReply, AppendRequest
from services.gateway.owners.errors import code_of
from tests.support.gateway.asking import produce, produce_body, produced
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import NOW_MS, batch, read_response, running_gateway
from tests.support.strategies.records import message

HOUR_MS = 3_600_000


async def test_every_batch_of_a_record_set_is_stored() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        records = batch(b"a", b"b") + batch(b"c") + batch(b"d", b"e", b"f")
        reply = await produce(await harness.connect(), records)
        assert (reply.error_code, reply.base_offset) == (0, 0)
        assert [(base, following) for base, following, _ in harness.partition(topic).batches] == [
            (0, 2),
            (2, 3),
            (3, 6),
        ]


async def test_several_batches_are_refused_if_one_is_idempotent() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        idempotent = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=0)
        for records in (batch(b"a") + idempotent, idempotent + batch(b"a"), idempotent + idempotent):
            assert (await produce(client, records)).error_code == ErrorCode.invalid_record
        reply = await produce(client, idempotent)
        assert (reply.error_code, reply.base_offset) == (0, 0)


async def test_a_batch_may_be_as_large_as_max_message_bytes_but_not_larger() -> None:
    records = batch(b"x" * 2000)
    async with running_gateway() as harness:
        await harness.topic("small", max_message_bytes=str(len(records) - 1))
        await harness.topic("exact", max_message_bytes=str(len(records)))
        client = await harness.connect()
        assert (await produce(client, records, topic="small")).error_code == ErrorCode.message_too_large
        assert (await produce(client, batch(b"y") + records, topic="small")).error_code == ErrorCode.message_too_large
        assert harness.storage.appends == []
        assert (await produce(client, records, topic="exact")).error_code == 0


async def test_a_record_set_larger_than_a_call_is_refused_alone() -> None:
    class Limited(FakeStorage):
        async def append(self, request: AppendRequest, *, timeout: float) -> AppendReply:
            if request.ByteSize() > RpcLimits().max_message_bytes:
                raise Refused("the request is too large")
            return await super().append(request, timeout=timeout)

    storage = Limited()
    storage.auto_commit = storage.keep_records = False
    async with running_gateway(storage) as harness:
        topic = await harness.topic("t", 2)
        held, large = await harness.connect(), await harness.connect()
        await held.send(0, 9, produce_body({("t", 0): batch(b"held")}, timeout_ms=30_000))
        await storage.wait_until(lambda: len(storage.appends) == 1)
        one = batch(b"x" * 900_000)
        fitting = one * (LARGEST_PAYLOAD // len(one))
        await large.send(0, 9, produce_body({("t", 1): fitting + one}, timeout_ms=30_000))
        assert (await produced(large)).error_code == ErrorCode.message_too_large
        await large.send(0, 9, produce_body({("t", 1): fitting}, acks=1, timeout_ms=30_000))
        assert (await produced(large)).error_code == 0
        storage.commit(storage.partition(PartitionRef(topic="t", topic_id=topic.id)))
        assert (await produced(held)).error_code == 0
        assert len(storage.opened) == 1


def broken_crc() -> bytes:
    records = bytearray(batch(b"abc"))
    records[-1] ^= 1
    return bytes(records)


def with_attributes(bits: int) -> bytes:
    records = bytearray(batch(b"abc"))
    records[22] |= bits
    seal(records)
    return bytes(records)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.invalid_record),
        (b"", ErrorCode.invalid_record),
        (b"\0" * 10, ErrorCode.corrupt_message),
        (broken_crc(), ErrorCode.corrupt_message),
        (batch(b"abc")[:-1], ErrorCode.corrupt_message),
        (batch(b"abc") + b"\0", ErrorCode.corrupt_message),
        (with_attributes(0x20), ErrorCode.invalid_record),
        (with_attributes(0x10), ErrorCode.invalid_record),
        (with_attributes(0x08), ErrorCode.invalid_timestamp),
        (with_attributes(0x07), ErrorCode.invalid_record),
        (batch(b"a", timestamp=NOW_MS + HOUR_MS + 1), ErrorCode.invalid_timestamp),
        (batch(b"a", timestamp=NOW_MS - 2001), ErrorCode.invalid_timestamp),
    ],
)
async def test_invalid_records_are_refused_before_they_reach_storage(records: bytes | None, error: ErrorCode) -> None:
    async with running_gateway() as harness:
        await harness.topic(message_timestamp_before_max_ms="2000")
        client = await harness.connect()
        reply = await produce(client, records)
        assert (reply.error_code, reply.base_offset) == (error, -1)
        assert reply.error_message
        assert harness.storage.appends == []
        assert (await produce(client, batch(b"a", timestamp=NOW_MS - 2000))).error_code == 0


async def test_any_timestamp_is_accepted_with_log_append_time() -> None:
    async with running_gateway() as harness:
        harness.storage.append_time_ms = 5_000
        await harness.topic(message_timestamp_type="LogAppendTime")
        reply = await produce(await harness.connect(), batch(b"a", timestamp=NOW_MS * 2))
        assert reply.error_code == 0
        assert reply.log_append_time.timestamp() == 5


@pytest.mark.parametrize(("version", "error"), [(6, ErrorCode.unsupported_compression_type), (7, 0)])
async def test_zstd_is_accepted_since_version_7(version: int, error: int) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        records = batch(b"a" * 100, codec_=Codec.ZSTD)
        assert (await produce(await harness.connect(), records, version=version)).error_code == error


@pytest.mark.parametrize("codec", Codec)
async def test_compressed_batches_pass_unchanged(codec: Codec) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        records = batch(b"a" * 100, codec_=codec)
        assert (await produce(await harness.connect(), records)).error_code == 0
        assert harness.storage.appends[0].appends[0].records == records


async def test_a_batch_with_a_producer_id_is_stored_unchanged() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        assert (await produce(await harness.connect(), records)).error_code == 0
        assert peek(harness.storage.appends[0].appends[0].records).producer_id == 7


async def test_an_invalid_partition_does_not_affect_the_others() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", 2)
        client = await harness.connect()
        body = produce_body(
            {("t", 0): broken_crc(), ("t", 1): batch(b"ok"), ("nope", 0): batch(b"x"), ("t", 9): batch()}
        )
        reply = read_response(0, 9, await client.call(0, 9, body))
        codes = [partition.error_code for topic in reply.responses for partition in topic.partition_responses]
        unknown = ErrorCode.unknown_topic_or_partition
        assert codes == [ErrorCode.corrupt_message, 0, unknown, unknown]


async def test_an_unknown_topic_id_gets_its_own_error() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        assert (await produce(client, batch(), version=13, topic_id=topic.id)).error_code == 0
        reply = await produce(client, batch(), version=13, topic_id=bytes(15) + b"\x01")
        assert reply.error_code == ErrorCode.unknown_topic_id


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_invalid_acks_are_refused(acks: int) -> None:
    async with running_gateway() as harness:
        await harness.topic()
        assert (
            await produce(await harness.connect(), batch(), acks=acks)
        ).error_code == ErrorCode.invalid_required_acks
        assert harness.storage.appends == []


async def test_transactions_are_refused_clearly() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        reply = await produce(await harness.connect(), batch(), transactional_id="tx")
        assert reply.error_code == ErrorCode.invalid_request
        assert "transactions" in reply.error_message


async def test_acks_1_is_answered_before_and_acks_all_after_the_commit() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic()
        client, other = await harness.connect(), await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a", b"b")}, acks=-1))
        assert (await produce(other, batch(b"c"), acks=1)).base_offset == 2
        assert [append.unacknowledged for message in harness.storage.appends for append in message.appends] == [
            False,
            True,
        ]
        harness.storage.commit(harness.partition(topic), 1)
        assert (await produce(other, batch(b"d"), acks=1)).base_offset == 3, "the first reply is still held"
        harness.storage.commit(harness.partition(topic), 2)
        reply = await produced(client)
        assert (reply.error_code, reply.base_offset) == (0, 0)


async def test_acks_1_waits_for_commits_when_storage_requests_it() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        harness.storage.hold_until = 5
        topic = await harness.topic()
        client, other = await harness.connect(), await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}, acks=1))
        await harness.storage.wait_until(lambda: len(harness.storage.appends) == 1)
        harness.storage.commit(harness.partition(topic), 4)
        harness.storage.hold_until = 0
        assert (await produce(other, batch(b"b"), acks=1)).error_code == 0
        harness.storage.commit(harness.partition(topic), 5)
        assert (await produced(client)).base_offset == 0


async def test_acks_1_is_answered_after_the_commit_if_that_takes_no_time() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        harness.storage.durable_soon = True
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}, acks=1))
        await harness.storage.wait_until(lambda: len(harness.storage.appends) == 1)
        with trio.move_on_after(0.1):
            await produced(client)
            pytest.fail("the record cannot be read yet")
        harness.storage.commit(harness.partition(topic), 1)
        assert (await produced(client)).base_offset == 0


async def test_all_producers_wait_for_segments_when_storage_requests_it() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        harness.storage.hold_until = 1
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}, acks=-1))
        await harness.storage.wait_until(lambda: len(harness.storage.appends) == 1)
        harness.storage.commit(harness.partition(topic), 1, in_memory=1)
        with trio.move_on_after(0.1):
            await produced(client)
            pytest.fail("the record is in memory only")
        harness.storage.commit(harness.partition(topic), 1)
        assert (await produced(client)).base_offset == 0


async def test_acks_0_gets_no_reply_and_keeps_its_order() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}, acks=0))
        assert (await client.ask(18, 0)).error_code == 0
        await harness.storage.wait_until(lambda: len(harness.storage.appends) == 1)
        assert harness.partition(topic).end == 1


async def test_a_failed_acks_0_request_closes_its_connection() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        await client.send(0, 9, produce_body({("t", 0): broken_crc()}, acks=0))
        assert await client.closed()


def legacy_message() -> bytes:
    payload = bytes.fromhex("0100 0000018bcfe56800 00000001 6b 0000000c 68656c6c6f20776f726c6421".replace(" ", ""))
    return bytes(8) + (len(payload) + 4).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload


def legacy_produce_body(records: bytes, acks: int = -1) -> bytes:
    return struct.pack(">hiih1siii", acks, 5000, 1, 1, b"t", 1, 0, len(records)) + records


async def test_old_messages_become_one_batch_of_magic_2_in_order() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(0, 2, legacy_produce_body(legacy_message() + legacy_message()))
        await client.send(0, 2, legacy_produce_body(legacy_message()))
        for _ in range(2):
            await client.receive()
        kept = harness.partition(topic).batches
        assert [(base, following) for base, following, _ in kept] == [(0, 2), (2, 3)]
        assert all(header.magic == 2 for _, _, records in kept for _, header in walk(records))


async def test_old_messages_over_max_message_bytes_are_refused() -> None:
    async with running_gateway() as harness:
        await harness.topic(max_message_bytes="50")
        reply = await (await harness.connect()).call(0, 2, legacy_produce_body(legacy_message()))
        assert reply[15:17] == struct.pack(">h", ErrorCode.message_too_large)
        assert harness.storage.appends == []


async def test_old_messages_with_too_much_decompressed_data_are_refused() -> None:
    inner = message(bytes(2 << 20))
    bomb = message(compress(Codec.GZIP, inner), magic=1, attributes=Codec.GZIP)
    for limit, error in ((3 << 20, ErrorCode.none), (1 << 20, ErrorCode.corrupt_message)):
        async with running_gateway(upconvert_bytes=limit) as harness:
            await harness.topic()
            reply = await (await harness.connect()).call(0, 2, legacy_produce_body(bomb))
            assert reply[15:17] == struct.pack(">h", error)


async def test_old_messages_are_refused_since_version_3() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        assert (
            await produce(await harness.connect(), legacy_message(), version=3)
        ).error_code == ErrorCode.invalid_record


async def test_damaged_old_messages_are_refused() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        damaged = legacy_message()[:-1] + b"?"
        reply = await client.call(0, 2, legacy_produce_body(damaged))
        assert reply[15:17] == struct.pack(">h", ErrorCode.corrupt_message)
        assert harness.storage.appends == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (common_pb2.NOT_OWNER, ErrorCode.not_leader_or_follower),
        (common_pb2.UNKNOWN_TOPIC, ErrorCode.unknown_topic_or_partition),
        (common_pb2.TOPIC_ID_MISMATCH, ErrorCode.unknown_topic_or_partition),
        (common_pb2.BUFFER_FULL, ErrorCode.not_enough_replicas),
        (common_pb2.DAMAGED, ErrorCode.kafka_storage_error),
        (common_pb2.UNAVAILABLE, ErrorCode.not_enough_replicas),
        (common_pb2.REFUSED_BEHIND, ErrorCode.not_enough_replicas),
        (common_pb2.TOO_LARGE, ErrorCode.message_too_large),
        (common_pb2.INVALID, ErrorCode.invalid_request),
    ],
)
async def test_refusals_of_storage_become_kafka_errors(status: common_pb2.Status, error: ErrorCode) -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        harness.storage.refuse[topic.id, 0] = [status]
        assert (await produce(await harness.connect(), batch())).error_code == error


async def test_the_reply_to_an_unknown_producer_has_the_log_start() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        harness.storage.refuse[topic.id, 0] = [common_pb2.UNKNOWN_PRODUCER]
        harness.storage.partition(PartitionRef(topic="t", topic_id=topic.id)).log_start = 7
        refused = await produce(client, batch())
        assert (refused.error_code, refused.log_start_offset) == (ErrorCode.unknown_producer_id, 7)
        harness.storage.refuse[topic.id, 0] = [common_pb2.INVALID]
        assert (await produce(client, batch())).log_start_offset == -1


async def test_a_timed_out_reply_has_the_offset_of_the_records() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic(message_timestamp_type="LogAppendTime")
        client = await harness.connect()
        assert (await produce(client, batch(b"a", b"b"))).base_offset == 0
        harness.partition(topic).log_start = 1
        harness.storage.auto_commit = False
        harness.storage.append_time_ms = NOW_MS
        late = await produce(client, batch(b"c"), acks=-1, timeout_ms=50)
        assert (late.error_code, late.error_message, late.record_errors) == (ErrorCode.request_timed_out, None, ())
        assert (late.base_offset, late.log_start_offset) == (2, 1)
        assert late.log_append_time == datetime.fromtimestamp(NOW_MS / 1000, UTC)


async def test_a_reply_for_lost_records_has_their_offset() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        harness.storage.auto_commit = False
        await client.send(0, 9, produce_body({("t", 0): batch(b"a")}))
        await harness.storage.wait_until(lambda: bool(harness.storage.appends))
        harness.storage.announce(harness.partition(topic), lost=True)
        lost = await produced(client)
        assert (lost.error_code, lost.base_offset) == (ErrorCode.not_enough_replicas_after_append, 0)


async def test_a_timed_out_reply_has_no_offset_if_storage_did_not_answer() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        harness.storage.gates[1] = trio.Event()
        late = await produce(client, batch(b"a"), acks=-1, timeout_ms=50)
        assert late.error_code == ErrorCode.request_timed_out
        assert (late.base_offset, late.log_start_offset) == (-1, -1)


def test_every_status_except_ok_has_a_kafka_error() -> None:
    for status in cast(list[common_pb2.Status], common_pb2.Status.values()):
        assert (code_of(status) == ErrorCode.none) == (status == common_pb2.OK)
        assert code_of(status) != ErrorCode.unknown_server_error


async def test_requests_of_a_connection_and_their_partitions_are_in_flight_together() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic("t", 3)
        client = await harness.connect()
        for index in range(3):
            await client.send(0, 9, produce_body({("t", index): batch(b"a")}))
        await client.send(0, 9, produce_body({("t", index): batch(b"b") for index in range(3)}))
        await harness.storage.wait_until(lambda: sum(len(message.appends) for message in harness.storage.appends) == 6)
        for index in range(3):
            harness.storage.commit(harness.partition(topic, index))
        with trio.fail_after(5):
            for index in range(3):
                assert (await produced(client)).index == index
            _, body = await client.receive()
        assert len(read_response(0, 9, body).responses) == 3
