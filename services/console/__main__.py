"""``python -m services.console`` runs the console in its own process."""

import sys

import structlog
import trio

from kafscale.config.calls import RpcSettings
from kafscale.config.network import HttpSettings
from kafscale.process.http import HttpServer
from kafscale.process.logging import LogSettings
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded, run_process
from services.console.gateways import Gateways
from services.console.histories import Histories
from services.console.monitoring import families
from services.console.service import LARGEST_BODY, Console
from services.console.settings import ConsoleSettings
from services.console.watching import Watches

SETTINGS = (ConsoleSettings, RpcSettings, HttpSettings, LogSettings)
_log = structlog.get_logger()


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """Serve browsers until stopped. It can be stopped at any moment."""
    own, rpc = settings[ConsoleSettings], settings[RpcSettings]
    token, viewer_token = own.token(), own.viewer_token()
    async with (
        Operations.open(settings[HttpSettings], "console", stopping) as operations,
        Gateways(own.admin_servers, rpc.limits(), rpc.tls(), timeout=own.console_call_ms / 1000) as gateways,
        trio.open_nursery() as nursery,
    ):
        histories = Histories(gateways, own, token)
        nursery.start_soon(histories.run)
        watches = Watches(gateways, nursery)
        console = Console(own, gateways, watches, histories, token=token, viewer_token=viewer_token, scheme="http")
        operations.metrics.add(families(lambda: console))
        server = HttpServer(
            console.handle,
            setting="KAFSCALE_CONSOLE_ADDR",
            max_connections=own.console_max_connections,
            max_body_bytes=LARGEST_BODY,
        )
        port = await nursery.start(server.run, own.console_addr.host, own.console_addr.port)
        operations.health.start()
        _log.info("serving", console=f"http://{own.console_addr.host or 'localhost'}:{port}/")
        await stopping.wait()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, grace_ms=lambda _: 0))
