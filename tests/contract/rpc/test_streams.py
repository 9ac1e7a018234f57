"""Streams of replies, on every transport."""

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from kafscale.errors import ConfigError, CorruptData, KafscaleError, Refused, Unavailable
from kafscale.records.errors import CorruptBatch
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.storage_pb2 import CommitsEvent, CommitsRequest, FetchRequest
from tests.support.carrier import TIMEOUT, Carrier, Send, number_of, numbered

LARGE = "x" * 64 * 1024
MOST_UNREAD = 200
"""Messages of 64 KiB that may be under way: in the channel and in gRPC (some MB)."""


async def test_messages_arrive_in_order_and_the_end_is_unavailable_forever(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    async def count(request: CommitsRequest, send: Send) -> None:
        for number in range(int(request.stream_id)):
            await send(numbered(number))

    carrier.streaming = count
    async with storage.commits(CommitsRequest(stream_id="100")) as stream:
        assert [number_of(await stream.receive()) for _ in range(100)] == list(range(100))
        for _ in range(2):
            with pytest.raises(Unavailable, match="the stream ended"):
                await stream.receive()


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (Unavailable("not now"), Unavailable),
        (CorruptBatch("bad"), CorruptData),
        (Refused("no"), Refused),
        (ConfigError("wrong"), ConfigError),
        (KafscaleError("of no kind"), KafscaleError),
    ],
)
async def test_an_error_of_the_service_arrives_after_earlier_messages(
    storage: SegmentStorageClient, carrier: Carrier, raised: KafscaleError, kind: type[KafscaleError]
) -> None:
    async def fail(_: CommitsRequest, send: Send) -> None:
        for number in range(5):
            await send(numbered(number))
        raise raised

    carrier.streaming = fail
    async with storage.commits(CommitsRequest()) as stream:
        # Give the error time to overtake the messages.
        await trio.testing.wait_all_tasks_blocked()
        await storage.fetch(FetchRequest(), timeout=TIMEOUT)
        assert [number_of(await stream.receive()) for _ in range(5)] == list(range(5))
        for _ in range(2):
            with pytest.raises(KafscaleError) as caught:
                await stream.receive()
            assert (type(caught.value), str(caught.value)) == (kind, str(raised))


async def test_an_unexpected_exception_is_unavailable_to_the_reader_and_logged(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    defect = ZeroDivisionError("what only the log may say")

    async def fail(_: CommitsRequest, send: Send) -> None:
        await send(numbered(0))
        raise defect

    carrier.streaming = fail
    with capture_logs() as logs:
        async with storage.commits(CommitsRequest()) as stream:
            await stream.receive()
            with pytest.raises(Unavailable, match="ZeroDivisionError"):
                await stream.receive()
    assert [(entry["log_level"], entry["exc_info"]) for entry in logs] == [("error", defect)]


async def test_leaving_a_stream_cancels_it_at_the_service(storage: SegmentStorageClient, carrier: Carrier) -> None:
    with trio.fail_after(TIMEOUT):
        async with storage.commits(CommitsRequest()) as stream:
            assert (await stream.receive()).ready
            await carrier.entered.wait()
            assert not carrier.cancelled.is_set()
        await carrier.cancelled.wait()


async def test_a_cancelled_reader_cancels_the_stream_at_the_service(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    async def follow() -> None:
        async with storage.commits(CommitsRequest()) as stream:
            while True:
                await stream.receive()

    with trio.fail_after(TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await carrier.entered.wait()
            nursery.cancel_scope.cancel()
        await carrier.cancelled.wait()


async def test_an_error_of_the_reader_is_raised_unchanged(storage: SegmentStorageClient, carrier: Carrier) -> None:
    class OwnError(Exception):
        pass

    async def follow() -> None:
        async with storage.commits(CommitsRequest()) as stream:
            await stream.receive()
            raise OwnError

    with pytest.raises(OwnError):
        await follow()
    with trio.fail_after(TIMEOUT):
        await carrier.cancelled.wait()


async def test_a_cancelled_receive_loses_no_message(storage: SegmentStorageClient, carrier: Carrier) -> None:
    go_on = trio.Event()

    async def pause(_: CommitsRequest, send: Send) -> None:
        await send(numbered(0))
        await go_on.wait()
        for number in range(1, 10):
            await send(numbered(number))

    carrier.streaming = pause
    async with storage.commits(CommitsRequest()) as stream:
        assert number_of(await stream.receive()) == 0
        with trio.move_on_after(0.05) as impatience:
            await stream.receive()
        assert impatience.cancelled_caught
        go_on.set()
        assert [number_of(await stream.receive()) for _ in range(9)] == list(range(1, 10))


async def test_the_service_waits_for_a_slow_reader_and_buffers_stay_small(
    storage: SegmentStorageClient, carrier: Carrier
) -> None:
    messages, sent = 1500, 0

    async def pour(_: CommitsRequest, send: Send) -> None:
        nonlocal sent
        for number in range(messages):
            await send(numbered(number, LARGE))
            sent += 1

    carrier.streaming = pour
    most_unread = 0
    async with storage.commits(CommitsRequest()) as stream:
        for number in range(messages):
            if number % 10 == 0:
                # The sender can run ahead until it waits, or while this call is at the service.
                await trio.testing.wait_all_tasks_blocked()
                await storage.fetch(FetchRequest(), timeout=TIMEOUT)
            assert number_of(await stream.receive()) == number
            most_unread = max(most_unread, sent - number - 1)
    assert 0 < most_unread < MOST_UNREAD


async def test_streams_do_not_block_calls_or_each_other(storage: SegmentStorageClient, carrier: Carrier) -> None:
    async def pour(request: CommitsRequest, send: Send) -> None:
        if request.stream_id == "read":
            await send(CommitsEvent(ready=True))
        while request.stream_id == "unread":
            await send(numbered(0, LARGE))

    carrier.streaming = pour
    async with storage.commits(CommitsRequest(stream_id="unread")) as unread:
        await unread.receive()
        for _ in range(20):
            async with storage.commits(CommitsRequest(stream_id="read")) as stream:
                assert (await stream.receive()).ready
            await storage.fetch(FetchRequest(max_bytes=100_000), timeout=TIMEOUT)
