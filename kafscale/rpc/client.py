"""The gRPC client on Trio.

Unary calls are futures of the threaded stack, which wakes the Trio task from the channel's thread. Streams are read
with grpc.aio in the asyncio thread, one message per request of the reader. Messages that the reader does not request
stay with the sender, except for those in gRPC's flow-control window.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio
import structlog
import trio
from google.protobuf.message import DecodeError, Message

from kafscale.errors import ConfigError, CorruptData, Refused
from kafscale.rpc.bridge import asyncio_loop, finished, in_asyncio, result_of
from kafscale.rpc.counters import CallCounters
from kafscale.rpc.errors import error_of
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.methods import Method
from kafscale.rpc.tls import RpcTls, channel_credentials
from kafscale.tracing import CURRENT, HEADER

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
Metadata = tuple[tuple[str, str], ...]
ErrorOf = Callable[[grpc.StatusCode, str], Exception]
_Failure = Callable[[grpc.StatusCode, str | None], Exception]

_EOF: Any = vars(grpc.aio)["EOF"]  # not in its stubs
_WATCH = "/grpc.health.v1.Health/Watch"
_WATCH_PAUSE = 60.0
"""Seconds until a watch that has failed is begun again."""
_FREQUENT_SECONDS = 0.05
_MOST_FORMER = 4
"""How many replaced channels are kept for the calls that are in flight on them."""
_log = structlog.get_logger(__name__)

_CANCELLED = (grpc.StatusCode.CANCELLED, "the call was cancelled")


class Channel:
    """A channel to one peer at ``target``, a ``host:port``. It connects on demand, and reconnects if necessary.

    A call without a connection fails immediately, or when the current attempt to connect fails. If the files of ``tls``
    have changed by then, later calls use them. Calls in flight stay on their connection, which is closed when the files
    have changed four more times. ``error_of`` converts a status to an exception; peers that are not
    KafScale services use their own codes. ``counters`` count all calls except streams, and may be shared by several
    channels. ``traced``: calls pass on the current span.
    """

    def __init__(
        self,
        target: str,
        limits: RpcLimits | None = None,
        *,
        tls: RpcTls | None = None,
        error_of: ErrorOf = error_of,
        counters: CallCounters | None = None,
        traced: bool = False,
    ) -> None:
        self._target = target
        self._limits = limits or RpcLimits()
        self._error_of = error_of
        self._counters = counters or CallCounters()
        self._traced = traced
        self._options = self._limits.client_options()
        if tls is not None and tls.server_name:
            self._options.append(("grpc.ssl_target_name_override", tls.server_name))
        self._tls = tls
        self._credentials = None if tls is None else channel_credentials(tls)
        self._calls = self._open(grpc)
        self._streams: grpc.aio.Channel | None = None
        # With certificates that have changed since. Calls may be in flight on them. The oldest is first.
        self._former: list[tuple[grpc.Channel, grpc.aio.Channel | None]] = []
        self._fault = ""
        self._closed = False
        self._stubs: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._watch: Any = None
        self._watch_from = self._last_call = -math.inf

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Disconnect. Calls in flight and later calls raise Unavailable."""
        self._closed = True
        with trio.CancelScope(shield=True):
            for channels in (*self._former, (self._calls, self._streams)):
                await in_asyncio(_closed(*channels))

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float, metadata: Metadata = ()) -> A:
        """Return the reply within ``timeout`` seconds. If the task is cancelled, the call is cancelled at the peer too.

        Raises the exception that ``error_of`` returns for the status, or Refused if the request is too large.
        """
        data = self._encoded(request)
        if self._traced and (place := CURRENT.get()):
            metadata = (*metadata, (HEADER, place))
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self._stubs[method.path] = self._calls.unary_unary(method.path)
        began, code = trio.current_time(), grpc.StatusCode.CANCELLED
        self._keep_thread(began)
        self._counters.began(method)
        try:
            deadline = None if timeout == math.inf else timeout
            reply = await result_of(stub.future(data, timeout=deadline, metadata=metadata))
            code = grpc.StatusCode.OK
        except grpc.FutureCancelledError:
            raise self._error_of(*_CANCELLED) from None
        except grpc.RpcError as error:
            code = error.code()
            if code == grpc.StatusCode.UNAVAILABLE:
                self._renew()
            raise self._failure(code, error.details(), timeout) from None
        finally:
            self._counters.ended(method, code, trio.current_time() - began)
        return _decoded(method, reply)

    def _keep_thread(self, now: float) -> None:
        """Keep gRPC's thread for replies from when calls are frequent.

        Otherwise it ends with the last call in flight, and another one is started for the next call. A watch of the
        peer's health is a call that does not end. Nobody reads it.
        """
        since, self._last_call = now - self._last_call, now
        if since < _FREQUENT_SECONDS and now >= self._watch_from and (self._watch is None or self._watch.done()):
            self._watch_from = now + _WATCH_PAUSE
            self._watch = self._calls.unary_stream(_WATCH)(b"")

    @asynccontextmanager
    async def stream(
        self, method: Method[Q, A], request: Q, *, metadata: Metadata = ()
    ) -> AsyncIterator[MessageStream[A]]:
        """Open the replies of a streaming method. Exiting cancels it at the peer too."""
        data = self._encoded(request)
        async with self._opened(lambda streams: streams.unary_stream(method.path)(data, metadata=metadata)) as call:
            yield _GrpcStream(call, method, self._failure)

    @asynccontextmanager
    async def exchange(self, method: Method[Q, A], *, metadata: Metadata = ()) -> AsyncIterator["Exchange[Q, A]"]:
        """Open a bidirectional stream. etcd has such methods, KafScale's services do not."""
        async with self._opened(lambda streams: streams.stream_stream(method.path)(metadata=metadata)) as call:
            yield Exchange(call, method, self._failure, self._encoded)

    @asynccontextmanager
    async def _opened(self, start: Callable[[Any], Any]) -> AsyncIterator[Any]:
        """Yield the grpc.aio call that ``start`` begins on the channel, and cancel it on exit."""

        async def open_call() -> Any:
            if self._streams is None:
                self._streams = self._open(grpc.aio)
            return start(self._streams)

        self._check_open()
        self._renew()
        # Opening does not block, and the opened call must not leak.
        with trio.CancelScope(shield=True):
            call = await in_asyncio(open_call())
        try:
            yield call
        finally:
            asyncio_loop().call_soon_threadsafe(call.cancel)

    def _renew(self) -> None:
        """Use certificates that have changed for later calls."""
        if self._tls is None:
            return
        try:
            credentials = channel_credentials(self._tls)
        except ConfigError as error:
            if str(error) != self._fault:
                _log.error("certificate for calls not changed", peer=self._target, error=str(error))
            self._fault = str(error)
            return
        self._fault = ""
        if credentials is self._credentials:
            return
        if self._watch is not None:
            # It would keep the former connection open.
            self._watch.cancel()
        self._former.append((self._calls, self._streams))
        if len(self._former) > _MOST_FORMER:
            asyncio.run_coroutine_threadsafe(_closed(*self._former.pop(0)), asyncio_loop())
        self._credentials, self._streams, self._watch = credentials, None, None
        self._calls = self._open(grpc)
        self._stubs.clear()

    def _open(self, stack: Any) -> Any:
        """Open a channel of ``stack``, one of gRPC's two stacks, which have the same functions."""
        if self._credentials is None:
            return stack.insecure_channel(self._target, options=self._options)
        return stack.secure_channel(self._target, self._credentials, options=self._options)

    def _encoded(self, request: Message) -> bytes:
        self._check_open()
        data = request.SerializeToString()
        limit = self._limits.max_message_bytes
        if len(data) > limit:
            raise Refused(f"request of {len(data)} bytes exceeds the maximum message size of {limit}")
        return data

    def _check_open(self) -> None:
        if self._closed:
            raise self._error_of(*_CANCELLED)

    def _failure(self, code: grpc.StatusCode, details: str | None, timeout: float = math.inf) -> Exception:
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            details = f"no answer within {timeout:g} s"
        return self._error_of(code, details or "")


async def _closed(calls: grpc.Channel, streams: grpc.aio.Channel | None) -> None:
    """Close the channels of one peer, in the asyncio thread."""
    if streams is not None:
        await streams.close(None)
    # close() waits until the calls that it cancels have ended.
    await asyncio.to_thread(calls.close)


class _GrpcStream(Generic[A]):
    def __init__(self, call: Any, method: Method[Any, A], failure: _Failure) -> None:
        self._call = call
        self._method = method
        self._failure = failure
        self._reading: Future[Any] | None = None
        self._ended: tuple[grpc.StatusCode, str | None] | None = None

    async def receive(self) -> A:
        if self._ended is None:
            if self._reading is None:
                self._reading = asyncio.run_coroutine_threadsafe(self._call.read(), asyncio_loop())
            # The read continues if this task is cancelled. The next call of receive() returns its message.
            await finished(self._reading, lambda: None)
            reading, self._reading = self._reading, None
            try:
                data = reading.result()
                if data is not _EOF:
                    return _decoded(self._method, data)
                self._ended = (grpc.StatusCode.UNAVAILABLE, "the stream ended")
            except CancelledError:
                self._ended = _CANCELLED
            except grpc.aio.AioRpcError as error:
                self._ended = (error.code(), error.details())
        raise self._failure(*self._ended)


class Exchange(_GrpcStream[A], Generic[Q, A]):
    """A bidirectional stream. One task may call `send` while another calls `receive` (see `MessageStream`)."""

    def __init__(self, call: Any, method: Method[Q, A], failure: _Failure, encoded: Callable[[Q], bytes]) -> None:
        super().__init__(call, method, failure)
        self._encode = encoded

    async def send(self, request: Q) -> None:
        """Send ``request``. Waits until gRPC has accepted it, which depends on how fast the peer reads.

        Raises Unavailable if the stream is closed; `receive` raises the reason. Cancellation closes the stream.
        """
        try:
            await in_asyncio(self._call.write(self._encode(request)))
        except (grpc.aio.AioRpcError, CancelledError, asyncio.InvalidStateError):
            raise self._failure(grpc.StatusCode.UNAVAILABLE, "the stream is closed") from None


def _decoded(method: Method[Any, A], data: bytes) -> A:
    try:
        return method.reply.FromString(data)
    except DecodeError as error:
        raise CorruptData(f"{method.path}: the reply is not a {method.reply.__name__}") from error
