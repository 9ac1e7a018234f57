"""`kafscale cluster`, `kafscale finalize-upgrade` and `kafscale flush`."""

from collections.abc import Iterator

import click

from kafscale.metadata.topic_values import REWRITE_STATE_FORMAT
from kafscale.rpc.admin import CLUSTER_STATUS, FINALIZE_UPGRADE, FLUSH_TOPICS
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import PARTITION, yes
from kafscale_tools.cli.admin.output import IN_PROCESS, as_json, show
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.exits import Exit, Failed
from kafscale_tools.cli.present import count, printable, table, time_text

HEALTH = {
    pb.ClusterMember.UNKNOWN: "?",
    pb.ClusterMember.READY: "ready",
    pb.ClusterMember.NOT_READY: "not ready",
    pb.ClusterMember.UNREACHABLE: "unreachable",
}


@click.command()
@as_json
@asking
def cluster(server: Server, output: str) -> None:
    """Show the state format and the processes of the cluster: addresses, versions, health, and what they own."""
    reply = server.ask(CLUSTER_STATUS, pb.ClusterStatusRequest())
    show(output, reply, _lines(reply))


def _lines(reply: pb.ClusterStatusReply) -> Iterator[str]:
    without = reply.partitions_without_owner
    yield (
        f"Cluster {reply.cluster_id}, namespace {reply.namespace}: {count(reply.topics, 'topic')}, "
        f"{count(reply.partitions, 'partition')}{f', {without:,} without an owner' if without else ''}"
    )
    if reply.HasField("state_format"):
        yield _state_format(reply)
    yield ""
    heads = ("SERVICE", "ID", "ADDRESS", "VERSION", "STARTED", "HEALTH", "DETAILS")
    rows = [
        (
            each.service,
            str(each.node_id) if each.HasField("node_id") else "",
            printable(each.address) or IN_PROCESS,
            printable(each.version) or "?",
            time_text(each.started_ms),
            HEALTH[each.health] + _leaving(each),
            _details(each),
        )
        for each in reply.members
    ]
    yield from table(heads, rows, left=heads, indent="")
    for each in reply.members:
        if each.detail:
            yield f"{each.service} {printable(each.address)}: {printable(each.detail)}"


def _state_format(reply: pb.ClusterStatusReply) -> str:
    line = f"State format {reply.state_format}"
    if reply.state_format < REWRITE_STATE_FORMAT:
        line += ", logs are not compacted"
    waiting = sum(0 < each.state_format < reply.state_format for each in reply.members)
    return f"{line}; an earlier one in {count(waiting, 'storage instance')} until restarted" if waiting else line


def _leaving(member: pb.ClusterMember) -> str:
    if member.draining:
        return ", draining" if member.owned else ", drained"
    return ", leaving" if member.leaving else ""


def _details(member: pb.ClusterMember) -> str:
    match member.service:
        case "storage":
            return f"owns {count(member.owned, 'partition')}{_intake(member)}"
        case "gateway":
            return f"leads {count(member.owned, 'partition')}; " + ", ".join(map(printable, member.listeners))
        case "coordinator":
            return f"owns {member.owned} of 64 group shards"
        case _:
            return ""


def _intake(member: pb.ClusterMember) -> str:
    if not member.HasField("intake"):
        return ""
    return ", has an intake" if member.intake else ", no intake"


@click.command()
@click.option("--dry-run", is_flag=True, help="Only check whether the upgrade can be finalized.")
@yes
@as_json
@asking
def finalize_upgrade(server: Server, *, dry_run: bool, yes: bool, output: str) -> None:
    """Raise the state format of the cluster to the highest that its gateway knows, after an upgrade.

    Use it when all services run the new release. Earlier releases refuse partitions of the new format, so there is no
    way back to them. Each storage instance uses the new format from its next start on.
    """
    reply = server.ask(FINALIZE_UPGRADE, pb.FinalizeUpgradeRequest(validate_only=True))
    if not dry_run and reply.before < reply.state_format:
        if not yes:
            text = f"Raise the state format to {reply.state_format}? There is no way back to earlier releases."
            click.confirm(text, abort=True)
        request = pb.FinalizeUpgradeRequest(state_format=reply.state_format)
        reply = server.ask(FINALIZE_UPGRADE, request)
    show(output, reply, [_finalized(reply, dry_run=dry_run)])


def _finalized(reply: pb.FinalizeUpgradeReply, *, dry_run: bool) -> str:
    if reply.before == reply.state_format:
        return f"the state format is {reply.state_format} already"
    if dry_run:
        return f"the state format can be raised from {reply.before} to {reply.state_format}"
    return (
        f"state format raised from {reply.before} to {reply.state_format}; now restart the storage instances one after "
        "the other"
    )


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option("--partition", type=PARTITION, help="Flush only this partition of a single topic.")
@click.option("--all", "everything", is_flag=True, help="Flush all topics.")
@as_json
@asking
def flush(server: Server, topics: tuple[str, ...], partition: int | None, everything: bool, output: str) -> None:
    """Flush buffered records to the object store and wait until they are stored.

    When the command ends, all records that storage accepted before it are in the object store, including records
    acknowledged with acks=1.
    """
    if everything == bool(topics):
        raise click.UsageError("name topics, or use --all")
    if partition is not None and len(topics) != 1:
        raise click.UsageError("--partition needs exactly one topic")
    reply = server.ask(FLUSH_TOPICS, pb.FlushTopicsRequest(topics=topics, partition=partition))
    heads = ("TOPIC", "PARTITION", "STORED UP TO", "ERROR")
    rows = [
        (each.topic, str(each.partition), "-" if each.error else str(each.high_watermark), printable(each.error))
        for each in reply.partitions
    ]
    show(output, reply, table(heads, rows, left=("TOPIC", "ERROR"), indent=""))
    failed = sum(bool(each.error) for each in reply.partitions)
    if failed:
        raise Failed(f"{failed} of {count(len(reply.partitions), 'partition')} may not be stored", Exit.FAILED)
