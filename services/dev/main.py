"""The one-process mode: the objects of the four services, put together with the direct transport."""

import os
import random
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog
import trio

from kafscale.errors import ConfigError
from kafscale.metadata.members import Members
from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.sqlite import open_sqlite
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.metrics import OperationCounters
from kafscale.rpc.direct import DirectIndexer, DirectStorage
from kafscale.service.logging import LogSettings, configure_logging
from kafscale.service.run import EXIT_CONFIG, run_service
from kafscale.service.settings import load, warn_unknown
from kafscale.service.stores import S3Settings, open_object_store
from kafscale.threads import run_in_thread
from services.gateway.service import Gateway
from services.gateway.settings import GatewaySettings
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from services.storage.run import Parts
from services.storage.service import StorageService
from services.storage.settings import StorageSettings

T = TypeVar("T")
SETTINGS = (GatewaySettings, StorageSettings, IndexerSettings, S3Settings, LogSettings)
log = structlog.get_logger()

_LAST_SECONDS = 5.0
"""For releasing partitions and closing stores, after clients have left and their records are stored."""


def run_dev() -> int:
    """Read the environment, run until a signal, and give the exit status."""
    try:
        configure_logging(load(LogSettings, os.environ).log_level)
        settings = _Settings(
            gateway=load(GatewaySettings, os.environ),
            storage=load(StorageSettings, os.environ),
            indexer=load(IndexerSettings, os.environ),
            stores=load(S3Settings, os.environ),
        )
    except ConfigError as error:
        print(f"kafscale: {error}", file=sys.stderr)
        return EXIT_CONFIG
    for message in warn_unknown(SETTINGS, os.environ):
        log.warning(message)
    grace_ms = settings.gateway.shutdown_grace_ms + settings.storage.drain_timeout_ms
    return run_service(partial(_serve, settings), grace_seconds=grace_ms / 1000 + _LAST_SECONDS)


@dataclass(frozen=True, slots=True)
class _Settings:
    gateway: GatewaySettings
    storage: StorageSettings
    indexer: IndexerSettings
    stores: S3Settings


async def _serve(settings: _Settings, stopping: trio.Event) -> None:
    namespace, counters = settings.stores.namespace, OperationCounters()
    async with (
        open_object_store(settings.stores, recorder=counters, random=random.random) as objects,
        open_sqlite(settings.stores.data_dir / "metadata.sqlite") as metadata,
        trio.open_nursery() as nursery,
    ):
        catalog = TopicCatalog(metadata, namespace)
        storage_members = Members(metadata, namespace, "storage")
        indexer = IndexerService(objects, namespace, settings.indexer)
        storage = StorageService(
            Parts(
                settings=settings.storage.resolved(directory=not settings.stores.bucket),
                namespace=namespace,
                objects=objects,
                metadata=metadata,
                catalog=catalog,
                members=storage_members,
                indexer=DirectIndexer(indexer),
                now_ms=_now_ms,
                run_sync=run_in_thread,
            )
        )
        gateway = Gateway(settings.gateway, catalog, DirectStorage(storage), ProducerIds(metadata, namespace))
        gateway_stopped, storage_stopped = trio.Event(), trio.Event()

        async def serve_storage(task_status: trio.TaskStatus[None]) -> None:
            await storage.run(gateway_stopped, task_status=task_status)
            storage_stopped.set()

        await nursery.start(catalog.run)
        await nursery.start(storage_members.run)
        await nursery.start(serve_storage)
        # Clients leave first, then what they sent is stored, then the stores close.
        await gateway.run(stopping)
        gateway_stopped.set()
        await storage_stopped.wait()
        log.info("object store", **counters.totals())
        nursery.cancel_scope.cancel()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
