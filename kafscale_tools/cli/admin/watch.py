"""`kafscale watch`: shows changes of a cluster as they happen."""

import json

import click

from kafscale.rpc.admin import WATCH_CLUSTER
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.cluster import HEALTH
from kafscale_tools.cli.admin.output import IN_PROCESS, as_json, plain
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.present import printable, time_text


@click.command()
@as_json
@asking
def watch(server: Server, *, output: str) -> None:
    """Show changes of processes, their health and partition owners until SIGINT (Ctrl-C).

    The command first shows the current processes. With -o json, each line is an object. It exits with status 7 if the
    gateway stops, or if it was too slow and missed changes.
    """

    def take(change: pb.ClusterChange) -> bool:
        click.echo(json.dumps(plain(change), ensure_ascii=False) if output == "json" else line(change))
        return False

    try:
        server.follow(WATCH_CLUSTER, pb.WatchClusterRequest(), take)
    except KeyboardInterrupt:
        return


def line(change: pb.ClusterChange) -> str:
    """Return a change as a line of text."""
    what = _member(change.member) if change.HasField("member") else _owner(change.owner)
    return f"{time_text(change.time_ms)}  {what}"


def _member(change: pb.MemberChange) -> str:
    member = change.member
    who = f"{member.service} {printable(member.address) or IN_PROCESS}"
    match change.kind:
        case pb.MemberChange.JOINED:
            return f"{who} joined"
        case pb.MemberChange.LEFT:
            return f"{who} left"
        case pb.MemberChange.CHANGED:
            state = "draining" if member.draining else "leaving" if member.leaving else "no longer drained"
            return f"{who} is {state}"
        case _:
            detail = f": {printable(member.detail)}" if member.detail else ""
            return f"{who} is {HEALTH[member.health]}{detail}"


def _owner(change: pb.OwnerChange) -> str:
    which = f"{change.topic}-{change.partition}"
    if not change.owner_run:
        return f"{which} no longer exists"
    return f"{which} is owned by {printable(change.owner) or change.owner_run} in epoch {change.epoch}"
