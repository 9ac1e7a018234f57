"""Calls to the Admin service of gateways, on behalf of the users of the console."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

import grpc
import trio
from google.protobuf.message import Message

from kafscale.errors import Unavailable
from kafscale.rpc.admin import serving_gateway
from kafscale.rpc.client import Channel
from kafscale.rpc.errors import StatusError
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.methods import Method
from kafscale.rpc.tls import RpcTls

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
_STATUS = grpc.StatusCode
# Another gateway may answer. A call that takes too long would take as long there.
_SILENCES = (_STATUS.UNAVAILABLE, _STATUS.CANCELLED)


class Gateways:
    """Calls the first of ``addresses`` that serves, and the same one while it does.

    ``timeout`` is that of a call in seconds. All methods raise Unavailable if no gateway answers, and StatusError for
    refused requests. ``token`` is what they present to the gateway; empty: nothing.
    """

    def __init__(self, addresses: Sequence[str], limits: RpcLimits, tls: RpcTls | None, *, timeout: float) -> None:
        self._addresses = addresses
        self._limits = limits
        self._tls = tls
        self._timeout = timeout
        self._channel: Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._channel is not None:
            await self._channel.aclose()

    async def read(self, method: Method[Q, A], request: Q, token: str) -> A:
        """Call a method that changes nothing. If its gateway is gone, another one is asked."""
        try:
            return await self._call(method, request, token)
        except StatusError as error:
            if error.code not in _SILENCES:
                raise
        return await self._call(method, request, token)

    async def change(self, method: Method[Q, A], request: Q, token: str) -> A:
        """Call a method once. If no gateway answers, the change may have been made."""
        return await self._call(method, request, token)

    async def begin(self, method: Method[Q, A], request: Q, token: str) -> A:
        """Return the first reply of a method whose work continues without the caller."""
        with trio.move_on_after(self._timeout):
            async with self.stream(method, request, token) as replies:
                return await replies.receive()
        raise Unavailable(f"no answer within {self._timeout:g} s")

    @asynccontextmanager
    async def stream(self, method: Method[Q, A], request: Q, token: str) -> AsyncIterator[MessageStream[A]]:
        channel = await self._serving()
        try:
            async with channel.stream(method, request, metadata=_metadata(token)) as messages:
                yield messages
        except StatusError as error:
            await self._lost(channel, error)
            raise

    async def _call(self, method: Method[Q, A], request: Q, token: str) -> A:
        channel = await self._serving()
        try:
            return await channel.call(method, request, timeout=self._timeout, metadata=_metadata(token))
        except StatusError as error:
            await self._lost(channel, error)
            raise

    async def _serving(self) -> Channel:
        if self._channel is None:
            address = await serving_gateway(self._addresses, self._connect, timeout=self._timeout)
            # Another task may have connected meanwhile.
            if self._channel is None:
                self._channel = self._connect(address)
        return self._channel

    async def _lost(self, channel: Channel, error: StatusError) -> None:
        if error.code in _SILENCES and self._channel is channel:
            self._channel = None
            await channel.aclose()

    def _connect(self, address: str) -> Channel:
        return Channel(address, self._limits, tls=self._tls, error_of=StatusError)


def as_unavailable(error: Exception) -> bool:
    """Whether no gateway has answered, so that a later attempt may succeed."""
    return isinstance(error, Unavailable) or (isinstance(error, StatusError) and error.code in _SILENCES)


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()
