"""The transport of the one-process mode: calls a service object directly, with the semantics of a remote call."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

import trio
from google.protobuf.message import Message

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.bulk import Bulk
from kafscale.rpc.errors import as_received
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.methods import BoundService, Method

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
M = TypeVar("M", bound=Message)
_LIMITS = RpcLimits()


class Direct:
    """A `Peer` that calls a service object in the same process."""

    def __init__(self, service: BoundService) -> None:
        self._methods = service.methods

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        _, serve = self._methods[method.path]
        with trio.move_on_after(timeout):
            try:
                reply: A = await serve(request)
            except Exception as error:
                raise as_received(error, method.path) from error
            return reply
        raise Unavailable(f"no answer within {timeout:g} s")

    def stream(self, method: Method[Q, A], request: Q) -> AbstractAsyncContextManager[MessageStream[A]]:
        served, serve = self._methods[method.path]
        return _stream(serve, request, _LIMITS.large_messages if served.large else _LIMITS.stream_messages)


class _Received(Generic[A]):
    def __init__(self, messages: "trio.MemoryReceiveChannel[A]") -> None:
        self._messages = messages
        self.ended: KafscaleError = Unavailable("the stream ended")

    async def receive(self) -> A:
        try:
            return await self._messages.receive()
        except trio.EndOfChannel:
            raise self.ended from None


@asynccontextmanager
async def _stream(
    method: Callable[[Q, Callable[[M | Bulk[M]], Awaitable[None]]], Awaitable[None]], request: Q, buffered: int
) -> AsyncIterator[MessageStream[M]]:
    sender, receiver = trio.open_memory_channel[M](buffered)
    stream = _Received(receiver)

    async def send(message: M | Bulk[M]) -> None:
        await sender.send(message.whole() if isinstance(message, Bulk) else message)

    async def serve() -> None:
        async with sender:
            try:
                await method(request, send)
            except Exception as error:  # noqa: BLE001  raised by receive(), after the messages sent before
                stream.ended = as_received(error, repr(method))

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield stream
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # An error of the caller's body is raised unwrapped.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
