"""`kafscale restore --topic`: copies a topic, as it was at a point in time, to a new one."""

import json
import os

import click

from kafscale.clock import wall_clock_ms
from kafscale.config.settings import load
from kafscale_tools.cli.admin.group import milliseconds
from kafscale_tools.cli.admin.output import progress
from kafscale_tools.cli.on_stores import run_on_stores
from kafscale_tools.cli.present import table
from kafscale_tools.recovery.claim import CopiedLog
from kafscale_tools.recovery.point_in_time import PointInTime
from services.indexer.settings import IndexerSettings
from services.storage.settings import StorageSettings


def point_in_time(text: str) -> int:
    """Parse a time into milliseconds since 1970. Raises BadParameter."""
    try:
        return milliseconds(text)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{text!r} is not a time") from error


def requested_copy(
    topic: str | None, until_ms: int | None, into: str | None, *, others: bool
) -> tuple[str, int, str] | None:
    """Return topic, time and new name, or None if no topic is to be copied.

    ``others``: whether options that do not apply to a copy were used.
    """
    if topic is None and until_ms is None and into is None:
        return None
    if topic is None or until_ms is None or into is None:
        raise click.UsageError("--topic, --to and --into must be used together")
    if others:
        raise click.UsageError("--topic can only be combined with --to, --into, --parallel and --output")
    return topic, until_ms, into


def copy_topic(topic: str, until_ms: int, into: str, parallel: int, output: str) -> None:
    """Copy a topic and print the result. Raises Failed."""

    async def run() -> list[CopiedLog]:
        from kafscale_tools.recovery.stores import opened  # noqa: PLC0415 - slow to import

        async with opened(os.environ) as stores:
            settings = load(IndexerSettings, os.environ)
            copying = PointInTime(
                stores,
                topic=topic,
                until_ms=until_ms,
                into=into,
                parallel=parallel,
                segment_bytes=load(StorageSettings, os.environ).segment_bytes,
                index_interval=settings.interval,
                decode_bytes=settings.decode_bytes,
                now_ms=wall_clock_ms(),
            )
            logs = await copying.plan()
            total, done = sum(log.size for log in logs), 0
            with progress("restoring") as move:

                def advance(more: int) -> None:
                    nonlocal done
                    done += more
                    move(done, total)

                return await copying.copy(logs, advance)

    copied = run_on_stores(run)
    if output == "json":
        fields = [
            {
                "partition": made.partition,
                "log_start": made.start,
                "log_end": made.end,
                "left_out": made.left_out,
                "segments": made.segments,
                "bytes": made.size,
            }
            for made in copied
        ]
        click.echo(json.dumps({"topic": into, "partitions": fields}, indent=2))
        return
    heads = ("TOPIC", "PARTITION", "LOG START", "LOG END", "LEFT OUT", "SEGMENTS", "BYTES")
    rows = [
        (
            into,
            str(made.partition),
            str(made.start),
            str(made.end),
            f"{made.left_out:,}",
            f"{made.segments:,}",
            f"{made.size:,}",
        )
        for made in copied
    ]
    for line in table(heads, rows, left=("TOPIC",), indent=""):
        click.echo(line)
