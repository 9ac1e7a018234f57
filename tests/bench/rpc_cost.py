"""The cost of a call between two processes: `python -m tests.bench.rpc_cost`.

The other process is `tests.support.rpc_peer`. The table has rates and the CPU time of both processes, which varies less
on a busy machine.
"""

import os
from collections.abc import Awaitable, Callable

import click
import trio

from kafscale.malloc import keep_freed_memory
from kafscale.rpc.client import Channel
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.storage_pb2 import AppendRequest, FetchRequest, PartitionAppend
from tests.bench.usage import measured
from tests.support.rpc_peer import running_peer

_MB = 1_000_000
_TIMEOUT = 60.0

Call = Callable[[], Awaitable[object]]


async def _repeat(call: Call, *, count: int, at_once: int) -> float:
    """Return the seconds for ``count`` calls with ``at_once`` concurrent ones."""
    remaining = count

    async def caller() -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            await call()

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(caller)
    return trio.current_time() - started


async def _measure(calls: int, megabytes: int) -> None:
    async with running_peer() as peer, Channel(f"127.0.0.1:{peer.port}") as channel:
        storage = SegmentStorageClient(channel)
        append = AppendRequest(appends=[PartitionAppend(records=bytes(_MB))])
        small, large = FetchRequest(stream_id="x"), FetchRequest(max_bytes=_MB)
        cases: list[tuple[str, Call, int, int, int]] = [
            ("small calls, 1 at a time", lambda: storage.fetch(small, timeout=_TIMEOUT), calls // 4, 1, 0),
            ("small calls, 32 at a time", lambda: storage.fetch(small, timeout=_TIMEOUT), calls, 32, 0),
            ("1 MB requests, 2 at a time", lambda: storage.append(append, timeout=_TIMEOUT), megabytes, 2, 1),
            ("1 MB replies, 2 at a time", lambda: storage.fetch(large, timeout=_TIMEOUT), megabytes, 2, 1),
        ]
        click.echo(
            "| calls | calls/s | MB/s | caller CPU us per call | server CPU us per call |\n|---|---|---|---|---|"
        )
        for name, call, count, at_once, size in cases:
            await _repeat(call, count=max(1, count // 10), at_once=at_once)
            with measured(os.getpid()) as own, measured(peer.process.pid) as theirs:
                seconds = await _repeat(call, count=count, at_once=at_once)
            costs = [f"{usage.cpu_seconds / count * 1e6:.0f}" for usage in (own, theirs)]
            rate = f"{count * size / seconds:.0f}" if size else ""
            click.echo("| " + " | ".join([name, f"{count / seconds:.0f}", rate, *costs]) + " |")


@click.command()
@click.option("--calls", default=10_000, show_default=True)
@click.option("--megabytes", default=1_000, show_default=True)
def main(*, calls: int, megabytes: int) -> None:
    """Measure calls per second and MB/s between two processes on this machine."""
    # Like the services.
    keep_freed_memory()
    trio.run(_measure, calls, megabytes)


if __name__ == "__main__":
    main()
