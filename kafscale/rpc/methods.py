"""The methods of a proto service, from its descriptor: paths and messages, and the service object's method for each."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """``path`` as on the wire, ``/package.Service/Method``. ``streams``: the service sends any number of replies.

    ``waits``: a call waits for other callers, so that thousands may be under way, which have a bound of their own.
    ``large``: a stream's messages are large, so that fewer of them are kept for a slow reader.
    """

    path: str
    request: type[Q]
    reply: type[A]
    streams: bool
    waits: bool = False
    large: bool = False


@dataclass(frozen=True, slots=True)
class BoundService:
    """A service object's methods by path: ``(request)`` gives the reply, streaming ones are ``(request, send)``.

    ``token``: what callers must show as ``authorization: Bearer ...``; empty: nothing.
    """

    name: str
    methods: Mapping[str, tuple[Method[Any, Any], Callable[..., Awaitable[Any]]]]
    token: str = ""


def method(service: ServiceDescriptor, name: str, request: type[Q], reply: type[A]) -> Method[Q, A]:
    """One method, for a typed client. Raises TypeError when the proto has other messages."""
    found = _described(service.methods_by_name[name])
    if (found.request, found.reply) != (request, reply):
        raise TypeError(f"{found.path} takes {found.request.__name__} and gives {found.reply.__name__}")
    return Method(found.path, request, reply, found.streams)


def bind(
    service: ServiceDescriptor,
    implementation: object,
    *,
    waiting: Collection[str] = (),
    large: Collection[str] = (),
    token: str = "",
) -> BoundService:
    """``implementation`` has a method for each of the service: ``list_offsets`` for ``ListOffsets``.

    ``waiting`` names the methods whose calls wait for other callers, ``large`` those whose streams have large messages.
    ``token``: see `BoundService`.
    Raises AttributeError when a method is lacking, TypeError for a method that streams requests.
    """
    methods = {}
    for descriptor in service.methods:
        if descriptor.client_streaming:
            raise TypeError(f"{descriptor.full_name}: a server takes no streams of requests")
        found = replace(_described(descriptor), waits=descriptor.name in waiting, large=descriptor.name in large)
        methods[found.path] = (found, getattr(implementation, _snake_case(descriptor.name)))
    return BoundService(service.full_name, methods, token)


def _described(descriptor: MethodDescriptor) -> Method[Any, Any]:
    return Method(
        f"/{descriptor.containing_service.full_name}/{descriptor.name}",
        GetMessageClass(descriptor.input_type),
        GetMessageClass(descriptor.output_type),
        descriptor.server_streaming,
    )


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
