"""Questions about partitions to their owners. Questions whose partitions have moved are asked once more.

Only for requests that may be repeated. Appends may not, because their order is their producer's.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import trio

from kafscale.v1 import common_pb2
from services.gateway import fan_out
from services.gateway.owners.commit_view import Key
from services.gateway.owners.link import StorageLink
from services.gateway.owners.routing import Router


class Result(Protocol):
    """What a storage instance answers for one partition."""

    @property
    def status(self) -> common_pb2.Status: ...


Q = TypeVar("Q")
R = TypeVar("R", bound=Result)
Ask = Callable[[StorageLink, list[Q]], Awaitable[Sequence[R]]]


class Question(fan_out.Question[Key, StorageLink, Q, R]):
    """About one partition."""

    __slots__ = ()


@contextmanager
def owners_grace(milliseconds: int, *, begun: bool) -> Iterator[Callable[[], None]]:
    """A context around calls to several instances that bounds how long slow instances delay the others.

    Call the function that it yields when an instance has answered. The remaining calls then have ``milliseconds``
    before they are cancelled, and the context ends without an error. ``begun`` means that one has answered before.
    """
    grace = milliseconds / 1000
    with trio.CancelScope(deadline=trio.current_time() + grace if begun else math.inf) as scope:

        def answered() -> None:
            scope.deadline = min(scope.deadline, trio.current_time() + grace)

        yield answered


async def ask_owners(
    router: Router, asked: Sequence[Question[Q, R]], ask: Ask[Q, R], *, grace_ms: int | None = None
) -> None:
    """Fill in the results of ``asked``. ``ask`` makes one call to one instance and raises KafscaleError.

    If an instance has not answered ``grace_ms`` after another one has (default: the gateway's setting), its questions
    stay without results.
    """
    grace = router.owner_grace_ms if grace_ms is None else grace_ms
    await _ask_round(router, asked, ask, grace, begun=False)
    moved = [question for question in asked if _has_moved(router, question)]
    await _ask_round(router, moved, ask, grace, begun=0 < len(moved) < len(asked))


async def _ask_round(
    router: Router, asked: Sequence[Question[Q, R]], ask: Ask[Q, R], grace_ms: int, *, begun: bool
) -> None:
    with owners_grace(grace_ms, begun=begun) as answered:
        await fan_out.ask_each(asked, router.link, ask, lambda _: answered())


def _has_moved(router: Router, question: Question[Q, R]) -> bool:
    refused = any(result.status == common_pb2.NOT_OWNER for result in question.results)
    return refused and router.link(question.key) not in (None, question.asked)
