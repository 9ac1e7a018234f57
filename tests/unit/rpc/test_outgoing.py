"""A stream's messages on their way from Trio to the asyncio thread, with a substitute for gRPC's context."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
import trio
import trio.testing

from kafscale.errors import Refused, Unavailable
from kafscale.rpc.bridge import asyncio_loop
from kafscale.rpc.outgoing import Outgoing


class Reader:
    """Accepts this many messages, and then none until a test allows more. ``error``: raised by the next write."""

    def __init__(self, takes: int) -> None:
        self.taken: list[bytes] = []
        self.error: Exception | None = None
        self.asked = self.given_up = False
        self._room = asyncio.Semaphore(takes)

    async def write(self, data: bytes) -> None:
        self.asked = True
        try:
            await self._room.acquire()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        if self.error is not None:
            raise self.error
        self.taken.append(data)

    def has(self, count: int) -> bool:
        return len(self.taken) == count

    def take(self, count: int) -> None:
        for _ in range(count):
            asyncio_loop().call_soon_threadsafe(self._room.release)


@asynccontextmanager
async def _outgoing(reader: Reader, most: int) -> AsyncIterator[Outgoing]:
    outgoing = Outgoing(cast(Any, reader), most)
    try:
        yield outgoing
    finally:
        outgoing.close()


async def _eventually(true: Callable[[], bool]) -> None:
    """Wait until a condition holds, which another thread brings about."""
    with trio.fail_after(5):
        while not true():  # noqa: ASYNC110  another thread makes it true
            await trio.sleep(0.001)


@pytest.mark.parametrize("most", [1, 2, 3, 16])
async def test_messages_are_written_in_order_and_at_most_the_allowed_number_is_encoded(most: int) -> None:
    reader, made = Reader(0), list[bytes]()

    def encoded(number: int) -> bytes:
        made.append(b"%d" % number)
        return made[-1]

    async def give(outgoing: Outgoing) -> None:
        for number in range(40):
            await outgoing.send(partial(encoded, number))
        await outgoing.flushed()

    async with _outgoing(reader, most) as outgoing, trio.open_nursery() as nursery:
        nursery.start_soon(give, outgoing)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(made) == most
        while len(reader.taken) < 40:
            wanted = len(reader.taken) + 1
            reader.take(1)
            await _eventually(partial(reader.has, wanted))
            assert len(made) <= len(reader.taken) + most
    assert reader.taken == made == [b"%d" % number for number in range(40)]
    outgoing.check()


async def test_a_failed_write_cancels_the_sender_and_ends_the_stream() -> None:
    """The sender is cancelled wherever it waits, because it may have nothing to send for hours."""
    reader = Reader(1)
    async with _outgoing(reader, 4) as outgoing:
        with trio.fail_after(5), outgoing.sender:
            await outgoing.send(lambda: b"1")
            await _eventually(lambda: reader.taken == [b"1"])
            reader.error = ConnectionResetError("gone")
            await outgoing.send(lambda: b"2")
            await outgoing.send(lambda: b"3")
            reader.take(8)
            await trio.sleep_forever()
        assert outgoing.sender.cancelled_caught
        await outgoing.flushed()
        reader.error = None
        await outgoing.send(lambda: b"4")
        with pytest.raises(Unavailable, match="the reader of the stream is gone"):
            outgoing.check()
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert reader.taken == [b"1"]


async def test_a_message_that_cannot_be_encoded_ends_the_stream_with_its_error() -> None:
    """The error is not raised in the sender, which could mistake it for one of its own."""
    reader = Reader(8)

    def too_large() -> bytes:
        raise Refused("reply of 9 bytes")

    async with _outgoing(reader, 1) as outgoing:
        with trio.fail_after(5), outgoing.sender:
            await outgoing.send(lambda: b"1")
            try:
                await outgoing.send(too_large)
            except Refused:
                pytest.fail("the giver sees it")
            await outgoing.send(lambda: b"2")
        with trio.fail_after(5):
            await outgoing.flushed()
        assert reader.taken == [b"1"]
        with pytest.raises(Refused, match="9 bytes"):
            outgoing.check()


async def test_a_cancelled_send_is_not_written() -> None:
    reader = Reader(0)
    async with _outgoing(reader, 1) as outgoing:
        await outgoing.send(lambda: b"1")
        with trio.move_on_after(0.05) as given_up:
            await outgoing.send(lambda: b"2")
        assert given_up.cancelled_caught
        reader.take(8)
        await outgoing.send(lambda: b"3")
        await outgoing.flushed()
    assert reader.taken == [b"1", b"3"]


async def test_a_closed_stream_writes_no_more() -> None:
    reader = Reader(0)
    async with _outgoing(reader, 4) as outgoing:
        for number in range(3):
            await outgoing.send(partial(bytes, number))
        await _eventually(lambda: reader.asked)
    await _eventually(lambda: reader.given_up)
    reader.take(8)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert reader.taken == []
