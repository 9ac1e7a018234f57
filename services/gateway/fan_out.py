"""Asks the processes that own partitions or groups about them: one call to each process, all at the same time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from kafscale.errors import KafscaleError

K = TypeVar("K")
L = TypeVar("L")
Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(slots=True, eq=False)
class Question(Generic[K, L, Q, R]):
    """Queries about the partition or group ``key``.

    ``results`` has one result for each query. It is empty if no owner is known or the owner has not answered. ``asked``
    is the link to the process that was asked last.
    """

    key: K
    queries: list[Q]
    results: Sequence[R] = field(default=())
    asked: L | None = None

    @property
    def result(self) -> R | None:
        """The result of a single query, or None without one."""
        return self.results[0] if self.results else None


async def ask_each(
    questions: Sequence[Question[K, L, Q, R]],
    link_of: Callable[[K], L | None],
    call: Callable[[L, list[Q]], Awaitable[Sequence[R]]],
    answered: Callable[[Question[K, L, Q, R]], None],
) -> None:
    """Put the questions to the processes that ``link_of`` names, and store their results.

    ``call`` sends the queries to one process and returns a result for each, in order. Questions keep their results if
    it raises KafscaleError or returns another number of results. ``answered`` is called for each question that gets
    new results.
    """
    by_link: dict[L, list[Question[K, L, Q, R]]] = {}
    for question in questions:
        question.asked = link_of(question.key)
        if question.asked is not None:
            by_link.setdefault(question.asked, []).append(question)

    async def ask(link: L, asked: list[Question[K, L, Q, R]]) -> None:
        queries = [query for question in asked for query in question.queries]
        try:
            results = await call(link, queries)
        except KafscaleError:
            # The outcome may be unknown, so only the client can decide to repeat the request.
            return
        if len(results) != len(queries):
            return
        position = 0
        for question in asked:
            question.results = results[position : position + len(question.queries)]
            position += len(question.queries)
            answered(question)

    async with trio.open_nursery() as nursery:
        for link, asked in by_link.items():
            nursery.start_soon(ask, link, asked)
