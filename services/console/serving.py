"""Serves browsers in a process: the console as its own process, and that of the one-process mode."""

import ssl
from dataclasses import dataclass

import trio

from kafscale.config.calls import RpcSettings
from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.config.network import Address
from kafscale.process.certificates import CertificateFiles, Followed, followed_context
from kafscale.process.http import HttpServer
from kafscale.process.operations import Operations
from services.console.gateways import Gateways
from services.console.histories import Histories
from services.console.monitoring import families
from services.console.records.service import Records
from services.console.records.settings import RecordsSettings
from services.console.service import LARGEST_BODY, Console
from services.console.settings import ConsoleSettings
from services.console.watching import Watches


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """The settings of a console and its clients. ``own`` must be `resolved`."""

    own: ConsoleSettings
    records: RecordsSettings
    kafka: KafkaClientSettings
    rpc: RpcSettings


async def serve_console(
    parts: ConsoleParts,
    operations: Operations,
    stopping: trio.Event,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve browsers until ``stopping`` is set. ``started`` reports the URL.

    Raises ConfigError if it cannot listen on the address, or if a file cannot be used.
    """
    own, rpc = parts.own, parts.rpc
    token, viewer_token, tls = own.token(), own.viewer_token(), _tls(own)
    async with (
        Gateways(own.admin_servers, rpc.limits(), rpc.tls(), timeout=own.console_call_ms / 1000) as gateways,
        trio.open_nursery() as nursery,
    ):
        records = Records(parts.records, parts.kafka, gateways, own_token=token)
        histories = Histories(gateways, own, token)
        nursery.start_soon(histories.run)
        watches = Watches(gateways, nursery)
        console = Console(own, gateways, watches, records, histories, token=token, viewer_token=viewer_token)
        operations.metrics.add(families(lambda: console))
        server = HttpServer(
            console.handle,
            setting="KAFSCALE_CONSOLE_ADDR",
            max_connections=own.console_max_connections,
            max_body_bytes=LARGEST_BODY,
            context=None if tls is None else lambda: tls.value,
        )
        port = await nursery.start(server.run, own.console_addr.host, own.console_addr.port)
        if tls is not None:
            nursery.start_soon(tls.run)
        host = "localhost" if own.console_addr.anywhere else own.console_addr.host
        task_status.started(f"{own.scheme}://{Address(host, port)}/")
        await stopping.wait()
        nursery.cancel_scope.cancel()


def _tls(own: ConsoleSettings) -> Followed[ssl.SSLContext] | None:
    if own.console_tls_cert_file is None or own.console_tls_key_file is None:
        return None
    files = CertificateFiles(own.console_tls_cert_file, own.console_tls_key_file)
    return followed_context(files, settings="KAFSCALE_CONSOLE_TLS", what="certificate of the console")
