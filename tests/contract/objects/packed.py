"""A local directory whose objects all share files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kafscale.objects.local import LocalObjectStore


@asynccontextmanager
async def opened(directory: Path, *, sync: bool = False) -> AsyncIterator[LocalObjectStore]:
    async with LocalObjectStore.open(directory, is_packed=lambda _: True, sync_packs=sync) as store:
        yield store


def files(directory: Path) -> list[Path]:
    return sorted((directory / "packs").iterdir())
