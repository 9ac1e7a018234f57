"""A gateway's Admin service over gRPC, for commands that run their own event loop. It runs in a thread."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import trio
from click.testing import CliRunner, Result

from kafscale.rpc.admin import bind_admin
from kafscale.rpc.server import RpcServer
from kafscale_tools.cli.main import main
from tests.support.gateway.admin import admin_of
from tests.support.gateway.harness import Harness, running_gateway

T = TypeVar("T")
START_SECONDS = 60.0
PATIENT = {"KAFSCALE_RPC_CONNECT_TIMEOUT_MS": "60000", "KAFSCALE_RPC_KEEPALIVE_TIMEOUT_MS": "60000"}
"""A TLS handshake between two threads of a process can take long on a busy machine."""


@dataclass
class AdminServer:
    """``harness`` belongs to the server's thread. Use it only in `there`."""

    address: str
    harness: Harness
    token: trio.lowlevel.TrioToken

    def there(self, do: Callable[..., Any], *arguments: Any) -> Any:
        """Await ``do`` in the gateway's thread."""
        return trio.from_thread.run(do, *arguments, trio_token=self.token)

    def run(self, *arguments: str, input: str | bytes | None = None, **environ: str) -> Result:  # noqa: A002 - click's name
        """Run a command. Of this machine's settings it gets only ``environ``."""
        settings = {name: None for name in os.environ if name.startswith("KAFSCALE_")}
        variables = {**settings, **PATIENT, "KAFSCALE_ADMIN_SERVER": self.address, **environ}
        return CliRunner().invoke(main, arguments, input=input, env=variables)


@contextmanager
def admin_server(token: str = "", **gateway: Any) -> Iterator[AdminServer]:
    """Run a gateway with one fake storage instance and one fake coordinator. ``gateway``: its settings."""
    started, made, failed = threading.Event(), list[AdminServer](), list[BaseException]()
    stop: list[Callable[[], None]] = []

    async def serve() -> None:
        async with running_gateway(**gateway) as harness:
            end = trio.Event()
            here = trio.lowlevel.current_trio_token()
            server = RpcServer([bind_admin(await admin_of(harness), token=token)])
            port = await harness.nursery.start(server.run, "127.0.0.1:0", end)
            made.append(AdminServer(f"127.0.0.1:{port}", harness, here))
            stop.append(lambda: here.run_sync_soon(end.set))
            started.set()
            await end.wait()

    def run() -> None:
        try:
            trio.run(serve)
        except BaseException as error:  # noqa: BLE001 - shown where the test is
            failed.append(error)
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(START_SECONDS)
        assert not failed, failed
        yield made[0]
    finally:
        if stop:
            stop[0]()
        thread.join()
    assert not failed, failed
