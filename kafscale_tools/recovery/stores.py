"""Opens the stores of the services for a command, whether the services run or not."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kafscale.config.backup_bucket import open_backup_bucket
from kafscale.config.etcd import EtcdSettings, open_etcd_store
from kafscale.config.settings import load
from kafscale.config.stores import S3Settings, open_object_store
from kafscale.errors import ConfigError
from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.sqlite import open_sqlite
from kafscale.objects.availability import StoreHealth
from kafscale.objects.interface import ObjectStore
from kafscale.objects.metrics import OperationCounters
from kafscale.process.health import HealthSettings

_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of one cluster."""

    metadata: MetadataStore
    objects: ObjectStore
    namespace: str
    backups: ObjectStore
    """The store of metadata snapshots: ``objects`` or a separate bucket."""


@asynccontextmanager
async def opened(environ: Mapping[str, str]) -> AsyncIterator[Stores]:
    """Open the stores that the services' variables configure. Without etcd endpoints, open the SQLite file.

    Raises ConfigError, Unavailable, Refused.
    """
    s3, etcd = load(S3Settings, environ), load(EtcdSettings, environ)
    if etcd.endpoints and not s3.bucket:
        raise ConfigError("KAFSCALE_S3_BUCKET is not set, but KAFSCALE_ETCD_ENDPOINTS is")
    if not etcd.endpoints:
        _check_directory(s3, "KAFSCALE_ETCD_ENDPOINTS")
    async with opened_objects(environ) as objects, open_backup_bucket(environ) as own:
        backups = own or objects
        if etcd.endpoints:
            async with open_etcd_store(
                etcd, s3.namespace, random=random.random, patience=_PATIENCE_SECONDS
            ) as metadata:
                yield Stores(metadata, objects, s3.namespace, backups)
        else:
            async with open_sqlite(s3.data_dir / "metadata.sqlite") as metadata:
                yield Stores(metadata, objects, s3.namespace, backups)


@asynccontextmanager
async def opened_objects(environ: Mapping[str, str]) -> AsyncIterator[ObjectStore]:
    """Open the bucket or directory alone. Raises ConfigError, Unavailable, Refused."""
    s3 = load(S3Settings, environ)
    health = StoreHealth(load(HealthSettings, environ).thresholds())
    if not s3.bucket:
        _check_directory(s3, "KAFSCALE_S3_BUCKET")
    async with open_object_store(
        s3, recorder=OperationCounters(), health=health, random=random.random, patience=_PATIENCE_SECONDS
    ) as objects:
        yield objects


def _check_directory(s3: S3Settings, unset: str) -> None:
    if not s3.data_dir.is_dir():
        raise ConfigError(f"{unset} is not set, and the directory {s3.data_dir} (KAFSCALE_DATA_DIR) does not exist")
