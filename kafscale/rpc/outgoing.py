"""A stream's messages on their way out: a Trio task gives them, the asyncio thread writes one after the other.

The two threads wake each other no more than they must: who writes goes on with what is there, and who gives is told of
room for several at a time.
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
    """At most ``most`` messages wait to be written, the one that is being written among them. Made in Trio.

    ``giver`` is cancelled when a message cannot be encoded or written, and `check` says why: nothing may follow it.
    """

    def __init__(self, context: "grpc.aio.ServicerContext[bytes, bytes]", most: int) -> None:
        self._context = context
        self._most = most
        self._token = trio.lowlevel.current_trio_token()
        # Trio's.
        self.giver = trio.CancelScope()
        self._room = trio.Semaphore(most)
        # The asyncio thread's.
        self._waiting: deque[bytes] = deque()
        self._written = 0
        self._writer: asyncio.Task[None] | None = None
        self._broken = False
        # Set by either, once.
        self._failure: Exception | None = None

    async def send(self, encoded: Callable[[], bytes]) -> None:
        """Waits until there is room for the message; cancelled meanwhile, it is not sent."""
        await self._room.acquire()
        try:
            data = encoded()
        except Exception as error:  # noqa: BLE001  raised by `check`: it is not the giver's to handle
            self._failure = error
            self._room.release()
            self.giver.cancel()
            await trio.lowlevel.checkpoint()
            return
        asyncio_loop().call_soon_threadsafe(self._write, data)

    async def flushed(self) -> None:
        """Waits until all is written, or nothing more can be. Nothing can be sent any more."""
        for _ in range(self._most):
            await self._room.acquire()

    def check(self) -> None:
        """Raises what a message could not be encoded for, and Unavailable where one could not be written."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Write no more."""
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
                if self._written * 2 >= self._most or not self._waiting:
                    self._tell(partial(self._make_room, self._written))
                    self._written = 0
        except Exception as error:  # noqa: BLE001  whatever it is, nothing that follows may be written
            self._broken = True
            self._failure = Unavailable("the reader of the stream is gone")
            self._failure.__cause__ = error
            self._tell(self._end_giver)
        finally:
            self._writer = None

    def _tell(self, what: Callable[[], None]) -> None:
        """Trio, if it still runs."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(what)

    def _make_room(self, count: int) -> None:
        for _ in range(count):
            self._room.release()

    def _end_giver(self) -> None:
        self.giver.cancel()
        # Nobody waits for what will not be written.
        self._make_room(self._most)

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
