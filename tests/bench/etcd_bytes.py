"""The database space that commits use in etcd: `python -m tests.bench.etcd_bytes`.

On an etcd without compaction, states of 100 partitions are written like their owners do, and a real coordinator commits
offsets of 100 partitions. Then etcd reports the increase of the space in use.
"""

import logging
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
import structlog
import trio

from kafscale import paths
from kafscale.metadata.etcd import EtcdMetadataStore, open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.interface import Put
from kafscale.metadata.membership import new_run_id
from kafscale.v1 import coordinator_pb2 as pb
from kafscale.v1.metadata_pb2 import LastSegment, PartitionState
from tests.servers.etcd import running_etcd
from tests.support.coordinator.harness import topic_id
from tests.support.coordinator.shell import coordinators, create_topic

_PARTITIONS = 100
_TOPIC = "page-views"
_HISTORY_SECONDS = 300
_COMMITS_PER_SECOND = 2
_GIB = 1 << 30


async def _in_use(store: EtcdMetadataStore) -> int:
    # etcd flushes its transactions to the database every 100 ms.
    await trio.sleep(0.5)
    return (await store.status()).database_bytes_in_use


async def _row(
    store: EtcdMetadataStore, what: str, rounds: int, one: Callable[[int], Awaitable[None]], each: int = _PARTITIONS
) -> None:
    await one(0)
    before = await _in_use(store)
    for number in range(1, rounds + 1):
        await one(number)
    size = (await _in_use(store) - before) / (rounds * each)
    retained = size * _COMMITS_PER_SECOND * _HISTORY_SECONDS
    cells = [what, f"{size:.0f}", f"{retained / 1000:.0f}", f"{_GIB / retained:,.0f}", f"{_GIB / (retained * 12):,.0f}"]
    click.echo("| " + " | ".join(cells) + " |")


async def _produce(store: EtcdMetadataStore, rounds: int, *, idempotent: bool) -> None:
    """Write states like owners do, after 300 million records, a third of them deleted, in segments of 1 MB."""

    def state(number: int) -> bytes:
        end = 300_000_000 + number
        made = PartitionState(
            format=1,
            topic_id=topic_id(_TOPIC),
            epoch=1_000,
            owner=new_run_id(),
            log_start=100_000_000,
            high_watermark=end,
            last_segment=LastSegment(base_offset=end - 1, size=1_000_000, crc=0xDEADBEEF),
            producers_from=end - 1,
        )
        if idempotent:
            made.producer_snapshot = paths.producer_snapshot_key("default", _TOPIC, 12, end, 1_000)
        return made.SerializeToString()

    async def commit(number: int) -> None:
        keys = [paths.partition_state_key("default", _TOPIC, partition) for partition in range(_PARTITIONS)]
        await store.txn((), [Put(key, state(number)) for key in keys])

    await _row(store, f"segment, {'idempotent' if idempotent else 'plain'} producer", rounds, commit)


async def _consume(store: EtcdMetadataStore, rounds: int, *, metadata: str) -> None:
    await create_topic(store, _TOPIC, topic_id(_TOPIC))
    async with coordinators(store, "coordinator-0:9096") as made:

        async def commit(number: int) -> None:
            request = pb.OffsetCommitRequest(group="page-views-reader", generation=-1, retention_ms=-1)
            for partition in range(_PARTITIONS):
                request.offsets.add(
                    topic=_TOPIC,
                    topic_id=topic_id(_TOPIC),
                    partition=partition,
                    offset=123_456_789 + number,
                    leader_epoch=1,
                    metadata=metadata,
                )
            reply = await made.ask("offset_commit", request, "page-views-reader")
            for error in {reply.error, *reply.errors} - {pb.GroupError.NONE}:
                raise RuntimeError(pb.GroupError.Code.Name(error))

        await _row(store, f"offset, {len(metadata)} bytes of metadata", rounds, commit)


async def _measure(rounds: int) -> None:
    click.echo(
        "| commit of a partition | bytes | KB in 5 minutes at 2/s | busy partitions in 1 GiB | with 1 h of history |\n"
        "|---|---|---|---|---|"
    )
    runs: tuple[Callable[[EtcdMetadataStore], Awaitable[None]], ...] = (
        lambda store: _produce(store, rounds, idempotent=False),
        lambda store: _produce(store, rounds, idempotent=True),
        lambda store: _consume(store, rounds, metadata=""),
        lambda store: _consume(store, rounds, metadata="x" * 4096),
    )
    for run in runs:
        with tempfile.TemporaryDirectory() as directory, running_etcd(Path(directory)) as server:
            config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=60)
            async with open_etcd(config, random=lambda: 0.0) as store:
                await run(store)


@click.command()
@click.option(
    "--rounds", default=200, type=click.IntRange(20), show_default=True, help="The number of commits of each partition."
)
def main(*, rounds: int) -> None:
    """Measure the space that commits of segments and of offsets use in etcd."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    trio.run(_measure, rounds)


if __name__ == "__main__":
    main()
