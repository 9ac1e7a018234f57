"""`kafscale drain`: an instance gives what it has to the others, before it is taken away."""

import click

from kafscale.rpc.admin import CANCEL_DRAIN, DRAIN_INSTANCE
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.output import as_json, progress, show
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.present import count, printable

_OF = {"storage": "partition", "coordinator": "shard"}
"""What instances have."""


@click.command()
@click.argument("instance")
@click.option("--wait/--no-wait", default=True, help="Wait until others have all of it, for --timeout seconds.")
@click.option("--cancel", is_flag=True, help="Let it be given partitions again.")
@as_json
@asking
def drain(server: Server, *, instance: str, wait: bool, cancel: bool, output: str) -> None:
    """Have a storage instance or a coordinator give all that it has to the others.

    INSTANCE is an address or a run id of `kafscale cluster`. It is given nothing more until --cancel, or until its
    process ends. When the command ends before all is moved, the drain goes on: the same command waits for it.
    """
    if cancel:
        cancelled = server.ask(CANCEL_DRAIN, pb.CancelDrainRequest(instance=instance))
        show(output, cancelled, [f"{cancelled.service} {printable(cancelled.address)} is given its share again"])
        return
    last = pb.DrainProgress()
    with progress("moving") as move:

        def take(told: pb.DrainProgress) -> bool:
            last.CopyFrom(told)
            move(told.total - told.remaining, told.total)
            return told.done or not wait

        request = pb.DrainInstanceRequest(instance=instance)
        in_time = server.follow(DRAIN_INSTANCE, request, take, seconds=server.timeout)
    show(output, last, [_line(last)] if last.service else [])
    if not in_time:
        left = f"{_left(last)} left" if last.service else "no answer"
        text = f"{left} after {server.timeout:g} s (--timeout); the drain may go on: wait again, or --cancel it"
        raise Failed(text, Exit.UNAVAILABLE)


def _line(progress: pb.DrainProgress) -> str:
    who = f"{progress.service} {printable(progress.address)}"
    if progress.done:
        return f"{who} is drained: {count(progress.total, _OF[progress.service])} moved"
    return f"{who} is being drained: {_left(progress)} left"


def _left(progress: pb.DrainProgress) -> str:
    return f"{progress.remaining:,} of {count(progress.total, _OF[progress.service])}"
