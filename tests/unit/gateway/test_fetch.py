"""Fetch: limits over all partitions, waiting without polling, and errors."""

from contextlib import suppress

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.records.batch import walk
from kafscale.records.codecs import Codec
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef
from tests.support.gateway.asking import fetch, fetch_body, parts, produce
from tests.support.gateway.harness import Client, Harness, batch, read_response, running_gateway

KIB = 1024


async def filled(harness: Harness, sizes: dict[int, list[int]], name: str = "t") -> Client:
    """Create a topic whose partitions have one-record batches of about these sizes. Return a client."""
    await harness.topic(name, max(sizes) + 1)
    client = await harness.connect()
    for partition, values in sizes.items():
        for size in values:
            assert (await produce(client, batch(b"x" * size), topic=name, partition=partition)).error_code == 0
    return client


async def waiting(harness: Harness, fetches: int = 1) -> None:
    """Wait until storage has received this many fetches and nothing else happens."""
    await harness.storage.wait_until(lambda: len(harness.storage.fetches) >= fetches)
    await wait_all_tasks_blocked(0.01)


def receive_later(harness: Harness, client: Client) -> list[bytes]:
    """Return a list that gets the next reply when it arrives."""
    replies: list[bytes] = []

    async def receive() -> None:
        with suppress(trio.ClosedResourceError):  # the test is over
            replies.append((await client.receive())[1])

    harness.nursery.start_soon(receive)
    return replies


def offsets(records: bytes) -> list[int]:
    return [header.base_offset for _, header in walk(records)]


async def test_a_reader_of_large_batches_reaches_the_end_with_any_limit() -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [20 * KIB] * 12})
        position, rounds = 0, 0
        while position < 12:
            (part,) = parts(await fetch(client, {("t", 0): position}, max_bytes=1 << 20, partition_max_bytes=30 * KIB))
            read = offsets(part.records)
            assert read[0] == position
            position = read[-1] + 1
            rounds += 1
        assert rounds == 12


async def test_a_batch_over_the_limit_is_returned_whole() -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [5000, 5000]})
        (part,) = parts(await fetch(client, {("t", 0): 0}, max_bytes=100, partition_max_bytes=10))
        assert offsets(part.records) == [0]
        assert part.records == next(iter(harness.storage.partitions.values())).batches[0][2]


@pytest.mark.parametrize("limit", [0, -1])
async def test_limits_of_zero_still_return_one_whole_batch(limit: int) -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [5000, 5000]})
        (part,) = parts(await fetch(client, {("t", 0): 0}, max_bytes=limit, partition_max_bytes=limit))
        assert offsets(part.records) == [0]


async def test_max_bytes_applies_to_all_partitions_together() -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [4000, 4000], 1: [4000, 4000], 2: [4000]})
        requested = {("t", index): 0 for index in range(3)}
        reply = parts(await fetch(client, requested, max_bytes=9000))
        assert [offsets(part.records) for part in reply] == [[0, 1], [], []]
        assert sum(len(part.records) for part in reply) <= 9000
        assert [part.high_watermark for part in reply] == [2, 2, 1]


async def test_the_servers_limit_overrides_the_clients() -> None:
    async with running_gateway(max_fetch_bytes=9000) as harness:
        client = await filled(harness, {0: [4000] * 5})
        (part,) = parts(await fetch(client, {("t", 0): 0}, max_bytes=1 << 30))
        assert offsets(part.records) == [0, 1]


async def test_partition_max_bytes_applies_per_partition() -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [4000] * 3, 1: [4000] * 3})
        reply = parts(await fetch(client, {("t", 0): 0, ("t", 1): 1}, partition_max_bytes=9000))
        assert [offsets(part.records) for part in reply] == [[0, 1], [1, 2]]


async def test_a_fetch_waits_for_min_bytes_of_all_partitions_together() -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [1000], 1: [1000]})
        producer = await harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0, ("t", 1): 0}, min_bytes=3500))
        await waiting(harness)
        await produce(producer, batch(b"y" * 1000), partition=1)
        await waiting(harness, 2)
        await produce(producer, batch(b"z" * 1000), partition=0)
        _, body = await client.receive()
        assert [offsets(part.records) for part in parts(read_response(1, 12, body))] == [[0, 1], [0, 1]]
        requested = [
            [(f.partition.partition, f.offset) for f in request.fetches] for request in harness.storage.fetches
        ]
        assert requested == [[(0, 0), (1, 0)], [(1, 1)], [(0, 1)]], (
            "only partitions with new records are read again, from where the last read ended"
        )


async def test_max_wait_ends_a_fetch_with_less_than_min_bytes(mock_clock: MockClock) -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [1000]})
        await client.send(1, 12, fetch_body({("t", 0): 0}, min_bytes=5000, max_wait_ms=700))
        await waiting(harness)
        replies = receive_later(harness, client)
        mock_clock.jump(0.69)
        await wait_all_tasks_blocked(0.02)
        assert replies == []
        mock_clock.jump(0.02)
        await wait_all_tasks_blocked(0.02)
        (part,) = parts(read_response(1, 12, replies[0]))
        assert (part.error_code, offsets(part.records)) == (0, [0])
        assert len(harness.storage.fetches) == 1


async def test_idle_partitions_wait_together_and_storage_gets_one_request(mock_clock: MockClock) -> None:
    async with running_gateway() as harness:
        await harness.topic("t", 50)
        client = await harness.connect()
        await client.send(1, 12, fetch_body({("t", index): 0 for index in range(50)}, max_wait_ms=1000))
        await waiting(harness)
        replies = receive_later(harness, client)
        for _ in range(9):
            mock_clock.jump(0.11)
            await wait_all_tasks_blocked(0.01)
        assert replies == []
        mock_clock.jump(0.02)
        await wait_all_tasks_blocked(0.02)
        assert [len(parts(read_response(1, 12, body))) for body in replies] == [50]
        assert len(harness.storage.fetches) == 1


async def test_a_commit_of_any_partition_wakes_a_waiting_fetch() -> None:
    async with running_gateway() as harness:
        await harness.topic("t", 50)
        client, producer = await harness.connect(), await harness.connect()
        await client.send(1, 12, fetch_body({("t", index): 0 for index in range(50)}, max_wait_ms=60_000))
        await waiting(harness)
        await produce(producer, batch(b"a"), partition=37)
        _, body = await client.receive()
        assert [index for index, part in enumerate(parts(read_response(1, 12, body))) if part.records] == [37]
        assert [len(request.fetches) for request in harness.storage.fetches] == [50, 1]


async def test_uncommitted_appends_do_not_wake_a_waiting_fetch() -> None:
    async with running_gateway() as harness:
        harness.storage.auto_commit = False
        topic = await harness.topic()
        client, producer = await harness.connect(), await harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await waiting(harness)
        assert (await produce(producer, batch(b"a"), acks=1)).error_code == 0
        await wait_all_tasks_blocked(0.01)
        assert len(harness.storage.fetches) == 1
        harness.storage.commit(harness.partition(topic))
        _, body = await client.receive()
        assert offsets(parts(read_response(1, 12, body))[0].records) == [0]


async def test_a_commit_between_the_read_and_the_wait_is_not_missed() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"a"))
        storage, partition = harness.storage, harness.partition(topic)
        partition.high_watermark = 0

        def commit_behind_the_reply() -> None:
            storage.on_fetched = None
            storage.commit(partition)

        storage.on_fetched = commit_behind_the_reply
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        _, body = await client.receive()
        assert offsets(parts(read_response(1, 12, body))[0].records) == [0]


async def test_a_waiting_fetch_survives_a_broken_commit_stream() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client, producer = await harness.connect(), await harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await waiting(harness)
        harness.storage.break_streams()
        await harness.storage.wait_until(lambda: len(harness.storage.opened) == 2)
        await waiting(harness, 2)
        assert [request.stream_id for request in harness.storage.fetches] == harness.storage.opened
        await produce(producer, batch(b"a"))
        _, body = await client.receive()
        assert offsets(parts(read_response(1, 12, body))[0].records) == [0]


async def test_a_fetch_does_not_wait_if_a_limit_holds_back_records() -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [3000], 1: [3000]})
        await client.send(
            1, 12, fetch_body({("t", 0): 0, ("t", 1): 0}, min_bytes=5000, max_bytes=5000, max_wait_ms=60_000)
        )
        _, body = await client.receive()
        first, second = parts(read_response(1, 12, body))
        assert (offsets(first.records), offsets(second.records)) == ([0], [])
        assert (first.high_watermark, second.high_watermark) == (1, 1), "the client sees that there are more records"


async def test_a_fetch_in_the_middle_of_a_batch_gets_that_batch() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"a", b"b", b"c"))
        await produce(client, batch(b"d"))
        (part,) = parts(await fetch(client, {("t", 0): 1}))
        assert offsets(part.records) == [0, 3]


async def test_an_error_in_one_partition_is_returned_at_once_with_the_others_records() -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [100]})
        reply = parts(
            await fetch(client, {("t", 0): 0, ("nope", 0): 0, ("t", 7): 0}, min_bytes=1 << 20, max_wait_ms=60_000)
        )
        unknown = ErrorCode.unknown_topic_or_partition
        assert [part.error_code for part in reply] == [0, unknown, unknown]
        assert offsets(reply[0].records) == [0]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (common_pb2.OFFSET_OUT_OF_RANGE, ErrorCode.offset_out_of_range),
        (common_pb2.NOT_OWNER, ErrorCode.not_leader_or_follower),
        (common_pb2.DAMAGED, ErrorCode.kafka_storage_error),
        (common_pb2.UNAVAILABLE, ErrorCode.kafka_storage_error),
    ],
)
async def test_statuses_of_storage_become_kafka_errors(status: common_pb2.Status, error: ErrorCode) -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        harness.storage.fetch_status[topic.id, 0] = status
        (part,) = parts(await fetch(await harness.connect(), {("t", 0): 0}))
        assert part.error_code == error


async def test_an_error_after_a_wait_has_no_old_high_watermark() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"a"))
        await produce(client, batch(b"b"))
        storage, partition = harness.storage, harness.partition(topic)
        partition.high_watermark = 1

        def cut_off_behind_the_reply() -> None:
            storage.on_fetched = None
            storage.fetch_status[topic.id, 0] = common_pb2.OFFSET_OUT_OF_RANGE
            storage.commit(partition)

        storage.on_fetched = cut_off_behind_the_reply
        await client.send(1, 12, fetch_body({("t", 0): 1}, max_wait_ms=60_000))
        _, body = await client.receive()
        (part,) = parts(read_response(1, 12, body))
        assert part.error_code == ErrorCode.offset_out_of_range
        assert part.high_watermark == -1


async def test_topics_are_named_by_id_from_version_13_on() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"a"))
        assert offsets(parts(await fetch(client, {("t", 0): 0}, version=13, topics={"t": topic}))[0].records) == [0]
        await harness.catalog.mark_deleting("t")
        (part,) = parts(await fetch(client, {("t", 0): 0}, version=13, topics={"t": topic}))
        assert part.error_code == ErrorCode.unknown_topic_id


@pytest.mark.parametrize(("isolation", "aborted"), [(0, None), (1, ())])
async def test_both_isolation_levels_read_all_committed_records(isolation: int, aborted: object) -> None:
    async with running_gateway() as harness:
        client = await filled(harness, {0: [100]})
        (part,) = parts(await fetch(client, {("t", 0): 0}, isolation_level=isolation))
        assert (part.last_stable_offset, part.aborted_transactions) == (1, aborted)


@pytest.mark.parametrize("version", [4, 9, 10])
async def test_zstd_batches_are_returned_in_every_version(version: int) -> None:
    async with running_gateway() as harness:
        await harness.topic(compression_type="zstd")
        client = await harness.connect()
        sent = batch(b"a" * 100, codec_=Codec.ZSTD)
        await produce(client, sent)
        (part,) = parts(await fetch(client, {("t", 0): 0}, version=version))
        assert (part.error_code, part.high_watermark, len(part.records)) == (0, 1, len(sent))


async def test_a_closed_connection_cancels_its_waiting_fetch() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        await waiting(harness)
        await client.stream.aclose()
        await wait_all_tasks_blocked(0.02)
        harness.storage.commit(harness.storage.partition(PartitionRef(topic="t", topic_id=topic.id)), 1)
        await wait_all_tasks_blocked(0.02)
        assert len(harness.storage.fetches) == 1


async def test_a_waiting_fetch_blocks_only_its_own_connection() -> None:
    async with running_gateway() as harness:
        await harness.topic()
        client, other = await harness.connect(), await harness.connect()
        first = await client.send(1, 12, fetch_body({("t", 0): 0}, max_wait_ms=60_000))
        second = await client.send(18, 0, b"")
        await waiting(harness)
        assert (await other.ask(18, 0)).error_code == 0
        await produce(other, batch(b"a"))
        with trio.fail_after(5):
            assert [(await client.receive())[0], (await client.receive())[0]] == [first, second]
