"""Calls to an etcd cluster: chooses the member, decides which calls are repeated elsewhere, and keeps the auth token.

All calls and watches go to one member, the *current* one. If it does not answer, the next member becomes current.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self, TypeVar

import trio
from google.protobuf.message import Message

from kafscale.errors import ConfigError, Refused, Unavailable
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.etcd_errors import Full, NotDone, TokenRefused, error_of
from kafscale.metadata.etcd_wire import AUTHENTICATE
from kafscale.rpc.client import Channel, Metadata
from kafscale.rpc.limits import RpcLimits
from kafscale.rpc.methods import Method
from kafscale.rpc.tls import RpcTls

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

# etcd disconnects clients that ping more often than every 5 seconds, or while the connection is idle.
_KEEPALIVE_SECONDS = 6.0
_LONGEST_BACKOFF_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5
# If a caller cancels a call after this long, the client leaves the member, as after a timeout.
_SILENCE_SECONDS = 1.0
# With this metadata, a member without a leader returns an error instead of waiting for one.
_NEEDS_LEADER = ("hasleader", "true")


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """``endpoints`` are ``host:port`` each. An empty ``username`` means no authentication; ``tls`` None, plaintext.

    ``timeout_seconds`` is the time limit of one operation, however many members it tries.
    """

    endpoints: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    tls: RpcTls | None = None
    timeout_seconds: float = 5.0


class Pauses:
    """Pauses between attempts, which grow up to half a second. ``random`` (0 to 1) shortens each by up to half."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._longest = _FIRST_PAUSE_SECONDS

    def next(self) -> float:
        """Return the next pause in seconds."""
        longest, self._longest = self._longest, min(self._longest * 2, _LONGEST_PAUSE_SECONDS)
        return longest * (1 - self._random() / 2)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One endpoint. ``waiting`` holds the cancel scopes of the tasks that wait for its messages."""

    address: str
    channel: Channel
    waiting: set[trio.CancelScope] = field(default_factory=set)


class EtcdClient:
    """Calls etcd. ``random`` (0 to 1) chooses the first member and spreads pauses."""

    def __init__(self, config: EtcdConfig, random: Callable[[], float]) -> None:
        if not config.endpoints:
            raise ConfigError("etcd: no endpoints are configured")
        self._config = config
        self._random = random
        self._share = config.timeout_seconds / len(config.endpoints)
        limits = RpcLimits(
            keepalive_seconds=_KEEPALIVE_SECONDS,
            keepalive_timeout_seconds=self._share,
            keepalive_without_calls=False,
            connect_seconds=self._share,
            longest_backoff_seconds=_LONGEST_BACKOFF_SECONDS,
        )
        members = [
            Member(address, Channel(address, limits, tls=config.tls, error_of=error_of)) for address in config.endpoints
        ]
        self._members = members
        first = int(random() * len(members)) % len(members)
        self._turns = itertools.cycle([*members[first:], *members[:first]])
        self._current = next(self._turns)
        self._token = ""
        self._authenticating = trio.Lock()
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed = True
        for member in self._members:
            await member.channel.aclose()

    @property
    def current(self) -> Member:
        return self._current

    @property
    def members(self) -> list[Member]:
        """All members, in the order of the endpoints."""
        return self._members

    @property
    def token(self) -> str:
        """The auth token in use. Empty if there is none yet or none is needed."""
        return self._token

    def pauses(self) -> Pauses:
        return Pauses(self._random)

    async def call(self, method: Method[Q, A], request: Q, *, repeatable: bool) -> A:
        """Return the reply, within the configured time.

        A request that certainly was not applied is retried on another member. One that may have been applied is
        retried only if it is ``repeatable``. Raises Unavailable, Refused, and any error to which
        `kafscale.metadata.etcd_errors` maps a status, except TokenRefused.
        """
        deadline = trio.current_time() + self._config.timeout_seconds
        pauses = self.pauses()
        for attempt in itertools.count(1):
            member, token = self._current, self._token
            until = min(deadline, trio.current_time() + self._share) if repeatable else deadline
            try:
                return await self._attempt(member, method, request, until)
            except TokenRefused as error:
                self.renew_token(token, error)
                failure: Exception = error
            except Full:
                raise
            except Unavailable as error:
                self.leave(member)
                if not repeatable and not isinstance(error, NotDone):
                    raise
                failure = error
            # Pause only after all members have been tried.
            pause = pauses.next() if attempt % len(self._members) == 0 else 0
            if trio.current_time() + pause >= deadline:
                raise Unavailable(f"etcd ({member.address}): {failure}") from failure
            await trio.sleep(pause)
        raise AssertionError("unreachable")

    async def ask(self, member: Member, method: Method[Q, A], request: Q, *, timeout: float | None = None) -> A:
        """Call only this member, once, and return its reply. Raises Unavailable, Refused.

        Without ``timeout``, the limit is one member's share of an operation's timeout.
        """
        token = self._token
        metadata = await self.credentials(self._current)
        try:
            return await member.channel.call(method, request, timeout=timeout or self._share, metadata=metadata)
        except TokenRefused as error:
            self.renew_token(token, error)
            raise Unavailable(f"etcd ({member.address}): {error}") from error

    async def credentials(self, member: Member, until: float = math.inf) -> Metadata:
        """Return the metadata to send with a call; authenticate first if necessary.

        Raises NotDone, and Refused if etcd rejects the password.
        """
        if not self._config.username:
            return (_NEEDS_LEADER,)
        if not self._token:
            # The limit also covers waiting for another call that authenticates at an unresponsive member.
            with trio.move_on_at(min(until, trio.current_time() + self._share)):
                async with self._authenticating:
                    if not self._token and member is not self._current:
                        # The call that authenticated there got no answer.
                        raise NotDone(f"{member.address} is no longer the current member")
                    if not self._token:
                        self._token = await self._authenticate(member)
            if not self._token:
                raise NotDone("authentication timed out")
        return (_NEEDS_LEADER, ("token", self._token))

    def renew_token(self, token: str, error: TokenRefused) -> None:
        """Discard ``token``, which etcd rejected, unless another call has already done so. The next call authenticates.

        Raises Refused if no user is configured.
        """
        if not self._config.username:
            raise Refused(f"etcd requires a user and a password: {error}") from error
        if self._token == token:
            self._token = ""

    def leave(self, member: Member) -> None:
        """Make the next member current because ``member`` does not answer, and wake the tasks that wait for it."""
        if member is self._current and len(self._members) > 1:
            self._current = next(self._turns)
            for scope in member.waiting:
                scope.cancel()

    @contextmanager
    def while_current(self, member: Member) -> Iterator[None]:
        """Run the block while ``member`` is current. Otherwise cancel it and continue after it."""
        with trio.CancelScope() as scope:
            if member is not self._current:
                scope.cancel()
            member.waiting.add(scope)
            try:
                yield
            finally:
                member.waiting.discard(scope)

    async def _attempt(self, member: Member, method: Method[Q, A], request: Q, until: float) -> A:
        started = trio.current_time()
        try:
            metadata = await self.credentials(member, until)
            timeout = max(0.001, until - trio.current_time())
            return await member.channel.call(method, request, timeout=timeout, metadata=metadata)
        except trio.Cancelled:
            if trio.current_time() - started >= min(_SILENCE_SECONDS, self._share):
                self.leave(member)
            raise

    async def _authenticate(self, member: Member) -> str:
        user = self._config.username
        request = pb.AuthenticateRequest(name=user, password=self._config.password)
        try:
            return (await member.channel.call(AUTHENTICATE, request, timeout=self._share)).token
        except Unavailable as error:
            raise NotDone(str(error)) from error
        except Refused as error:
            raise Refused(f"etcd rejects the user {user!r} or its password: {error}") from error
