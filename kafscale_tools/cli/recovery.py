"""`kafscale backup` and `kafscale restore`, which access the stores directly with the settings of the services."""

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
from kafscale_tools.cli.topic_restore import copy_topic, point_in_time, requested_copy
from kafscale_tools.recovery.backups import (
    Advance,
    Listed,
    prune_backups,
    read_manifests,
    take_backup,
)
from kafscale_tools.recovery.rebuild import LogFound, Reading, Rebuilt, Report
from kafscale_tools.recovery.restore import Restore

_json = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


def _backup_id(text: str) -> BackupId:
    found = parse_backup_id(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a snapshot; `kafscale backup --list` shows all snapshots")
    return found


@click.command()
@click.option("--keep", metavar="N", type=click.IntRange(1, 10_000), help="Then delete all but the newest N snapshots.")
@click.option("--list", "listing", is_flag=True, help="List all snapshots instead of creating one.")
@_json
def backup(*, keep: int | None, listing: bool, output: str) -> None:
    """Store a snapshot of the metadata below ~backups/ in the bucket or in KAFSCALE_BACKUP_S3_BUCKET.

    A snapshot contains all keys in etcd at one revision, except those of live processes. Services can keep running. The
    command uses the settings of the services: KAFSCALE_ETCD_* and KAFSCALE_S3_*. Without KAFSCALE_ETCD_ENDPOINTS, it
    reads the SQLite file of the one-process mode, which must be stopped.
    """
    if listing and keep is not None:
        raise click.UsageError("--list and --keep exclude each other")

    async def run(advance: Advance) -> tuple[list[Listed], list[BackupId]]:
        # Slow to import.
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
    heads = ("SNAPSHOT", "CREATED", "REVISION", "KEYS", "BYTES")
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
    for line in table(heads, rows, left=("SNAPSHOT", "CREATED"), indent=""):
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
    help="The snapshot to restore. Default: the newest one, if any.",
)
@click.option(
    "--no-snapshot",
    is_flag=True,
    help="Use only the bucket; restores no groups or offsets, and no sinks without stages.",
)
@click.option("--adopt", metavar="TOPIC", multiple=True, help="Create this topic from records without a topic object.")
@click.option("--ignore", metavar="TOPIC", multiple=True, help="Ignore records of this topic without a topic object.")
@click.option("--overwrite", is_flag=True, help="Replace an existing cluster in the metadata store.")
@click.option("--dry-run", is_flag=True, help="Only show what would be restored.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--topic", metavar="TOPIC", help="Only copy this topic, as it was at a point in time.")
@click.option(
    "--to",
    "until_ms",
    metavar="TIME",
    type=point_in_time,
    help="With --topic: the point in time. Each partition is copied up to its first later record. ISO 8601 "
    "(2026-11-22T10:00:00Z; without a zone, UTC) or milliseconds.",
)
@click.option("--into", metavar="NAME", help="With --topic: the name of the new topic.")
@click.option(
    "--parallel",
    metavar="N",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="The number of parallel reads; with --topic, of partitions copied in parallel.",
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
    """Rebuild the metadata from the bucket and a snapshot after etcd is lost.

    Topics are rebuilt from the topic objects, and logs from the segments, rewritten objects and intakes. Groups and
    their offsets come from the snapshot. All processes must be stopped. The command deletes nothing in the bucket. It
    exits with status 1 if logs have holes or objects are damaged; everything else is restored.

    With --topic, --to and --into, it creates a new topic from the state of a topic at a point in time, with the same
    offsets. It changes nothing else, and services can keep running.

    \b
    Example:
      kafscale restore --topic orders --to 2026-11-22T10:00:00Z --into orders-restored
    """
    if snapshot is not None and no_snapshot:
        raise click.UsageError("--snapshot and --no-snapshot exclude each other")
    others = bool(snapshot or no_snapshot or adopt or ignore or overwrite or dry_run or yes)
    copying = requested_copy(topic, until_ms, into, others=others)
    if copying is not None:
        copy_topic(*copying, parallel, output)
        return

    async def run() -> Rebuilt | None:
        """Return None if the user did not confirm."""
        from kafscale_tools.recovery.stores import opened  # noqa: PLC0415 - slow to import

        async with opened(os.environ) as stores:
            restoring = Restore(stores, parallel=parallel, now_ms=wall_clock_ms())
            with _bar() as report:
                rebuilt = await restoring.plan(
                    snapshot=snapshot,
                    newest=not no_snapshot,
                    adopt=adopt,
                    ignore=ignore,
                    overwrite=overwrite,
                    report=report,
                )
            if output == "table":
                _show(rebuilt, restoring)
            if dry_run:
                return rebuilt
            if not yes:
                text = "Write this metadata?" if not overwrite else "Replace the cluster's metadata with this?"
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
        summary = "missing or damaged" if dry_run else "restored, except for missing or damaged data"
        raise Failed(f"{summary}: {'; '.join(map(printable, rebuilt.damaged))}", Exit.FAILED)


def _agreed(question: str) -> bool:
    # A nursery would wrap click.Abort in a group, which click does not handle.
    with suppress(click.Abort):
        return click.confirm(question, err=True)
    return False


def _show(rebuilt: Rebuilt, restoring: Restore) -> None:
    created = time_text(restoring.manifest.backup.created_ms) if restoring.manifest else ""
    of = f"snapshot {restoring.manifest.backup}, created {created}" if restoring.manifest else "no snapshot, no groups"
    click.echo(f"Cluster {rebuilt.cluster_id}, epoch {rebuilt.epoch}; {of}\n")
    heads = ("TOPIC", "PARTITION", "LOG START", "LOG END", "REWRITTEN", "SEGMENTS", "LEFTOVER")
    rows = [
        (
            topic.info.name + (" (adopted)" if topic.adopted else "" if topic.info.live else " (being deleted)"),
            str(log.partition),
            str(log.chain.start),
            str(log.end),
            f"{_rewritten(log):,}",
            f"{len(log.chain.segments):,}",
            str(log.chain.above),
        )
        for topic in rebuilt.topics
        for log in topic.logs
    ]
    for line in table(heads, rows, left=("TOPIC",), indent=""):
        click.echo(line)


def _rewritten(log: LogFound) -> int:
    return len(log.rewritten.objects) if log.rewritten is not None else 0


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
                        "log_end": log.end,
                        "rewritten_objects": _rewritten(log),
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
    """Show a running count on a terminal. The total is not known in advance."""
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
def _bar() -> Iterator[Report]:
    """Show a progress bar of partitions on a terminal, with the number of segments read."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def segments(reading: Reading | None) -> str:
        return "" if reading is None else count(reading.segments, "segment")

    with click.progressbar(
        length=1, label="reading logs", item_show_func=segments, show_pos=True, update_min_steps=0, file=sys.stderr
    ) as bar:

        def report(reading: Reading) -> None:
            bar.length = max(reading.partitions, 1)
            bar.update(reading.done - bar.pos, reading)

        yield report
