"""Bounded waits for progress or the end of a chaos run's clients."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from tests.support.chaos.clients import DELIVERY_MS, LOGS, PARTITIONS, Client, last_readers
from tests.support.chaos.workload import Logs

PROGRESS_SECONDS = 300.0
_FINISH_SECONDS = DELIVERY_MS / 1000 + 60
_PROGRESS_ACKS = 20
_LOOK_SECONDS = 0.2


class NoProgress(Exception):
    """The workload made no progress within a generous time although all faults are healed."""


async def await_acks(senders: Iterable[Client], seconds: float) -> None:
    """Wait until each producer has some more acks from each log. Raise NoProgress."""
    targets = {
        (client, partition): client.acked.get(partition, 0) + _PROGRESS_ACKS
        for client in senders
        for partition in range(client.logs.count)
    }

    def missing() -> list[str]:
        return [f"{who.name} in {at}" for (who, at), count in targets.items() if who.acked.get(at, 0) < count]

    await until(missing, seconds, "no acks for")


async def await_shares(members: Iterable[Client], seconds: float) -> None:
    """Wait until the two members of each group have half of the partitions each."""
    share = [PARTITIONS // 2] * 2
    await until(lambda: [who.name for who in members if list(who.given.values()) != share], seconds, "no shares for")


async def finish(senders: Iterable[Client], others: Iterable[Client], report: Callable[[str], None]) -> None:
    """End producers when all their records are acked or failed, and readers when they have read all acked ones."""
    await _end(senders)
    report("all producers have finished")
    logs = {at for client in senders for at in range(client.logs.count)}
    ends = {at: max(client.highest.get(at, 0) for client in senders) for at in logs}

    def behind() -> list[str]:
        return [
            f"{who.name} in {at}: {who.highest.get(at, 0)} of {end}"
            for who in others
            for at, end in ends.items()
            if who.highest.get(at, 0) < end
        ]

    await until(behind, PROGRESS_SECONDS, "readers behind the acked records:")
    report("all readers have read all acked records")
    await _end(others)


async def read_at_the_end(bootstrap: str, directory: Path, logs: Logs = LOGS) -> None:
    """Run the last readers, one after the other."""
    for last in last_readers(bootstrap, directory, logs):
        with _bounded(_FINISH_SECONDS, f"{last.name} did not reach the end"):
            await last.run()
        if last.status != 0:
            raise NoProgress(f"{last.name} exited with status {last.status}")


async def _end(clients: Iterable[Client]) -> None:
    for client in clients:
        await client.stop()
    for client in clients:
        with _bounded(_FINISH_SECONDS, f"{client.name} did not end"):
            await client.wait()
        if client.status != 0:
            raise NoProgress(f"{client.name} exited with status {client.status}")


async def until(missing: Callable[[], list[str]], seconds: float, complaint: str) -> None:
    """Wait until nothing is missing."""
    deadline = trio.current_time() + seconds
    while remaining := missing():
        if trio.current_time() > deadline:
            raise NoProgress(f"{complaint} {', '.join(remaining)} within {seconds:g} s")
        await trio.sleep(_LOOK_SECONDS)


@contextmanager
def _bounded(seconds: float, complaint: str) -> Iterator[None]:
    with trio.move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise NoProgress(f"{complaint} within {seconds:g} s")
