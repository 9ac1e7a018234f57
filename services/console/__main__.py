"""``python -m services.console`` runs the console in its own process."""

import sys

import structlog
import trio

from kafscale.config.calls import RpcSettings
from kafscale.config.kafka_client import KafkaClientSettings
from kafscale.config.network import HttpSettings
from kafscale.process.logging import LogSettings
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded, run_process
from services.console.records.settings import RecordsSettings
from services.console.serving import ConsoleParts, serve_console
from services.console.settings import ConsoleSettings

SETTINGS = (ConsoleSettings, RecordsSettings, KafkaClientSettings, RpcSettings, HttpSettings, LogSettings)
_log = structlog.get_logger()


async def serve(settings: Loaded, stopping: trio.Event) -> None:
    """Serve browsers until stopped. It can be stopped at any moment."""
    own = settings[ConsoleSettings].resolved()
    parts = ConsoleParts(own, settings[RecordsSettings], settings[KafkaClientSettings], settings[RpcSettings])
    async with (
        Operations.open(settings[HttpSettings], "console", stopping) as operations,
        trio.open_nursery() as nursery,
    ):
        url = await nursery.start(serve_console, parts, operations, stopping)
        operations.health.start()
        _log.info("serving", console=url)


if __name__ == "__main__":
    sys.exit(run_process(SETTINGS, serve, grace_ms=lambda _: 0))
