"""`kafscale backup` and `kafscale restore`: on the stores themselves, by the settings of the services."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import click
import trio

from kafscale.clock import wall_clock_ms
from kafscale.paths import BackupId, parse_backup_id
from kafscale.process.version import kafscale_version
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.on_stores import run_on_stores
from kafscale_tools.cli.present import count, printable, table, time_text
from kafscale_tools.cli.topic_restore import copy_topic, point_in_time, wanted_copy
from kafscale_tools.recovery.backups import (
    Advance,
    Listed,
    prune_backups,
    read_manifests,
    take_backup,
)
from kafscale_tools.recovery.rebuild import Reading, Rebuilt, Tell
from kafscale_tools.recovery.restore import Restore

_json = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


def _backup_id(text: str) -> BackupId:
    found = parse_backup_id(text)
    if found is None:
        raise click.BadParameter(f"{text!r} names no snapshot; `kafscale backup --list` shows them")
    return found


@click.command()
@click.option("--keep", metavar="N", type=click.IntRange(1, 10_000), help="Delete all but the newest N afterwards.")
@click.option("--list", "listing", is_flag=True, help="Show the snapshots that there are; make none.")
@_json
def backup(*, keep: int | None, listing: bool, output: str) -> None:
    """Store a snapshot of the metadata, below ~backups/ in the bucket, or in KAFSCALE_BACKUP_S3_BUCKET.

    All of etcd's keys as they are at one revision, but for those of live processes. Services may go on. By the settings
    of the services: KAFSCALE_ETCD_*, KAFSCALE_S3_*; without KAFSCALE_ETCD_ENDPOINTS the SQLite file of a one-process
    broker, which has to be stopped for it.
    """
    if listing and keep is not None:
        raise click.UsageError("--list changes nothing: leave out --keep")

    async def run(advance: Advance) -> tuple[list[Listed], list[BackupId]]:
        # Takes as long to import as all other commands.
        from kafscale.config.backup_bucket import mark_backup_bucket  # noqa: PLC0415
        from kafscale_tools.recovery.stores import opened  # noqa: PLC0415

        async with opened(os.environ) as stores:
            if listing:
                return await read_manifests(stores.backups, stores.namespace), []
            if stores.backups is not stores.objects:
                await mark_backup_bucket(stores.backups, stores.objects, stores.namespace)
            made = await take_backup(
                stores.metadata,
                stores.objects,
                stores.namespace,
                now_ms=wall_clock_ms(),
                version=kafscale_version(),
                into=stores.backups,
                advance=advance,
            )
            if not keep:
                return [Listed(made.backup, made)], []
            return [Listed(made.backup, made)], await prune_backups(
                stores.backups, stores.namespace, keep, made=made.backup, now_ms=wall_clock_ms()
            )

    with _keys_read() as advance:
        found, gone = run_on_stores(partial(run, advance))
    if output == "json":
        fields = {"snapshots": [_fields(one) for one in found], "deleted": [str(one) for one in gone]}
        click.echo(json.dumps(fields, indent=2))
        return
    heads = ("SNAPSHOT", "MADE", "REVISION", "KEYS", "BYTES")
    rows = [
        (
            str(one.backup),
            time_text(one.backup.created_ms),
            str(one.backup.revision),
            f"{one.manifest.keys:,}" if one.manifest else "damaged",
            f"{one.manifest.size:,}" if one.manifest else "-",
        )
        for one in found
    ]
    for line in table(heads, rows, left=("SNAPSHOT", "MADE"), indent=""):
        click.echo(line)
    for one in found:
        if one.manifest is None:
            click.echo(f"{one.backup} is damaged: {printable(one.fault)}")
    if gone:
        click.echo(f"deleted: {', '.join(map(str, gone))}")


@click.command()
@click.option(
    "--snapshot",
    metavar="SNAPSHOT",
    type=_backup_id,
    help="Which one. Default: the newest, or none where there is none.",
)
@click.option("--no-snapshot", is_flag=True, help="By the bucket alone: no groups, offsets and settled sinks.")
@click.option("--adopt", metavar="TOPIC", multiple=True, help="Make a topic of segments that have no topic object.")
@click.option("--ignore", metavar="TOPIC", multiple=True, help="Leave such segments alone.")
@click.option("--overwrite", is_flag=True, help="Replace the cluster that the metadata store has.")
@click.option("--dry-run", is_flag=True, help="Show what would be restored.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--topic", metavar="TOPIC", help="Copy only this topic, as it was at a time. Services may go on.")
@click.option(
    "--to",
    "until_ms",
    metavar="TIME",
    type=point_in_time,
    help="With --topic: up to the first record of each partition that is later (2026-11-22T10:00:00Z, UTC without a "
    "zone; or milliseconds).",
)
@click.option("--into", metavar="NAME", help="With --topic: the new topic's name.")
@click.option(
    "--parallel",
    metavar="N",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="Reads at a time; with --topic, partitions.",
)
@_json
def restore(
    *,
    topic: str | None,
    until_ms: int | None,
    into: str | None,
    snapshot: BackupId | None,
    no_snapshot: bool,
    adopt: tuple[str, ...],
    ignore: tuple[str, ...],
    overwrite: bool,
    dry_run: bool,
    yes: bool,
    parallel: int,
    output: str,
) -> None:
    """Make the metadata anew, when etcd is lost: from the bucket, and from a snapshot what only that has.

    Topics are told by their objects, where logs end by their segments; groups with their offsets by the snapshot. All
    processes must be stopped. Nothing in the bucket is deleted. Ends with status 1 where logs have holes or objects are
    damaged: all else is restored.

    With --topic, --to and --into: makes a new topic of what a topic had at some time, at the same offsets. All else
    stays as it is, and services go on.

    \b
    Example:
      kafscale restore --topic orders --to 2026-11-22T10:00:00Z --into orders-restored
    """
    if snapshot is not None and no_snapshot:
        raise click.UsageError("--snapshot and --no-snapshot exclude each other")
    others = bool(snapshot or no_snapshot or adopt or ignore or overwrite or dry_run or yes)
    copying = wanted_copy(topic, until_ms, into, others=others)
    if copying is not None:
        copy_topic(*copying, parallel, output)
        return

    async def run() -> Rebuilt | None:
        """None: a person said no."""
        from kafscale_tools.recovery.stores import opened  # noqa: PLC0415 - takes as long to import as all other commands

        async with opened(os.environ) as stores:
            restoring = Restore(stores, parallel=parallel, now_ms=wall_clock_ms())
            with _bar() as tell:
                rebuilt = await restoring.plan(
                    snapshot=snapshot,
                    newest=not no_snapshot,
                    adopt=adopt,
                    ignore=ignore,
                    overwrite=overwrite,
                    tell=tell,
                )
            if output == "table":
                _show(rebuilt, restoring)
            if dry_run:
                return rebuilt
            if not yes:
                text = "Write this metadata?" if not overwrite else "Replace the cluster's metadata by this?"
                if not await trio.to_thread.run_sync(_agreed, text):
                    return None
            await restoring.write(rebuilt)
            return rebuilt

    rebuilt = run_on_stores(run)
    if rebuilt is None:
        raise click.Abort
    if output == "json":
        click.echo(json.dumps(_result(rebuilt), indent=2, ensure_ascii=False))
    elif not dry_run:
        click.echo(f"{count(len(rebuilt.topics), 'topic')} restored; start the services")
    if rebuilt.damaged:
        said = "not whole" if dry_run else "restored, but for what is missing"
        raise Failed(f"{said}: {'; '.join(map(printable, rebuilt.damaged))}", Exit.FAILED)


def _agreed(question: str) -> bool:
    # What passes a nursery comes out as a group, which click does not know.
    with suppress(click.Abort):
        return click.confirm(question, err=True)
    return False


def _show(rebuilt: Rebuilt, restoring: Restore) -> None:
    made = time_text(restoring.manifest.backup.created_ms) if restoring.manifest else ""
    of = f"snapshot {restoring.manifest.backup}, made {made}" if restoring.manifest else "no snapshot: no groups"
    click.echo(f"Cluster {rebuilt.cluster_id}, epoch {rebuilt.epoch}; {of}\n")
    heads = ("TOPIC", "PARTITION", "LOG START", "LOG END", "SEGMENTS", "NOT THE LOG'S")
    rows = [
        (
            topic.info.name + (" (adopted)" if topic.adopted else "" if topic.info.live else " (being deleted)"),
            str(log.partition),
            str(log.chain.start),
            str(log.chain.end),
            f"{len(log.chain.segments):,}",
            str(log.chain.above),
        )
        for topic in rebuilt.topics
        for log in topic.logs
    ]
    for line in table(heads, rows, left=("TOPIC",), indent=""):
        click.echo(line)


def _result(rebuilt: Rebuilt) -> dict[str, Any]:
    return {
        "cluster_id": rebuilt.cluster_id,
        "epoch": rebuilt.epoch,
        "topics": [
            {
                "name": topic.info.name,
                "adopted": topic.adopted,
                "partitions": [
                    {
                        "partition": log.partition,
                        "log_start": log.chain.start,
                        "log_end": log.chain.end,
                        "segments": len(log.chain.segments),
                        "not_the_logs": log.chain.above,
                        "holes": [list(hole) for hole in log.chain.holes],
                    }
                    for log in topic.logs
                ],
            }
            for topic in rebuilt.topics
        ],
        "damaged": rebuilt.damaged,
    }


def _fields(listed: Listed) -> dict[str, Any]:
    backup, manifest = listed.backup, listed.manifest
    fields: dict[str, Any] = {
        "snapshot": str(backup),
        "created_ms": backup.created_ms,
        "revision": backup.revision,
    }
    if manifest is None:
        return {**fields, "damaged": listed.fault}
    return {**fields, "keys": manifest.keys, "bytes": manifest.size}


@contextmanager
def _keys_read() -> Iterator[Advance]:
    """A running count on a terminal: how many there are, nobody knows before."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        click.echo(f"\r{done:,} keys read", nl=False, err=True)

    yield advance
    if done:
        click.echo(err=True)


@contextmanager
def _bar() -> Iterator[Tell]:
    """Of the partitions that are looked at, on a terminal, with how many segments were read: one may have most."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def segments(reading: Reading | None) -> str:
        return "" if reading is None else count(reading.segments, "segment")

    with click.progressbar(
        length=1, label="reading logs", item_show_func=segments, show_pos=True, update_min_steps=0, file=sys.stderr
    ) as bar:

        def tell(reading: Reading) -> None:
            bar.length = max(reading.partitions, 1)
            bar.update(reading.done - bar.pos, reading)

        yield tell
