"""The requests and etcd bytes of busy and of idle partitions: `python -m tests.bench.intake_cost`.

Each partition gets a record of 1000 bytes per second, and later nothing for an hour. One storage instance and an
indexer run on a virtual clock, so the load of this machine has no effect, with stores in memory. An object store's
request takes 50 ms, a transaction 10 ms. The writes of metadata are then done on a real etcd without compaction, which
reports the increase of the space in use.
"""

import logging
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import structlog
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.metadata.etcd import open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.interface import Delete, Get, Operation, Put, TxnResult, Unchanged
from kafscale.metadata.membership import new_run_id
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.topic_values import ClusterInfo
from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import PartitionAppend
from services.storage.settings import StorageSettings
from tests.servers.etcd import running_etcd
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings

_RECORD = bytes(1000)
_APPENDS_PER_SECOND = 10
_REQUEST_SECONDS, _TXN_SECONDS = 0.05, 0.01
_WARM_UP_SECONDS = 15
"""Ends between two segments of a partition, also with the longest interval."""
_SETTLED_SECONDS = 120
_LOADED_AT_A_TIME = 100
_MANY_WRITES = 2000
_BILLED = {
    "put_if_absent": "PUT",
    "replace_if_match": "PUT",
    "get": "GET",
    "get_range": "GET",
    "head": "GET",
    "list_from": "LIST",
    "delete_many": "DELETE",
}
_DOLLARS_PER_1000 = {"PUT": 0.005, "GET": 0.0004, "LIST": 0.005, "DELETE": 0}
"""The prices of S3 Standard in us-east-1."""


@dataclass(frozen=True, slots=True)
class Case:
    """``segment_interval_ms``: 0 without an intake, where it has no effect."""

    partitions: int
    segment_interval_ms: int

    @property
    def cells(self) -> list[str]:
        interval = self.segment_interval_ms
        return [f"{self.partitions:,}", f"yes, segments every {interval / 1000:g} s" if interval else "no"]


_CASES = [Case(partitions, interval) for partitions in (1, 100, 2000) for interval in (0, 500, 10_000)]


class _RecordedStore(MemoryMetadataStore):
    """Metadata in memory. ``written`` has the writes of each transaction, without leases."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[list[Put | Delete]] = []

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        await trio.sleep(_TXN_SECONDS)
        result = await super().txn(compares, then, otherwise)
        done = then if result.succeeded else otherwise
        writes = [Put(one.key, one.value) if isinstance(one, Put) else one for one in done if not isinstance(one, Get)]
        if writes:
            self.written.append(writes)
        return result


@dataclass(frozen=True, slots=True)
class Cost:
    """What was done in some time: requests by kind, the first and the last of the transactions that wrote metadata."""

    requests: Counter[str]
    first: int
    end: int


class Load:
    """Appends to all partitions of a topic of an instance."""

    def __init__(self, world: World, caller: Caller, metadata: _RecordedStore, refs: Sequence[PartitionRef]) -> None:
        self._world = world
        self._caller = caller
        self._metadata = metadata
        self._refs = refs
        self._ends: dict[bytes, int] = {}

    async def cost_of(self, action: Callable[[], Awaitable[None]]) -> Cost:
        calls, first = len(self._world.objects.calls), len(self._metadata.written)
        await action()
        requests = Counter(_BILLED[call.kind] for call in self._world.objects.calls[calls:])
        return Cost(requests, first, len(self._metadata.written))

    async def load(self) -> None:
        """Wait until all partitions are taken over and have a record."""
        waiting = list(self._refs)
        while waiting:
            some, waiting = waiting[:_LOADED_AT_A_TIME], waiting[_LOADED_AT_A_TIME:]
            waiting += await self._append(some)

    async def run(self, seconds: float) -> None:
        """Append a record to each partition every second."""
        began = trio.current_time()
        for number in range(round(seconds * _APPENDS_PER_SECOND)):
            await trio.sleep_until(began + number / _APPENDS_PER_SECOND)
            if await self._append(self._refs[number % _APPENDS_PER_SECOND :: _APPENDS_PER_SECOND]):
                raise RuntimeError("records were refused")

    async def acknowledged(self) -> None:
        """Wait until all records are durable."""
        while True:
            ends = {news.partition.SerializeToString(): news.high_watermark for news in self._caller.news}
            if all(ends.get(ref, 0) >= end for ref, end in self._ends.items()):
                return
            await trio.sleep(1)

    async def _append(self, refs: Sequence[PartitionRef]) -> list[PartitionRef]:
        """Append a record to each of the partitions. Return those that do not accept it yet."""
        if not refs:
            return []
        records = batch(_RECORD, timestamp=self._world.now_ms)
        reply = await self._caller.send(*(PartitionAppend(partition=ref, records=records) for ref in refs))
        refused = []
        for ref, result in zip(refs, reply.results, strict=True):
            if result.status == Status.OK:
                self._ends[ref.SerializeToString()] = result.end_offset
            else:
                refused.append(ref)
        return refused


async def _counted(case: Case, metadata: _RecordedStore, seconds: float) -> tuple[Cost, Cost]:
    """Return the cost of a busy time and of an idle hour."""
    settings = StorageSettings(compression_codec="producer", segment_interval_ms=case.segment_interval_ms or 500)
    world = World(settings, indexing=True)
    world.run_prefix = new_run_id()[:-1]
    world.objects.plan = lambda call: Fault(delay=_REQUEST_SECONDS)
    cluster = ClusterInfo("A" * 22, 0, state_format=2 if case.segment_interval_ms else 1)
    await metadata.txn((), [Put(paths.cluster_key(NAMESPACE), cluster.value())])
    async with world.service(metadata=metadata) as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=case.partitions), case.partitions)
        load = Load(world, caller, metadata, refs)
        await load.load()
        await load.run(_WARM_UP_SECONDS)
        busy = await load.cost_of(partial(load.run, seconds))
        await load.acknowledged()
        await trio.sleep(_SETTLED_SECONDS)
        idle = await load.cost_of(partial(trio.sleep, 3600))
    return busy, idle


async def _etcd_bytes(written: Sequence[Sequence[Put | Delete]], busy: Cost) -> float:
    """Return by how much the writes of the busy time increase the space that etcd uses."""

    async def in_use() -> int:
        # etcd flushes its transactions to the database every 100 ms.
        await trio.sleep(0.5)
        return (await store.status()).database_bytes_in_use

    measured = written[busy.first : busy.end]
    # The space grows by pages, so a few writes are repeated.
    times = 1 + _MANY_WRITES // max(1, sum(map(len, measured)))
    with tempfile.TemporaryDirectory() as directory, running_etcd(Path(directory)) as server:
        config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=60)
        async with open_etcd(config, random=lambda: 0.0) as store:
            for writes in written[: busy.first]:
                await store.txn((), writes)
            before = await in_use()
            for _ in range(times):
                for writes in measured:
                    await store.txn((), writes)
            return (await in_use() - before) / times


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _measure(case: Case, seconds: float) -> tuple[str, str]:
    """Return the lines of both tables."""
    metadata = _RecordedStore()
    busy, idle = trio.run(_counted, case, metadata, seconds, clock=MockClock(autojump_threshold=0))
    stored = trio.run(_etcd_bytes, metadata.written, busy)
    gigabytes, hours = case.partitions * len(_RECORD) * seconds / 1e9, seconds / 3600
    per_gb = {kind: busy.requests[kind] / gigabytes for kind in _DOLLARS_PER_1000}
    dollars = sum(count / 1000 * _DOLLARS_PER_1000[kind] for kind, count in per_gb.items())
    return _row(
        [
            *case.cells,
            *(f"{count:,.0f}" for count in per_gb.values()),
            f"{dollars:.2f}",
            f"{busy.requests['PUT'] / hours:,.0f}",
            f"{stored / gigabytes / 1e6:,.0f}",
            f"{stored / hours / 1e6:,.2f}",
            f"{(busy.end - busy.first) / hours:,.0f}",
        ]
    ), _row([*case.cells, *(f"{idle.requests[kind]}" for kind in _DOLLARS_PER_1000), f"{idle.end - idle.first}"])


@click.command()
@click.option(
    "--seconds", default=20, type=click.IntRange(10), show_default=True, help="The duration of each load, virtually."
)
@click.option("--partitions", "only", multiple=True, type=int, help="Measure only this number. Can be repeated.")
def main(*, seconds: int, only: tuple[int, ...]) -> None:
    """Count S3 requests and etcd bytes of 1, 100 and 2,000 partitions, busy and idle, with and without intakes."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    busy = [
        "Busy partitions",
        "Intake",
        *(f"{kind} per GB" for kind in _DOLLARS_PER_1000),
        "USD per GB",
        "PUT per hour",
    ]
    busy += ["etcd MB per GB", "etcd MB per hour", "Transactions per hour"]
    click.echo(_row(busy) + "\n" + "|---" * len(busy) + "|")
    idle = ["Idle partitions", "Intake", *_DOLLARS_PER_1000, "Transactions"]
    lines = [_row(idle), "|---" * len(idle) + "|"]
    for case in _CASES:
        if not only or case.partitions in only:
            line, other = _measure(case, seconds)
            click.echo(line)
            lines.append(other)
    click.echo("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
