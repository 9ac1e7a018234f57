"""A server in a separate process, for tests that kill, hang or restart it.

``python -m tests.support.rpc_peer PORT`` (0: any) prints its port and serves a `Carrier` until its standard input
ends. Fetch hangs for the stream id "hang".
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from kafscale.malloc import keep_freed_memory
from kafscale.rpc.server import RpcServer
from kafscale.rpc.services import bind_storage
from kafscale.v1.storage_pb2 import FetchReply, FetchRequest
from tests.support.carrier import TIMEOUT, Carrier

_ROOT = Path(__file__).parents[2]


class Peer:
    """A handle of the test for a running server."""

    def __init__(self, process: trio.Process, port: int) -> None:
        self.process = process
        self.port = port

    async def kill(self) -> None:
        """Kill the server and wait until it has ended."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def running_peer(port: int = 0) -> AsyncIterator[Peer]:
    """Run a server, which is killed on exit."""
    command = [sys.executable, "-m", "tests.support.rpc_peer", str(port)]
    process = await trio.lowlevel.open_process(command, stdin=-1, stdout=-1, cwd=_ROOT)
    try:
        assert process.stdout is not None
        with trio.fail_after(TIMEOUT):
            first_line = await process.stdout.receive_some()
        yield Peer(process, int(first_line))
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    await pipe.aclose()


async def _serve(port: int) -> None:
    carrier = Carrier()

    async def fetch(request: FetchRequest) -> FetchReply:
        return await (carrier.hang if request.stream_id == "hang" else carrier.answer)(request)

    carrier.fetching = fetch
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        run = partial(RpcServer([bind_storage(carrier)]).run, f"127.0.0.1:{port}", stop)
        print(await nursery.start(run), flush=True)
        await trio.to_thread.run_sync(sys.stdin.buffer.read)
        stop.set()


if __name__ == "__main__":
    keep_freed_memory()
    trio.run(_serve, int(sys.argv[1]))
