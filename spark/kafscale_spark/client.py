"""Calls to the storage service with gRPC's Python client, on any instance and retried for a bounded time."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from kafscale.errors import ConfigError, CorruptData, KafscaleError, Refused, Unavailable
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.apart import taken_apart
from kafscale_spark.connection import Connection, Tls

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_CHECKS = 4
"""How often a reply is checked for being late within the time that it may take."""


class Unauthenticated(Refused):
    """The instance does not accept the token."""


# Statuses of the services and of gRPC for which a retry is pointless.
_FINAL: dict[grpc.StatusCode, type[KafscaleError]] = {
    grpc.StatusCode.DATA_LOSS: CorruptData,
    grpc.StatusCode.INVALID_ARGUMENT: ConfigError,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.ABORTED: KafscaleError,
    grpc.StatusCode.UNIMPLEMENTED: Refused,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: Refused,
}

# gRPC's messages about peers that cannot be trusted or do not use TLS, and about peers that close new connections.
_UNTRUSTED = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "verification check failed")
_NO_CONNECTION = "failed to connect"
_ENDED = ("Socket closed", "Connection reset")


class Untrusted(Unavailable):
    """The TLS options do not fit the instance, so that a retry is pointless."""


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Q, A]):
    """A method of the storage service. Streams return the large bytes field with number ``apart`` separately."""

    name: str
    request: type[Q]
    reply: type[A]
    apart: int = 0

    @property
    def path(self) -> str:
        return f"/{pb.DESCRIPTOR.services_by_name['SegmentStorage'].full_name}/{self.name}"


TOPICS = Rpc("Topics", pb.TopicsRequest, pb.TopicsReply)
PLAN_SCAN = Rpc("PlanScan", pb.PlanScanRequest, pb.PlanScanReply)
SCAN = Rpc("Scan", pb.ScanRequest, pb.ScanPiece, apart=pb.ScanPiece.RECORDS_FIELD_NUMBER)


class Attempts:
    """Pauses between attempts. They double, and end ``seconds`` after the last progress."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self.progress()

    def progress(self) -> None:
        """Restart the time and the pauses, because something was received."""
        self._until = self._clock() + self._seconds
        self._pause = _SHORTEST_PAUSE

    def pause(self) -> bool:
        """Wait before another attempt. Return False at once if there is no time left for one."""
        left = self._until - self._clock()
        if left <= 0:
            return False
        self._sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return True


@dataclass(frozen=True, slots=True)
class _Opened:
    """``tls``: the state of the TLS files that the channel uses."""

    channel: grpc.Channel
    tls: tuple[tuple[int, int, int], ...]


class Client:
    """Connections to storage instances, opened when they are needed. Not safe for several threads or across a fork.

    If TLS files have changed when a call fails, later calls use them. A file with a token is read for each call. If
    that fails, the former token is used.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.calls = 0
        """The number of calls, including those without an answer."""
        self._endpoints = list(connection.endpoints)
        self._channels: dict[str, _Opened] = {}
        self._token = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for opened in self._channels.values():
            opened.channel.close()
        self._channels = {}

    def attempts(self) -> Attempts:
        return Attempts(self.connection.retry_seconds)

    def call(
        self,
        rpc: Rpc[Q, A],
        request: Q,
        *,
        again: Callable[[A], str] = lambda _: "",
        seconds: float | None = None,
    ) -> A:
        """Call one instance after the other until one answers, and return the reply.

        ``again`` returns why a reply does not count, such as the status UNAVAILABLE, or an empty text if it does.
        ``seconds`` replaces the timeout of one call. Raises Unavailable if the retry timeout expires, Untrusted if no
        instance can be trusted, and other errors at once.
        """
        attempts = self.attempts()
        while True:
            troubles: list[str] = []
            untrusted = 0
            # The instance that answered last is called first.
            for endpoint in tuple(self._endpoints):
                try:
                    reply = self.call_at(endpoint, rpc, request, seconds=seconds)
                except Unavailable as error:
                    troubles.append(str(error))
                    untrusted += isinstance(error, Untrusted)
                    continue
                trouble = again(reply)
                if not trouble:
                    self._ask_first(endpoint)
                    return reply
                troubles.append(f"{endpoint}: {trouble}")
            final = Untrusted if untrusted == len(troubles) else Unavailable
            if final is Untrusted or not attempts.pause():
                raise final(f"{rpc.name}: no storage instance answered: {'; '.join(troubles)}")

    def call_at(self, endpoint: str, rpc: Rpc[Q, A], request: Q, *, seconds: float | None = None) -> A:
        """Call one instance once. Raises Unavailable if a retry may help, other errors if it cannot."""
        self.calls += 1
        metadata = self._metadata()
        stub = self._channel(endpoint).unary_unary(
            rpc.path, request_serializer=_serialized, response_deserializer=_bytes
        )
        try:
            return _parsed(rpc, stub(request, timeout=seconds or self.connection.call_seconds, metadata=metadata))
        except grpc.RpcError as error:
            raise self._error(error, endpoint) from error

    @contextmanager
    def stream_at(self, endpoint: str, rpc: Rpc[Q, A], request: Q) -> Iterator[Iterator[tuple[A, memoryview]]]:
        """A context with the replies of a streaming method. Leaving it ends the call.

        Each reply comes as the message without its large field, and the bytes of that field.

        The server sends at most `WINDOW_BYTES` and one reply ahead of the reader. Raises the same errors as `call_at`,
        also if the next reply takes longer than a call may.
        """
        stub = self._channel(endpoint).unary_stream(
            rpc.path, request_serializer=_serialized, response_deserializer=_bytes
        )
        call = stub(request, metadata=self._metadata())
        with _Watch(call, self.connection.call_seconds) as watch:
            yield self._replies(watch, rpc, endpoint)

    def knows(self, instances: Iterable[str]) -> None:
        """Add instances after the known ones."""
        self._endpoints = list(dict.fromkeys([*self._endpoints, *instances]))

    def answers(self, rpc: Rpc[Q, A], request: Q) -> Iterator[A]:
        """Return the answers of all instances, one after the other, including those that `knows` adds meanwhile."""
        asked: set[str] = set()
        while left := [endpoint for endpoint in self._endpoints if endpoint not in asked]:
            self._ask_first(left[0])
            reply = self.call(rpc, request)
            # The instance that was called first, and the one that answered.
            asked |= {left[0], self._endpoints[0]}
            yield reply

    def _ask_first(self, endpoint: str) -> None:
        self._endpoints.remove(endpoint)
        self._endpoints.insert(0, endpoint)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The known instances in the order in which they are called."""
        return tuple(self._endpoints)

    def _replies(self, watch: "_Watch", rpc: Rpc[Q, A], endpoint: str) -> Iterator[tuple[A, memoryview]]:
        try:
            for data in watch.replies():
                yield _parsed_apart(rpc, data)
        except grpc.RpcError as error:
            raise self._error(error, endpoint) from error
        except TimeoutError as error:
            raise Unavailable(f"{endpoint}: {error}") from error

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what is sent beside a request. Raises ConfigError if there was no valid token yet."""
        self._read_token()
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    def _read_token(self) -> bool:
        """Read the token again, and say whether it has changed since. Raises ConfigError."""
        former, token = self._token, self.connection.token
        if token is not None:
            try:
                self._token = token.read()
            except ConfigError:
                # The file is being replaced.
                if not former:
                    raise
        return self._token != former

    def _error(self, error: grpc.RpcError, endpoint: str) -> KafscaleError:
        found = _error_of(error, endpoint, self.connection.tls)
        if isinstance(found, Unauthenticated) and self._read_token():
            return Unavailable(f"{found}; the token has changed since")
        if isinstance(found, Unavailable) and self._renew(endpoint):
            return Unavailable(f"{found}; the TLS files have changed since")
        return found

    def _renew(self, endpoint: str) -> bool:
        """Open the channel again if TLS files have changed since, and say whether they have."""
        tls, former = self.connection.tls, self._channels[endpoint]
        try:
            if tls is None or tls.state() == former.tls:
                return False
            self._channels[endpoint] = self._opened(endpoint)
        except ConfigError:
            # They are being replaced.
            return False
        former.channel.close()
        return True

    def _channel(self, endpoint: str) -> grpc.Channel:
        if endpoint not in self._channels:
            self._channels[endpoint] = self._opened(endpoint)
        return self._channels[endpoint].channel

    def _opened(self, endpoint: str) -> _Opened:
        tls = self.connection.tls
        state = () if tls is None else tls.state()
        return _Opened(self.connection.channel(endpoint), state)


class _Watch:
    """The replies of a streaming call. The call is cancelled if a reply takes longer than ``seconds`` to arrive.

    The time that the reader takes between two replies does not count. Leaving the context ends the call.
    """

    def __init__(self, call: Any, seconds: float) -> None:
        self._call = call
        self._seconds = seconds
        self._until = math.inf
        self._late = False
        self._closed = Event()
        self._watching = Thread(target=self._watch, name="kafscale-scan", daemon=True)

    def __enter__(self) -> Self:
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._call.cancel()
        self._watching.join()

    def replies(self) -> Iterator[bytes]:
        """Raises grpc.RpcError and TimeoutError."""
        while True:
            self._until = time.monotonic() + self._seconds
            try:
                reply = next(self._call, None)
            except grpc.RpcError as error:
                if self._late:
                    raise TimeoutError(f"no reply within {self._seconds:g} s") from error
                raise
            self._until = math.inf
            if reply is None:
                return
            yield reply

    def _watch(self) -> None:
        while not self._closed.wait(min(self._seconds / _CHECKS, 1.0)):
            if time.monotonic() > self._until:
                self._late = True
                self._call.cancel()
                return


def _error_of(error: grpc.RpcError, endpoint: str, tls: Tls | None) -> KafscaleError:
    if not isinstance(error, grpc.Call):
        return Unavailable(f"{endpoint}: {error}")
    code = error.code()
    message = error.details() or code.name
    if _NO_CONNECTION in message and any(words in message for words in _UNTRUSTED):
        return Untrusted(f"{endpoint}: TLS with kafscale.tls.* is not possible: {message}")
    if _NO_CONNECTION in message and any(words in message for words in _ENDED):
        message += f" ({_perhaps(tls)})"
    return _FINAL.get(code, Unavailable)(f"{endpoint}: {message}")


def _perhaps(tls: Tls | None) -> str:
    """Return why an instance may close connections. It does not report the reason itself."""
    if tls is None:
        return "perhaps it requires TLS, and kafscale.tls.ca is not set"
    if tls.cert is None:
        return "perhaps it requires a client certificate, and kafscale.tls.cert is not set"
    return "perhaps it does not trust the certificate of kafscale.tls.cert"


def _serialized(request: Message) -> bytes:
    return request.SerializeToString()


def _bytes(data: bytes) -> bytes:
    return data


def _parsed_apart(rpc: Rpc[Q, A], data: bytes) -> tuple[A, memoryview]:
    try:
        rest, large = taken_apart(data, rpc.apart)
    except DecodeError as error:
        raise _unreadable(rpc, error) from error
    return _parsed(rpc, rest), large


def _parsed(rpc: Rpc[Q, A], data: bytes) -> A:
    reply = rpc.reply()
    try:
        reply.ParseFromString(data)
    except DecodeError as error:
        raise _unreadable(rpc, error) from error
    return reply


def _unreadable(rpc: Rpc[Q, A], error: DecodeError) -> CorruptData:
    return CorruptData(f"{rpc.name}: the reply is not a {rpc.reply.DESCRIPTOR.name}: {error}")
