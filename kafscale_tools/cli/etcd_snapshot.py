"""`kafscale etcd-snapshot`: stores, lists and downloads snapshots of etcd."""

import os
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click
import trio

from kafscale.config.settings import load
from kafscale.errors import KafscaleError, leaves
from kafscale.objects.retry import RetryingObjectStore
from kafscale_tools.cli.etcd_snapshots import NoSnapshot, Snapshots

_LATEST = "latest"
T = TypeVar("T")


@click.group("etcd-snapshot")
def etcd_snapshot() -> None:
    """Manage etcd snapshots in a bucket, below NAMESPACE/~etcd/.

    The bucket is KAFSCALE_BACKUP_S3_BUCKET or, if that is unset, that of the services (KAFSCALE_S3_BUCKET,
    KAFSCALE_S3_NAMESPACE and the other KAFSCALE_S3_ settings).
    """


@etcd_snapshot.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--keep", type=click.IntRange(1), help="Delete all snapshots except the newest N. Default: keep all.")
@click.option(
    "--keep-days",
    type=click.IntRange(0),
    default=30,
    show_default=True,
    help="With --keep: also keep the newest snapshot of each of the last N days.",
)
def store(file: Path, keep: int | None, keep_days: int) -> None:
    """Store FILE, a snapshot created by `etcdctl snapshot save`."""
    name = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")

    async def work(snapshots: Snapshots) -> tuple[int, list[str]]:
        size = await snapshots.store(file, name)
        return size, await snapshots.expire(keep, keep_days) if keep else []

    size, gone = _run(work, stores=True)
    click.echo(f"stored {name}: {size} bytes")
    for old in gone:
        click.echo(f"deleted {old}")


@etcd_snapshot.command("list")
def list_() -> None:
    """Print the names of all complete snapshots, oldest first."""
    for name in _run(lambda snapshots: snapshots.names()):
        click.echo(name)


@etcd_snapshot.command()
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def fetch(name: str, file: Path) -> None:
    """Download the snapshot NAME (or `latest`) to FILE, for `etcdutl snapshot restore`."""

    async def work(snapshots: Snapshots) -> tuple[str, int]:
        chosen = name
        if name == _LATEST:
            names = await snapshots.names()
            if not names:
                raise NoSnapshot("no snapshot exists")
            chosen = names[-1]
        return chosen, await snapshots.fetch(chosen, file)

    fetched, size = _run(work)
    click.echo(f"fetched {fetched}: {size} bytes")


def _run(work: Callable[[Snapshots], Awaitable[T]], *, stores: bool = False) -> T:
    """Run ``work`` with the snapshots in the bucket. ``stores``: whether it stores anything."""
    # Importing the S3 client takes as long as everything that other commands need.
    from kafscale.config.backup_bucket import mark_backup_bucket, open_backup_bucket  # noqa: PLC0415
    from kafscale.config.stores import S3Settings, open_credentials  # noqa: PLC0415
    from kafscale.objects.s3 import S3ObjectStore  # noqa: PLC0415

    async def main() -> T:
        settings = load(S3Settings, os.environ).shared()
        async with open_backup_bucket(os.environ) as own, AsyncExitStack() as stack:
            if own is not None and not stores:
                # The object store of the log may be lost.
                return await work(Snapshots(own, settings.namespace))
            credentials = await stack.enter_async_context(open_credentials(settings))
            opened = await stack.enter_async_context(S3ObjectStore.open(settings.s3_config(), credentials=credentials))
            log = RetryingObjectStore(opened, random.random)
            if own is not None:
                await mark_backup_bucket(own, log, settings.namespace)
            return await work(Snapshots(own or log, settings.namespace))

    try:
        return trio.run(main)
    except (KafscaleError, OSError, ExceptionGroup) as error:
        raise click.ClickException(str(next(leaves(error)))) from error
