"""The console of the one-process mode, which asks the Admin service of its own process."""

from dataclasses import replace

import structlog
import trio

from kafscale.config.calls import REQUIRED, RpcSettings
from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.config.network import HOST, Address, NetworkSettings
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded
from kafscale.process.startup import Endpoint
from services.all_in_one.settings import OneProcessSettings
from services.console.records.settings import RecordsSettings
from services.console.serving import ConsoleParts, serve_console
from services.console.settings import ConsoleSettings
from services.gateway.settings import GatewaySettings

_log = structlog.get_logger(__name__)


async def serve_own_console(
    settings: Loaded,
    endpoint: Endpoint,
    operations: Operations,
    stopping: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve browsers until ``stopping`` is set, unless the console is turned off. Raises ConfigError.

    ``endpoint`` serves the Admin service, maybe later.
    """
    if not settings[OneProcessSettings].console:
        task_status.started()
        return
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_console, _parts(settings, endpoint), operations, stopping)
        _log.info("console started", url=url)
        task_status.started()


def _parts(settings: Loaded, endpoint: Endpoint) -> ConsoleParts:
    """Return the settings of the console and its clients.

    If not everybody may make admin calls, users sign in by default, because the console has the rights of the process.
    """
    network, rpc = settings[NetworkSettings], settings[RpcSettings]
    bound = network.rpc(endpoint.service)
    here = Address(HOST if bound.anywhere else bound.host, endpoint.port)
    if rpc.tls_ca_file is not None and not rpc.tls_server_name:
        # The certificate names the host that others connect to.
        rpc = replace(rpc, tls_server_name=(network.rpc_advertised_addr or bound).host)
    secured = settings[GatewaySettings].acls or rpc.tls_client_auth == REQUIRED
    own = replace(settings[ConsoleSettings], admin_servers=(str(here),))
    own = own.resolved(secured=secured)
    return ConsoleParts(own, settings[RecordsSettings], settings[KafkaClientSettings], rpc)
