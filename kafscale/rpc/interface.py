"""What a caller of a service holds: a peer that takes the methods of protos/, with a deadline each.

`Channel` is a peer over gRPC, `Direct` a service object of the same process; a caller cannot tell them apart. The
clients of ``generated.py`` give a peer's methods their types.

Errors: a caller gets the kind of error that the service raised, with its message (the table in ``errors.py``; a
subclass arrives as its kind). ``Unavailable`` also stands for everything that leaves the outcome unknown: no answer
within ``timeout`` seconds, no connection or a lost one, a service that stops, has too many calls in hand, or failed by
a defect of its own (which it logs). ``Refused`` also stands for a message beyond the transport's limit and a peer that
lacks the method. A call whose caller is cancelled or out of time is cancelled at the service.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from kafscale.rpc.methods import Method

M_co = TypeVar("M_co", covariant=True)
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class MessageStream(Protocol[M_co]):
    """Messages of a server stream, in order."""

    async def receive(self) -> M_co:
        """The next message; being cancelled loses none.

        Raises, after all that was sent, what the service raised, and ``Unavailable`` when it ended the stream or the
        stream broke; raises the same again when called again.
        """
        ...


class Peer(Protocol):
    """One process that serves some of the services, or any of several."""

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        """The reply, within ``timeout`` seconds."""
        ...

    def stream(self, method: Method[Q, A], request: Q) -> AbstractAsyncContextManager[MessageStream[A]]:
        """The replies of a streaming method; leaving ends it at the peer too."""
        ...
