"""The `kafscale` command."""

import sys

import click

from services.cli.admin.cluster import cluster, flush
from services.cli.admin.drain import drain
from services.cli.admin.group import group
from services.cli.admin.segment import segment
from services.cli.admin.server import EXIT_CODES
from services.cli.admin.topic import config, partition, topic
from services.cli.admin.watch import watch
from services.cli.etcd_snapshot import etcd_snapshot
from services.cli.inspect import inspect
from services.cli.records import consume, produce
from services.cli.recovery import backup, restore


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=EXIT_CODES)
@click.version_option(package_name="kafscale")
def main() -> None:
    """KafScale: Kafka-protocol streaming whose log is immutable segments in object storage."""


@main.command()
def run() -> None:
    """Run a whole broker as one process.

    Listens on 127.0.0.1:9092 and keeps its log in ./kafscale-data, unless environment variables say otherwise:
    KAFSCALE_BROKER_ADDR, KAFSCALE_DATA_DIR, KAFSCALE_S3_BUCKET and the others in docs/configuration.md. Ends on SIGINT
    or SIGTERM, when all that it took in is stored.
    """
    from services.dev.main import run_dev  # noqa: PLC0415 - the broker's modules are not for every command to import

    sys.exit(run_dev())


for command in (
    cluster,
    topic,
    partition,
    segment,
    group,
    config,
    drain,
    watch,
    flush,
    produce,
    consume,
    backup,
    restore,
    etcd_snapshot,
    inspect,
):
    main.add_command(command)
