"""The cost of transactions in etcd and in SQLite: `python -m tests.bench.metadata_cost`.

A transaction is like a commit of segments: for each of several partitions, a compare of its state's revision and a put
of 200 bytes. Both stores write to the same disk before they answer.
"""

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import click
import trio

from kafscale.metadata.etcd import open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.interface import MetadataStore, Put, Unchanged
from kafscale.metadata.sqlite import open_sqlite
from tests.bench.usage import measured
from tests.servers.etcd import running_etcd

_VALUE = bytes(200)


class _Committer:
    """A writer with its partitions and their revisions."""

    def __init__(self, store: MetadataStore, topic: str, partitions: int) -> None:
        self._store = store
        self._keys = [f"partitions/{topic}/{partition}" for partition in range(partitions)]
        self._revision = 0

    async def commit(self) -> None:
        compares = [Unchanged(key, self._revision) for key in self._keys]
        result = await self._store.txn(compares, [Put(key, _VALUE) for key in self._keys])
        if not result.succeeded:
            raise RuntimeError("a compare failed although there is no other writer")
        self._revision = result.revision


async def _latencies(calls: list[Callable[[], Awaitable[object]]], each: int) -> list[float]:
    """Run each of ``calls`` ``each`` times, all calls concurrently. Return the sorted latencies in seconds."""
    latencies: list[float] = []

    async def repeat(call: Callable[[], Awaitable[object]]) -> None:
        for _ in range(each):
            started = trio.current_time()
            await call()
            latencies.append(trio.current_time() - started)

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(repeat, call)
    return sorted(latencies)


async def _measure(name: str, store: MetadataStore, count: int) -> None:
    for at_once, partitions in ((1, 1), (1, 100), (8, 10), (32, 1)):
        committers = [_Committer(store, f"{at_once}-{partitions}-{number}", partitions) for number in range(at_once)]
        for committer in committers:
            await committer.commit()
        await _row(name, f"txn of {partitions}", [committer.commit for committer in committers], count // at_once)
    await _row(name, "get", [lambda: store.get("partitions/1-1-0/0")], count)
    await _row(name, "keep_alive", [_keep_alive(store, await store.grant_lease(600))], count)


def _keep_alive(store: MetadataStore, lease: int) -> Callable[[], Awaitable[object]]:
    return lambda: store.keep_alive(lease)


async def _row(name: str, what: str, calls: list[Callable[[], Awaitable[object]]], each: int) -> None:
    started = trio.current_time()
    with measured(os.getpid()) as usage:
        latencies = await _latencies(calls, each)
    seconds = trio.current_time() - started
    cells = [name, what, str(len(calls)), f"{len(latencies) / seconds:.0f}"]
    cells += [f"{latencies[int(len(latencies) * part)] * 1000:.2f}" for part in (0.5, 0.99)]
    cells.append(f"{usage.cpu_seconds / len(latencies) * 1e6:.0f}")
    click.echo("| " + " | ".join(cells) + " |")


@asynccontextmanager
async def _etcd(directory: Path, members: int) -> AsyncIterator[MetadataStore]:
    with running_etcd(directory, members=members) as server:
        config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=60)
        async with open_etcd(config, random=lambda: 0.0) as store:
            yield store


async def _compare(directory: Path, count: int) -> None:
    click.echo(
        "| store | call | concurrent | calls/s | p50 ms | p99 ms | client CPU us |\n|---|---|---|---|---|---|---|"
    )
    async with open_sqlite(directory / "metadata.db") as store:
        await _measure("SQLite", store, count)
    for members in (1, 3):
        (directory / str(members)).mkdir()
        async with _etcd(directory / str(members), members) as store:
            await _measure(f"etcd, {members}", store, count)


@click.command()
@click.option("--count", default=2000, show_default=True, help="The number of calls for each row.")
def main(*, count: int) -> None:
    """Measure transactions, reads and leases on this machine."""
    with tempfile.TemporaryDirectory() as directory:
        trio.run(_compare, Path(directory), count)


if __name__ == "__main__":
    main()
