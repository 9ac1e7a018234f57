"""Every object store, bare and wrapped as in services. One suite must pass on all of them."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kafscale.objects.availability import StoreHealth, Thresholds
from kafscale.objects.interface import ObjectStore
from kafscale.objects.local import LocalObjectStore
from kafscale.objects.memory import MemoryObjectStore
from kafscale.objects.metrics import MeteredObjectStore, OperationCounters
from kafscale.objects.retry import RetryingObjectStore
from kafscale.objects.s3 import S3ObjectStore
from kafscale.objects.s3_wire import S3Config
from tests.servers.minio import Minio

KINDS = ("memory", "local", "packed", "s3")


@pytest.fixture
def s3_config(minio: Minio) -> S3Config:
    """A fresh bucket on a real server."""
    return minio.new_bucket()


@pytest.fixture(params=[*KINDS, *(f"wrapped-{kind}" for kind in KINDS)])
def store_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def store_config(store_kind: str, request: pytest.FixtureRequest) -> S3Config | None:
    return request.getfixturevalue("s3_config") if store_kind.endswith("s3") else None


@pytest.fixture
async def store(store_kind: str, store_config: S3Config | None, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    """An empty store."""
    async with AsyncExitStack() as stack:
        bare: ObjectStore
        if store_config is not None:
            bare = await stack.enter_async_context(S3ObjectStore.open(store_config))
        elif store_kind.endswith("local"):
            bare = await stack.enter_async_context(LocalObjectStore.open(tmp_path / "data"))
        elif store_kind.endswith("packed"):
            packed = LocalObjectStore.open(tmp_path / "data", is_packed=lambda _: True, sync_packs=False)
            bare = await stack.enter_async_context(packed)
        else:
            bare = MemoryObjectStore()
        metered = MeteredObjectStore(bare, OperationCounters(), StoreHealth(Thresholds()))
        wrapped = RetryingObjectStore(metered, random.Random(1).random)
        yield wrapped if store_kind.startswith("wrapped") else bare
