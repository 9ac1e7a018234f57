"""Questions about partitions, put to their owners: all owners at the same time, and who has moved once more.

For what may be asked twice. Appends are not: their order is their producer's.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import trio

from kafscale.errors import KafscaleError
from kafscale.v1 import common_pb2
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


@contextmanager
def owners_grace(milliseconds: int, *, begun: bool) -> Iterator[Callable[[], None]]:
    """A context around calls to several instances. What it gives is called when one has answered: then the others
    have so long, until they are cancelled, and the context ends without an error. ``begun``: one had answered before.
    """
    grace = milliseconds / 1000
    with trio.CancelScope(deadline=trio.current_time() + grace if begun else math.inf) as scope:

        def answered() -> None:
            scope.deadline = min(scope.deadline, trio.current_time() + grace)

        yield answered


@dataclass(slots=True, eq=False)
class Question(Generic[Q, R]):
    """``results``: one for each query; none at all while no owner is known, or has answered."""

    key: Key
    queries: list[Q]
    results: Sequence[R] = field(default=())
    asked: StorageLink | None = None


async def ask_owners(
    router: Router, questions: Sequence[Question[Q, R]], ask: Ask[Q, R], *, grace_ms: int | None = None
) -> None:
    """Fill the results in. ``ask`` makes one call to one instance, and raises KafscaleError.

    Who says nothing while others have answered is left out after the grace, of the gateway's settings where none is
    given: what it was asked for has no results.
    """
    grace = router.owner_grace_ms if grace_ms is None else grace_ms
    await _ask_all(router, questions, ask, grace, begun=False)
    moved = [question for question in questions if _has_moved(router, question)]
    await _ask_all(router, moved, ask, grace, begun=0 < len(moved) < len(questions))


def _has_moved(router: Router, question: Question[Q, R]) -> bool:
    refused = any(result.status == common_pb2.NOT_OWNER for result in question.results)
    return refused and router.link(question.key) not in (None, question.asked)


async def _ask_all(
    router: Router, questions: Sequence[Question[Q, R]], ask: Ask[Q, R], grace_ms: int, *, begun: bool
) -> None:
    by_link: dict[StorageLink, list[Question[Q, R]]] = {}
    for question in questions:
        question.asked = router.link(question.key)
        if question.asked is not None:
            by_link.setdefault(question.asked, []).append(question)
    with owners_grace(grace_ms, begun=begun) as answered:
        async with trio.open_nursery() as nursery:
            for link, group in by_link.items():
                nursery.start_soon(_ask_one, link, group, ask, answered)


async def _ask_one(
    link: StorageLink, questions: list[Question[Q, R]], ask: Ask[Q, R], answered: Callable[[], None]
) -> None:
    try:
        results = await ask(link, [query for question in questions for query in question.queries])
    except KafscaleError:
        # Refused too: an address that another kind of service has now. The link's stream has it in the log.
        return
    answered()
    position = 0
    for question in questions:
        question.results = results[position : position + len(question.queries)]
        position += len(question.queries)
