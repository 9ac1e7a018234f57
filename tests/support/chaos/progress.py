"""Waits, for a bounded time, until the clients of a chaos run have made progress or ended."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import trio

from tests.support.chaos.clients import DELIVERY_MS, PARTITIONS, Client

_PROGRESS_SECONDS = 300.0


_FINISH_SECONDS = DELIVERY_MS / 1000 + 60


_PROGRESS_ACKS = 20


_LOOK_SECONDS = 0.2


class NoProgress(Exception):
    """The workload did not go on within a generous time though everything is healed."""


async def await_acks(senders: Iterable[Client], seconds: float) -> None:
    """Each producer has some more acks from each partition. Raises NoProgress."""
    wanted = {
        (client, partition): client.acked.get(partition, 0) + _PROGRESS_ACKS
        for client in senders
        for partition in range(PARTITIONS)
    }

    def missing() -> list[str]:
        return [f"{who.name} in {at}" for (who, at), count in wanted.items() if who.acked.get(at, 0) < count]

    await until(missing, seconds, "no acks for")


async def finish(senders: Iterable[Client], others: Iterable[Client], tell: Callable[[str], None]) -> None:
    """Producers end when all that they sent is acked or failed, readers when they have seen all that was acked."""
    await _end(senders)
    tell("the producers are done")
    ends = {at: max(client.highest.get(at, 0) for client in senders) for at in range(PARTITIONS)}

    def behind() -> list[str]:
        return [
            f"{who.name} in {at}: {who.highest.get(at, 0)} of {end}"
            for who in others
            for at, end in ends.items()
            if who.highest.get(at, 0) < end
        ]

    await until(behind, _PROGRESS_SECONDS, "behind what was acked:")
    tell("the readers have read everything that was acked")
    await _end(others)


async def _end(clients: Iterable[Client]) -> None:
    for client in clients:
        await client.stop()
    for client in clients:
        with _bounded(_FINISH_SECONDS, f"{client.name} does not end"):
            await client.wait()
        if client.status != 0:
            raise NoProgress(f"{client.name} ended with status {client.status}")


async def until(missing: Callable[[], list[str]], seconds: float, complaint: str) -> None:
    """Wait until nothing is missing."""
    deadline = trio.current_time() + seconds
    while left := missing():
        if trio.current_time() > deadline:
            raise NoProgress(f"{complaint} {', '.join(left)} within {seconds:g} s")
        await trio.sleep(_LOOK_SECONDS)


@contextmanager
def _bounded(seconds: float, complaint: str) -> Iterator[None]:
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise NoProgress(f"{complaint} within {seconds:g} s")
