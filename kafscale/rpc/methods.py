"""The methods of a proto service, derived from its descriptor, and their binding to a service object."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kafscale.rpc.access import CallGuard

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """An RPC method. ``path``: ``/package.Service/Method``. ``streams``: the service sends any number of replies.

    ``waits``: calls wait for other callers, so that thousands may be in flight; they have a separate limit.
    ``large``: the messages of the stream are large, so that fewer of them are buffered for a slow reader.
    """

    path: str
    request: type[Q]
    reply: type[A]
    streams: bool
    waits: bool = False
    large: bool = False


@dataclass(frozen=True, slots=True)
class BoundService:
    """The methods of a service object by path: ``(request)`` returns the reply; streaming methods: ``(request, send)``.

    ``guard``: decides about each call that arrives over gRPC. Without one, callers must present ``token`` as
    ``authorization: Bearer ...``, unless it is empty.
    """

    name: str
    methods: Mapping[str, tuple[Method[Any, Any], Callable[..., Awaitable[Any]]]]
    token: str = ""
    guard: CallGuard | None = None


def method(service: ServiceDescriptor, name: str, request: type[Q], reply: type[A]) -> Method[Q, A]:
    """Return one method, for a typed client. Raises TypeError if the proto has different messages."""
    found = _described(service.methods_by_name[name])
    if (found.request, found.reply) != (request, reply):
        raise TypeError(f"{found.path} has the messages {found.request.__name__} and {found.reply.__name__}")
    return Method(found.path, request, reply, found.streams)


def bind(
    service: ServiceDescriptor,
    implementation: object,
    *,
    waiting: Collection[str] = (),
    large: Collection[str] = (),
    token: str = "",
    guard: CallGuard | None = None,
) -> BoundService:
    """Bind the methods of ``service`` to those of ``implementation``, such as ``ListOffsets`` to ``list_offsets``.

    ``waiting``: the methods whose calls wait for other callers. ``large``: the methods whose streams have large
    messages. ``token``, ``guard``: see `BoundService`. Raises AttributeError if a method is missing, or TypeError for
    a method that streams requests.
    """
    methods = {}
    for descriptor in service.methods:
        if descriptor.client_streaming:
            raise TypeError(f"{descriptor.full_name}: servers do not support streams of requests")
        found = replace(_described(descriptor), waits=descriptor.name in waiting, large=descriptor.name in large)
        methods[found.path] = (found, getattr(implementation, _snake_case(descriptor.name)))
    return BoundService(service.full_name, methods, token, guard)


def _described(descriptor: MethodDescriptor) -> Method[Any, Any]:
    return Method(
        f"/{descriptor.containing_service.full_name}/{descriptor.name}",
        GetMessageClass(descriptor.input_type),
        GetMessageClass(descriptor.output_type),
        descriptor.server_streaming,
    )


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
