"""A client of the Admin service of KafScale gateways."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message

from kafscale.config.calls import RpcSettings
from kafscale.errors import Unavailable
from kafscale.rpc.admin import (
    ALTER_CONFIGS,
    CLUSTER_STATUS,
    CREATE_ACLS,
    CREATE_TOPIC,
    DELETE_ACLS,
    DELETE_TOPIC,
    DELETE_USER_CREDENTIALS,
    DESCRIBE_TOPIC,
    GROW_TOPIC,
    LIST_ACLS,
    LIST_USERS,
    SET_USER_CREDENTIALS,
    serving_gateway,
)
from kafscale.rpc.client import Channel
from kafscale.rpc.errors import StatusError
from kafscale.rpc.methods import Method
from kafscale.security.principals import user as principal_of
from kafscale.v1 import admin_pb2 as pb
from services.operator.topics.plan import Action, Configure, Create, Grow, Seen
from services.operator.users.plan import Known, Rule

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
_STATUS = grpc.StatusCode
_REFUSALS = (_STATUS.INVALID_ARGUMENT, _STATUS.FAILED_PRECONDITION)
# gRPC cancels a call that arrives while the server stops.
_SILENCES = (_STATUS.UNAVAILABLE, _STATUS.DEADLINE_EXCEEDED, _STATUS.CANCELLED)
_ANSWERS = (*_REFUSALS, _STATUS.NOT_FOUND, _STATUS.ALREADY_EXISTS, _STATUS.UNAUTHENTICATED, _STATUS.PERMISSION_DENIED)


class Gateway:
    """A gateway that serves. All methods raise Unavailable, and StatusError for refused requests."""

    def __init__(self, channel: Channel, token: str, timeout: float) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._timeout = timeout

    async def status(self) -> pb.ClusterStatusReply:
        return await self._ask(CLUSTER_STATUS, pb.ClusterStatusRequest())

    async def describe(self, topic: str) -> Seen | None:
        """Return a topic, or None if it does not exist or is being deleted."""
        try:
            reply = await self._ask(DESCRIBE_TOPIC, pb.DescribeTopicRequest(name=topic))
        except StatusError as error:
            if error.code is _STATUS.NOT_FOUND:
                return None
            raise
        return _seen(reply.topic)

    async def act(self, topic: str, seen: Seen | None, action: Action) -> Seen:
        """Perform an action and return the topic after it."""
        match action:
            case Create(partitions, configs):
                request = pb.CreateTopicRequest(name=topic, partitions=partitions, configs=configs)
                return _seen((await self._ask(CREATE_TOPIC, request)).topic)
            case Grow(_, partitions):
                grown = await self._ask(GROW_TOPIC, pb.GrowTopicRequest(name=topic, partitions=partitions))
                return _seen(grown.topic)
            case Configure(set_, unset):
                await self._ask(ALTER_CONFIGS, pb.AlterConfigsRequest(topic=topic, set=set_, unset=unset))
                if seen is None:
                    raise ValueError("a topic that does not exist cannot be configured")
                kept = {name: value for name, value in seen.configs.items() if name not in unset}
                return Seen(seen.id, seen.partitions, {**kept, **set_})

    async def delete(self, topic: str) -> bool:
        """Delete a topic. Returns whether it existed."""
        try:
            await self._ask(DELETE_TOPIC, pb.DeleteTopicRequest(name=topic))
        except StatusError as error:
            if error.code is _STATUS.NOT_FOUND:
                return False
            raise
        return True

    async def credentials(self, user: str) -> dict[str, Known]:
        """Return the SCRAM credentials of a user by mechanism. Without any, the user does not exist."""
        reply = await self._ask(LIST_USERS, pb.ListUsersRequest(name=user))
        return {
            each.mechanism: Known(each.iterations, each.salt) for found in reply.users for each in found.credentials
        }

    async def set_credentials(self, user: str, credentials: Sequence[pb.NewCredential]) -> None:
        await self._ask(SET_USER_CREDENTIALS, pb.SetUserCredentialsRequest(name=user, credentials=credentials))

    async def delete_credentials(self, user: str, mechanisms: Iterable[str]) -> None:
        """Delete credentials of a user, if they exist."""
        for mechanism in mechanisms:
            request = pb.DeleteUserCredentialsRequest(name=user, mechanisms=[mechanism])
            try:
                await self._ask(DELETE_USER_CREDENTIALS, request)
            except StatusError as error:
                if error.code is not _STATUS.NOT_FOUND:
                    raise

    async def acls(self, user: str) -> frozenset[Rule] | None:
        """Return the ACLs of a user, or None if the gateway does not enforce ACLs."""
        request = pb.ListAclsRequest(filter=pb.AccessRuleFilter(principal=str(principal_of(user))))
        try:
            reply = await self._ask(LIST_ACLS, request)
        except StatusError as error:
            if error.code is _STATUS.FAILED_PRECONDITION:
                return None
            raise
        return frozenset(
            Rule(each.resource_type, each.pattern_type, each.name, each.host, each.operation, each.permission)
            for each in reply.acls
        )

    async def create_acls(self, user: str, rules: Iterable[Rule]) -> None:
        """Create ACLs of a user, unless they exist."""
        principal = str(principal_of(user))
        acls = [pb.AccessRule(principal=principal, **rule._asdict()) for rule in rules]
        await self._ask(CREATE_ACLS, pb.CreateAclsRequest(acls=acls))

    async def delete_acls(self, user: str, rules: Iterable[Rule]) -> None:
        """Delete ACLs of a user, if they exist."""
        principal = str(principal_of(user))
        for rule in rules:
            # Every field is set, so that the filter selects one ACL of this user.
            selected = pb.AccessRuleFilter(principal=principal, **rule._asdict())
            await self._ask(DELETE_ACLS, pb.DeleteAclsRequest(filter=selected))

    async def _ask(self, method: Method[Q, A], request: Q) -> A:
        return await self._channel.call(method, request, timeout=self._timeout, metadata=self._metadata)


class Gateways:
    """Connections to the gateways of clusters. ``token`` is the admin token, ``timeout`` that of a call in seconds."""

    def __init__(self, rpc: RpcSettings, *, token: str, timeout: float) -> None:
        self._rpc = rpc
        self._token = token
        self._timeout = timeout
        self._channels: dict[tuple[str, ...], Channel] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels.values():
            await channel.aclose()

    @asynccontextmanager
    async def serving(self, servers: list[str]) -> AsyncIterator[Gateway]:
        """Return the first of ``servers`` (``host:port``) that serves, and the same one while it does.

        Raises Unavailable.
        """
        key = tuple(servers)
        if key not in self._channels:
            address = await serving_gateway(servers, self._connect, timeout=self._timeout)
            # Another task may have connected meanwhile.
            if key not in self._channels:
                self._channels[key] = self._connect(address)
        channel = self._channels[key]
        try:
            yield Gateway(channel, self._token, self._timeout)
        except (StatusError, Unavailable) as error:
            if _is_lost(error) and self._channels.get(key) is channel:
                del self._channels[key]
                await channel.aclose()
            raise

    def _connect(self, address: str) -> Channel:
        return Channel(address, self._rpc.limits(), tls=self._rpc.tls(), error_of=StatusError)


def is_refusal(error: StatusError) -> bool:
    """Return whether the request itself is invalid, so that a retry does not help."""
    return error.code in _REFUSALS


def _is_lost(error: StatusError | Unavailable) -> bool:
    """Return whether another gateway may succeed."""
    return not (isinstance(error, StatusError) and error.code in _ANSWERS)


def reason_of(error: StatusError | Unavailable) -> str:
    """Return the reason for a condition."""
    if isinstance(error, StatusError) and error.code is _STATUS.UNAUTHENTICATED:
        return "Unauthenticated"
    if isinstance(error, StatusError) and error.code is _STATUS.PERMISSION_DENIED:
        return "PermissionDenied"
    return "ClusterUnreachable"


def sentence_of(error: StatusError | Unavailable) -> str:
    """Return the message for a condition."""
    if isinstance(error, Unavailable):
        return str(error)
    if error.code is _STATUS.UNAUTHENTICATED:
        return f"the gateway rejects the operator's KAFSCALE_ADMIN_TOKEN: {error}"
    if error.code is _STATUS.PERMISSION_DENIED:
        return f"the gateway's ACLs do not allow it, set KAFSCALE_ADMIN_TOKEN on the gateways and the operator: {error}"
    if error.code in _SILENCES:
        return f"the gateway no longer answers: {error}"
    return f"the gateway failed with {error.code.name}: {error}"


def _seen(topic: pb.TopicStatus) -> Seen:
    return Seen(topic.id, topic.partitions, dict(topic.configs))
