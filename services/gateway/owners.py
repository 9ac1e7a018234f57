"""Questions about partitions, put to their owners: all owners at the same time, and who has moved once more.

For what may be asked twice. Appends are not: their order is their producer's.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import trio

from kafscale.errors import Unavailable
from kafscale.v1 import common_pb2
from services.gateway.commit_view import Key
from services.gateway.routing import Router
from services.gateway.storage_link import StorageLink


class Result(Protocol):
    """What a storage instance answers for one partition."""

    @property
    def status(self) -> common_pb2.Status: ...


Q = TypeVar("Q")
R = TypeVar("R", bound=Result)
Ask = Callable[[StorageLink, list[Q]], Awaitable[Sequence[R]]]


@dataclass(slots=True, eq=False)
class Question(Generic[Q, R]):
    """``results``: one for each query; none at all while no owner is known, or has answered."""

    key: Key
    queries: list[Q]
    results: Sequence[R] = field(default=())
    asked: StorageLink | None = None


async def ask_owners(router: Router, questions: Sequence[Question[Q, R]], ask: Ask[Q, R]) -> None:
    """Fill the results in. ``ask`` makes one call to one instance, and raises Unavailable."""
    await _ask_all(router, questions, ask)
    moved = [question for question in questions if _has_moved(router, question)]
    await _ask_all(router, moved, ask)


def _has_moved(router: Router, question: Question[Q, R]) -> bool:
    refused = any(result.status == common_pb2.NOT_OWNER for result in question.results)
    return refused and router.link(question.key) not in (None, question.asked)


async def _ask_all(router: Router, questions: Sequence[Question[Q, R]], ask: Ask[Q, R]) -> None:
    by_link: dict[StorageLink, list[Question[Q, R]]] = {}
    for question in questions:
        question.asked = router.link(question.key)
        if question.asked is not None:
            by_link.setdefault(question.asked, []).append(question)
    async with trio.open_nursery() as nursery:
        for link, group in by_link.items():
            nursery.start_soon(_ask_one, link, group, ask)


async def _ask_one(link: StorageLink, questions: list[Question[Q, R]], ask: Ask[Q, R]) -> None:
    try:
        results = await ask(link, [query for question in questions for query in question.queries])
    except Unavailable:
        return
    position = 0
    for question in questions:
        question.results = results[position : position + len(question.queries)]
        position += len(question.queries)
