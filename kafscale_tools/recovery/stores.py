"""The stores that the services use, opened by a command beside them or after them."""

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
    """One cluster's."""

    metadata: MetadataStore
    objects: ObjectStore
    namespace: str
    backups: ObjectStore
    """Where snapshots of the metadata are: ``objects``, or a bucket of their own."""


@asynccontextmanager
async def opened(environ: Mapping[str, str]) -> AsyncIterator[Stores]:
    """By the variables of the services. Without etcd's endpoints: the one process's SQLite file.

    Raises ConfigError, Unavailable, Refused.
    """
    s3, etcd = load(S3Settings, environ), load(EtcdSettings, environ)
    health = StoreHealth(load(HealthSettings, environ).thresholds())
    if etcd.endpoints and not s3.bucket:
        raise ConfigError("KAFSCALE_S3_BUCKET: it is not set, but KAFSCALE_ETCD_ENDPOINTS is")
    file = s3.data_dir / "metadata.sqlite"
    if not etcd.endpoints and not s3.data_dir.is_dir():
        raise ConfigError(f"KAFSCALE_ETCD_ENDPOINTS: it is not set, and there is no {s3.data_dir} (KAFSCALE_DATA_DIR)")
    async with (
        open_object_store(
            s3, recorder=OperationCounters(), health=health, random=random.random, patience=_PATIENCE_SECONDS
        ) as objects,
        open_backup_bucket(environ) as own,
    ):
        backups = own or objects
        if etcd.endpoints:
            async with open_etcd_store(
                etcd, s3.namespace, random=random.random, patience=_PATIENCE_SECONDS
            ) as metadata:
                yield Stores(metadata, objects, s3.namespace, backups)
        else:
            async with open_sqlite(file) as metadata:
                yield Stores(metadata, objects, s3.namespace, backups)
