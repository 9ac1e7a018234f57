"""The send buffer of a stream: a Trio task adds messages, and the asyncio thread writes them in order.

The threads wake each other as rarely as possible: the writer continues while messages are queued, and frees several
slots at a time.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import grpc.aio
import trio

from kafscale.errors import Unavailable
from kafscale.rpc.bridge import asyncio_loop


class Outgoing:
    """A buffer of at most ``limit`` messages, including the one that is being written. Created in Trio.

    If a message cannot be encoded or written, the scope ``sender`` is cancelled, because no other message may follow,
    and `check` raises the reason.
    """

    def __init__(self, context: "grpc.aio.ServicerContext[bytes, bytes]", limit: int) -> None:
        self._context = context
        self._limit = limit
        self._token = trio.lowlevel.current_trio_token()
        # Used by Trio.
        self.sender = trio.CancelScope()
        self._slots = trio.Semaphore(limit)
        # Used by the asyncio thread.
        self._waiting: deque[bytes] = deque()
        self._written = 0
        self._writer: asyncio.Task[None] | None = None
        self._broken = False
        # Set by either thread, once.
        self._failure: Exception | None = None

    async def send(self, encoded: Callable[[], bytes]) -> None:
        """Wait for a free slot and queue the message. If this is cancelled, the message is not sent."""
        await self._slots.acquire()
        try:
            data = encoded()
        except Exception as error:  # noqa: BLE001  raised by `check`, because the sender cannot handle it
            self._failure = error
            self._slots.release()
            self.sender.cancel()
            await trio.lowlevel.checkpoint()
            return
        asyncio_loop().call_soon_threadsafe(self._write, data)

    async def flushed(self) -> None:
        """Wait until all messages are written, or writing has failed. After that, nothing more can be sent."""
        for _ in range(self._limit):
            await self._slots.acquire()

    def check(self) -> None:
        """Raise the error if a message could not be encoded, or Unavailable if one could not be written."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop writing."""
        asyncio_loop().call_soon_threadsafe(self._end)

    def _write(self, data: bytes) -> None:
        if not self._broken:
            self._waiting.append(data)
            if self._writer is None:
                self._writer = asyncio_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._context.write(self._waiting.popleft())
                self._written += 1
                if self._written * 2 >= self._limit or not self._waiting:
                    self._run_in_trio(partial(self._free_slots, self._written))
                    self._written = 0
        except Exception as error:  # noqa: BLE001  after any error, no further message may be written
            self._broken = True
            self._failure = Unavailable("the reader of the stream is gone")
            self._failure.__cause__ = error
            self._run_in_trio(self._cancel_sender)
        finally:
            self._writer = None

    def _run_in_trio(self, function: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function)

    def _free_slots(self, count: int) -> None:
        for _ in range(count):
            self._slots.release()

    def _cancel_sender(self) -> None:
        self.sender.cancel()
        # So that `flushed` does not wait for messages that will not be written.
        self._free_slots(self._limit)

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
