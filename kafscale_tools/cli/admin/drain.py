"""`kafscale drain`: moves everything that an instance owns to the other instances."""

import click

from kafscale.rpc.admin import CANCEL_DRAIN, DRAIN_INSTANCE
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.output import as_json, progress, show
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.present import count, printable

_UNITS = {"storage": "partition", "coordinator": "shard"}
"""What the instances of each service own."""


@click.command()
@click.argument("instance")
@click.option("--wait/--no-wait", default=True, help="Wait for the end of the drain, for at most --timeout seconds.")
@click.option("--cancel", is_flag=True, help="Cancel the drain, so that the instance gets partitions or shards again.")
@as_json
@asking
def drain(server: Server, *, instance: str, wait: bool, cancel: bool, output: str) -> None:
    """Move everything that a storage instance or coordinator owns to the other instances.

    INSTANCE is an address or run id that `kafscale cluster` shows. It gets no new partitions or shards until you use
    --cancel or its process ends. If the command ends before the drain, the drain continues. Run the same command to
    wait for it again.
    """
    if cancel:
        cancelled = server.ask(CANCEL_DRAIN, pb.CancelDrainRequest(instance=instance))
        show(output, cancelled, [f"{cancelled.service} {printable(cancelled.address)} is no longer drained"])
        return
    last = pb.DrainProgress()
    with progress("moving") as move:

        def take(report: pb.DrainProgress) -> bool:
            last.CopyFrom(report)
            move(report.total - report.remaining, report.total)
            return report.done or not wait

        request = pb.DrainInstanceRequest(instance=instance)
        in_time = server.follow(DRAIN_INSTANCE, request, take, seconds=server.timeout)
    show(output, last, [_line(last)] if last.service else [])
    if not in_time:
        result = f"{_remaining(last)} remaining" if last.service else "no answer"
        text = (
            f"{result} after {server.timeout:g} s (--timeout); the drain may continue: repeat the command to wait, or "
            "use --cancel"
        )
        raise Failed(text, Exit.UNAVAILABLE)


def _line(progress: pb.DrainProgress) -> str:
    who = f"{progress.service} {printable(progress.address)}"
    if progress.done:
        return f"{who} is drained: {count(progress.total, _UNITS[progress.service])} moved"
    return f"{who} is being drained: {_remaining(progress)} remaining"


def _remaining(progress: pb.DrainProgress) -> str:
    return f"{progress.remaining:,} of {count(progress.total, _UNITS[progress.service])}"
