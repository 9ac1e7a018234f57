"""The interface through which services are called: a peer that accepts the methods of protos/, each with a timeout.

`Channel` calls a peer with gRPC, `Direct` calls a service object in the same process. Both behave the same. The clients
in ``generated.py`` add types.

Errors: a caller gets the exception that the service raised, with its message (see ``errors.py``). It also gets
``Unavailable`` whenever the outcome is unknown: no answer within ``timeout`` seconds, no connection or a lost one, or a
service that stops, is at its limit of calls, or failed with an unexpected error (which it logs). It also gets
``Refused`` if a message exceeds the transport's limit or the peer does not have the method. If a caller is cancelled or
its timeout is over, the call is cancelled at the service.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from kafscale.rpc.methods import Method

M_co = TypeVar("M_co", covariant=True)
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class MessageStream(Protocol[M_co]):
    """The messages of a server stream, in order."""

    async def receive(self) -> M_co:
        """Return the next message. If it is cancelled, no message is lost.

        After the last message, raises the error of the service, or ``Unavailable`` if the service ended the stream or
        the stream broke. Further calls raise the same error.
        """
        ...


class Peer(Protocol):
    """A process that serves some of the services, or a pool of such processes."""

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        """Return the reply within ``timeout`` seconds."""
        ...

    def stream(self, method: Method[Q, A], request: Q) -> AbstractAsyncContextManager[MessageStream[A]]:
        """Open the replies of a streaming method. Exiting cancels it at the peer too."""
        ...
