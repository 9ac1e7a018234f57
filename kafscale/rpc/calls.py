"""The two halves of each call to a server: gRPC's in the asyncio thread, and the service's method in a Trio task.

The asyncio half passes the request on and waits for the outcome. If it ends for another reason (the caller cancelled or
disconnected, the deadline passed, the server stops), it cancels the Trio half.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
import grpc.aio
import trio
from google.protobuf.message import DecodeError, Message

from kafscale.errors import CorruptData, Refused
from kafscale.rpc.access import Caller, CallGuard
from kafscale.rpc.bridge import asyncio_loop
from kafscale.rpc.bulk import Bulk
from kafscale.rpc.counters import CallCounters
from kafscale.rpc.errors import status_of
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.methods import BoundService, Method
from kafscale.rpc.outgoing import Outgoing
from kafscale.tracing import HEADER, Tracer, within

_Handler = Callable[..., Awaitable[Any]]
_Failed = tuple[grpc.StatusCode, str]
_Outcome = bytes | _Failed

_GONE: _Failed = (grpc.StatusCode.CANCELLED, "the caller cancelled or disconnected, or its deadline passed")


@dataclass(slots=True, eq=False)
class _Call:
    """A running call. ``outcome`` belongs to the asyncio thread, ``scope`` to Trio. A stream's outcome is ``b""``."""

    method: Method[Any, Any]
    handler: _Handler
    request: bytes
    guard: CallGuard | None
    context: "grpc.aio.ServicerContext[bytes, bytes]"
    outcome: "asyncio.Future[_Outcome]"
    # The caller's span; empty if the call is not traced.
    place: str = ""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


@dataclass(frozen=True, slots=True)
class _Served:
    """A method of a service. ``token`` and ``guard``: see `BoundService`."""

    method: Method[Any, Any]
    handler: _Handler
    token: bytes
    guard: CallGuard | None


class CallHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in its stubs only
    """Runs calls of ``services`` as tasks of ``nursery``. Created in Trio, called by grpc.aio in the asyncio thread."""

    def __init__(
        self,
        services: list[BoundService],
        limits: RpcLimits,
        nursery: trio.Nursery,
        counters: CallCounters,
        tracer: Tracer | None = None,
    ) -> None:
        self._limits = limits
        self._tracer = tracer
        self._counters = counters  # belongs to the asyncio thread
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._handlers = {
            path: self._adapted(_Served(method, handler, service.token.encode(), service.guard))
            for service in services
            for path, (method, handler) in service.methods.items()
        }
        self._closed = False
        # The number of calls whose Trio task has not ended, by `Method.waits`; belongs to the asyncio thread.
        self._running = {False: 0, True: 0}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._handlers.get(handler_call_details.method)

    def _adapted(self, served: _Served) -> Any:
        serve = self._serve_stream if served.method.streams else self._serve

        # gRPC asks for each call whether this is a coroutine function, which takes longer for a partial object.
        async def answer(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
            return await self._answer(serve, served, request, context)

        if served.method.streams:
            return grpc.unary_stream_rpc_method_handler(answer)
        return grpc.unary_unary_rpc_method_handler(answer)

    async def _answer(
        self,
        serve: Callable[[_Call], Awaitable[bytes]],
        served: _Served,
        request: bytes,
        context: "grpc.aio.ServicerContext[bytes, bytes]",
    ) -> bytes:
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcome: _Outcome = _GONE
        self._counters.began(served.method)
        try:
            if served.token and served.guard is None and not _has_token(served.token, context):
                outcome = grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong"
            else:
                outcome = await self._outcome(serve, served, request, context)
        finally:
            code = grpc.StatusCode.OK if isinstance(outcome, bytes) else outcome[0]
            self._counters.ended(served.method, code, loop.time() - began)
        if isinstance(outcome, bytes):
            return outcome
        await context.abort(*outcome)
        raise AssertionError("abort raises")

    async def _outcome(
        self,
        serve: Callable[[_Call], Awaitable[bytes]],
        served: _Served,
        request: bytes,
        context: "grpc.aio.ServicerContext[bytes, bytes]",
    ) -> _Outcome:
        method = served.method
        limit = self._limits.call_limit(waiting=method.waits)
        if self._running[method.waits] >= limit:
            return grpc.StatusCode.RESOURCE_EXHAUSTED, f"the limit of {limit} concurrent calls is reached"
        outcome = asyncio.get_running_loop().create_future()
        call = _Call(method, served.handler, request, served.guard, context, outcome)
        if self._tracer is not None:
            call.place = _metadata(context, HEADER)
        self._running[method.waits] += 1
        self._token.run_sync_soon(self._start, serve, call)
        try:
            return await call.outcome
        except asyncio.CancelledError:
            self._token.run_sync_soon(call.scope.cancel)
            raise

    def _ended(self, call: _Call, outcome: _Outcome) -> None:
        self._running[call.method.waits] -= 1
        if not call.outcome.done():
            call.outcome.set_result(outcome)

    def close(self) -> None:
        """Start no more calls, and cancel the running ones, whose callers no longer wait. Call it in Trio."""
        self._closed = True
        self._nursery.cancel_scope.cancel()

    def _start(self, serve: Callable[[_Call], Awaitable[bytes]], call: _Call) -> None:
        if not self._closed:
            self._nursery.start_soon(self._run, serve, call)

    async def _run(self, serve: Callable[[_Call], Awaitable[bytes]], call: _Call) -> None:
        """Run the Trio half of a call. An error ends only this call."""
        outcome: _Outcome = (grpc.StatusCode.UNAVAILABLE, "the server stopped before the call finished")
        try:
            with call.scope:
                outcome = await (self._traced(serve, call) if call.place else serve(call))
        except Exception as error:  # noqa: BLE001  any error is returned to the caller, and status_of logs it
            outcome = status_of(error, call.method.path)
        finally:
            asyncio_loop().call_soon_threadsafe(self._ended, call, outcome)

    async def _traced(self, serve: Callable[[_Call], Awaitable[bytes]], call: _Call) -> bytes:
        name = call.method.path.removeprefix("/")
        with within(self._tracer.go_on(name, call.place) if self._tracer is not None else None):
            return await serve(call)

    async def _serve(self, call: _Call) -> bytes:
        return self._encoded(call.method, await call.handler(await _request(call)))

    async def _serve_stream(self, call: _Call) -> bytes:
        """Run a streaming method. A bounded number of its messages is buffered, as in the direct transport."""
        request = await _request(call)
        outgoing = Outgoing(call.context, self._limits.stream_limit(large=call.method.large))

        async def send(message: Message | Bulk[Message]) -> None:
            await outgoing.send(partial(self._encoded, call.method, message))

        try:
            try:
                with outgoing.sender:
                    await call.handler(request, send)
            finally:
                await outgoing.flushed()
            outgoing.check()
        finally:
            outgoing.close()
        return b""

    def _encoded(self, method: Method[Any, Any], reply: Message | Bulk[Message]) -> bytes:
        message = reply.message if isinstance(reply, Bulk) else reply
        if not isinstance(message, method.reply):
            raise TypeError(f"{method.path} returned {type(message).__name__} instead of {method.reply.__name__}")
        data: bytes = reply.encoded() if isinstance(reply, Bulk) else message.SerializeToString()
        limit = self._limits.max_message_bytes
        if len(data) > limit:
            raise Refused(f"reply of {len(data)} bytes exceeds the maximum message size of {limit}")
        return data


def _has_token(token: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bool:
    """Return whether the caller presented ``token``. The comparison takes constant time."""
    scheme, _, rest = _metadata(context, "authorization").encode().partition(b" ")
    return hmac.compare_digest(rest, token) and scheme.lower() == b"bearer"


def _metadata(context: "grpc.aio.ServicerContext[bytes, bytes]", name: str) -> str:
    """Return the metadata value ``name`` of the call. Empty if there is none, there are several, or it is not text."""
    values = [value for key, value in context.invocation_metadata() or () if key == name]
    return values[0] if len(values) == 1 and isinstance(values[0], str) else ""


async def _request(call: _Call) -> Any:
    """Return the decoded request of a call that is allowed. Raises CorruptData and StatusError."""
    data, call.request = call.request, b""
    try:
        request = call.method.request.FromString(data)
    except DecodeError as error:
        raise CorruptData(f"{call.method.path}: the request is not a {call.method.request.__name__}") from error
    if call.guard is not None:
        await call.guard.check(call.method.path.rpartition("/")[2], request, _caller(call.context))
    return request


def _caller(context: "grpc.aio.ServicerContext[bytes, bytes]") -> Caller:
    """Return who makes a call."""
    # ipv4:10.0.0.1:50000, or ipv6:%5B::1%5D:50000.
    host = unquote(context.peer().partition(":")[2].rpartition(":")[0]).strip("[]")
    (certificate,) = context.auth_context().get("x509_pem_cert") or (b"",)
    scheme, _, token = _metadata(context, "authorization").partition(" ")
    return Caller(host, certificate, token if scheme.lower() == "bearer" else "")
