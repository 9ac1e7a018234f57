"""`kafscale intake`: shows the intakes of storage runs, which it reads from the stores directly."""

import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import click

from kafscale.config.settings import load
from kafscale.config.stores import NamespaceSettings
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.intakes import Intake, Intakes, Records, State
from kafscale_tools.cli.on_stores import run_on_stores
from kafscale_tools.cli.present import facts, printable, table, time_text

_no_metadata = click.option("--no-metadata", is_flag=True, help="Use only the bucket.")
_json = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.group()
def intake() -> None:
    """Show the intakes of storage runs, which have acknowledged records that are not in segments yet.

    Uses the settings of the services: KAFSCALE_ETCD_* and KAFSCALE_S3_*. Without KAFSCALE_ETCD_ENDPOINTS, it reads the
    SQLite file of the one-process mode, which must be stopped.
    """


@intake.command("list")
@_no_metadata
@_json
def list_intakes(*, no_metadata: bool, output: str) -> None:
    """List all intakes with their states and sizes.

    Exits with status 1 if one is damaged, or if the metadata does not know one.
    """

    async def run() -> list[Intake]:
        async with _opened(no_metadata) as intakes:
            return await intakes.all()

    found = run_on_stores(run)
    if output == "json":
        click.echo(json.dumps({"intakes": [_fields(one) for one in found]}, indent=2))
    else:
        heads = ("RUN", "STATE", "PARTITIONS", "CHECKPOINT", "END", "OBJECTS", "BYTES", "OLDEST")
        for line in table(heads, [_row(one) for one in found], left=("RUN", "STATE", "OLDEST"), indent=""):
            click.echo(line)
    _conclude(found)


@intake.command()
@click.argument("run_id", metavar="RUN")
@_no_metadata
@_json
def describe(*, run_id: str, no_metadata: bool, output: str) -> None:
    """Read and verify the intake of a run, and show the partitions that have records in it.

    Exits with status 1 if it is damaged, or if the metadata does not know it.
    """

    async def run() -> tuple[Intake, list[Records]]:
        async with _opened(no_metadata) as intakes:
            return await intakes.one(run_id)

    one, records = run_on_stores(run)
    if output == "json":
        click.echo(json.dumps({**_fields(one), "records": [asdict(log) for log in records]}, indent=2))
    else:
        for line in _described(one, records):
            click.echo(line)
    _conclude([one])


@asynccontextmanager
async def _opened(no_metadata: bool) -> AsyncIterator[Intakes]:
    from kafscale_tools.recovery.stores import opened, opened_objects  # noqa: PLC0415 - slow to import

    if no_metadata:
        namespace = load(NamespaceSettings, os.environ).namespace
        async with opened_objects(os.environ) as objects:
            yield Intakes(objects, None, namespace)
    else:
        async with opened(os.environ) as stores:
            yield Intakes(stores.objects, stores.metadata, stores.namespace)


def _row(one: Intake) -> tuple[str, ...]:
    partitions = str(one.partitions) if one.partitions >= 0 else "-"
    span = (str(one.span.start), str(one.span.end))
    oldest = time_text(one.oldest_ms)
    return one.run_id, one.state, partitions, *span, f"{one.objects:,}", f"{one.size:,}", oldest


def _fields(one: Intake) -> dict[str, Any]:
    return {
        "run_id": one.run_id,
        "state": one.state,
        "partitions": one.partitions,
        "checkpoint": one.span.start,
        "end": one.span.end,
        "objects": one.objects,
        "bytes": one.size,
        "oldest_ms": one.oldest_ms,
        "fault": one.fault,
    }


def _described(one: Intake, records: Sequence[Records]) -> Iterator[str]:
    yield f"Intake of run {one.run_id}: {one.state}"
    needed = f"{one.span.start} to {one.span.end - 1}" if one.span.start < one.span.end else "none"
    properties = [
        ("named by", f"{one.partitions} partitions" if one.partitions >= 0 else "-"),
        ("needed objects", needed),
        ("all objects", f"{one.objects:,}, {one.size:,} bytes"),
        ("oldest needed", time_text(one.oldest_ms)),
    ]
    yield from facts(properties)
    yield ""
    heads = ("TOPIC", "PARTITION", "EPOCH", "FIRST OFFSET", "LAST OFFSET", "BYTES", "NOT IN SEGMENTS")
    rows = [
        (
            printable(log.topic),
            str(log.partition),
            str(log.epoch),
            str(log.start),
            str(log.end - 1),
            f"{log.size:,}",
            f"{log.not_in_segments:,}" if log.not_in_segments >= 0 else "-",
        )
        for log in records
    ]
    yield from table(heads, rows, left=("TOPIC",), indent="")


def _conclude(found: Sequence[Intake]) -> None:
    """Raises Failed if an intake is damaged or unknown."""
    faults = [printable(one.fault) for one in found if one.fault]
    faults += [
        f"the metadata does not know the intake of run {one.run_id}: it was rolled back"
        for one in found
        if one.state is State.UNKNOWN
    ]
    if faults:
        raise Failed("; ".join(faults), Exit.FAILED)
