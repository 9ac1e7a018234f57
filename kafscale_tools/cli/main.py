"""The `kafscale` command."""

import importlib
import sys

import click

from kafscale_tools.cli.exits import EXIT_CODES

_MODULES = {
    "acl": "kafscale_tools.cli.admin.acl",
    "backup": "kafscale_tools.cli.recovery",
    "certificates": "kafscale_tools.cli.certificates",
    "cluster": "kafscale_tools.cli.admin.cluster",
    "config": "kafscale_tools.cli.admin.topic",
    "consume": "kafscale_tools.cli.records",
    "drain": "kafscale_tools.cli.admin.drain",
    "etcd-snapshot": "kafscale_tools.cli.etcd_snapshot",
    "finalize-upgrade": "kafscale_tools.cli.admin.cluster",
    "flush": "kafscale_tools.cli.admin.cluster",
    "group": "kafscale_tools.cli.admin.group",
    "inspect": "kafscale_tools.cli.inspect",
    "intake": "kafscale_tools.cli.intake",
    "partition": "kafscale_tools.cli.admin.topic",
    "produce": "kafscale_tools.cli.records",
    "restore": "kafscale_tools.cli.recovery",
    "segment": "kafscale_tools.cli.admin.segment",
    "topic": "kafscale_tools.cli.admin.topic",
    "user": "kafscale_tools.cli.admin.user",
    "watch": "kafscale_tools.cli.admin.watch",
}


class _Commands(click.Group):
    """Imports a command only when it is used, because importing all of them takes a second longer."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_MODULES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(_MODULES[cmd_name]), cmd_name.replace("-", "_"))
        return found


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EXIT_CODES,
)
@click.version_option(package_name="kafscale")
def main() -> None:
    """KafScale: Kafka-compatible streaming that stores its log as immutable segments in object storage."""


@main.command()
def run() -> None:
    """Run all services in one process.

    By default, it listens on 127.0.0.1:9092, serves the console at http://127.0.0.1:9099/, and stores its data in
    ./kafscale-data. To change this, set KAFSCALE_BROKER_ADDR, KAFSCALE_CONSOLE_ADDR, KAFSCALE_DATA_DIR,
    KAFSCALE_S3_BUCKET and other environment variables; see docs/reference/configuration.md. On SIGINT or SIGTERM it
    stores all accepted records and exits.
    """
    from services.all_in_one.main import run_all_in_one  # noqa: PLC0415 - other commands do not need it

    sys.exit(run_all_in_one())
