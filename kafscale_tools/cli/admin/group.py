"""`kafscale group`."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import click

from kafscale.rpc.admin import DELETE_GROUP, DESCRIBE_GROUP, LIST_GROUPS, RESET_OFFSETS
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import MAX_INT64, yes
from kafscale_tools.cli.admin.output import IN_PROCESS, as_json, show
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.present import count, printable, table


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@click.option("--state", "states", multiple=True, help="Only groups in this state, such as Stable or Empty.")
@as_json
@asking
def list_groups(server: Server, states: tuple[str, ...], output: str) -> None:
    """List all consumer groups."""
    reply = server.ask(LIST_GROUPS, pb.ListConsumerGroupsRequest(states=states))
    heads = ("GROUP", "STATE", "TYPE", "COORDINATOR")
    rows = [_summary(each) for each in reply.groups]
    show(output, reply, table(heads, rows, left=heads, indent=""))


def _summary(group: pb.ConsumerGroupStatus) -> tuple[str, ...]:
    return (
        printable(group.group),
        group.state,
        printable(group.protocol_type) or "-",
        printable(group.coordinator) or IN_PROCESS,
    )


@group.command()
@click.argument("name")
@as_json
@asking
def describe(server: Server, name: str, output: str) -> None:
    """Show a group: its members, committed offsets and lag."""
    reply = server.ask(DESCRIBE_GROUP, pb.DescribeConsumerGroupRequest(group=name))
    show(output, reply, _described(reply))


def _described(reply: pb.DescribeConsumerGroupReply) -> Iterator[str]:
    name, state, kind, coordinator = _summary(reply.group)
    protocol = f", assigned by {printable(reply.protocol)}" if reply.protocol else ""
    known = [each.lag for each in reply.offsets if each.lag >= 0]
    behind = ("at least " if len(known) < len(reply.offsets) else "") + count(sum(known), "record")
    yield f"Group {name}: {state}, type {kind}{protocol}, coordinator {coordinator}; {behind} behind"
    yield ""
    heads = ("TOPIC", "PARTITION", "COMMITTED", "HIGH WATERMARK", "LAG", "MEMBER")
    rows = [
        (
            printable(each.topic),
            str(each.partition),
            *(f"{known:,}" if known >= 0 else "-" for known in (each.committed, each.high_watermark, each.lag)),
            printable(each.member_id) or "-",
        )
        for each in reply.offsets
    ]
    yield from table(heads, rows, left=("TOPIC", "MEMBER"), indent="")
    if reply.members:
        yield ""
        yield from table(_MEMBER_HEADS, [_member(each) for each in reply.members], left=_MEMBER_HEADS, indent="")


_MEMBER_HEADS = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "ASSIGNED")


def _member(member: pb.ConsumerGroupMember) -> tuple[str, ...]:
    texts = (member.member_id, member.instance_id, member.client_id, member.client_host)
    partitions = sum(len(each.partitions) for each in member.assigned)
    return (*(printable(text) or "-" for text in texts), count(partitions, "partition"))


def reset_to(text: str) -> dict[str, Any]:
    """Parse a position into a field of ResetOffsetsRequest. Raises BadParameter."""
    if text in ("earliest", "latest"):
        return {text: True}
    kind, _, value = text.partition("=")
    try:
        match kind:
            case "offset":
                return {"offset": _int64(value)}
            case "shift":
                return {"shift_by": _int64(value)}
            case "time":
                return {"timestamp_ms": milliseconds(value)}
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {'a time' if kind == 'time' else 'an integer'}") from error
    raise click.BadParameter(f"{text!r} is not earliest, latest, offset=N, shift=N or time=...")


def _int64(text: str) -> int:
    """Parse a 64-bit integer. Raises ValueError."""
    number = int(text)
    if not -MAX_INT64 <= number <= MAX_INT64:
        raise ValueError(text)
    return number


def milliseconds(text: str) -> int:
    """Parse a number of milliseconds, or an ISO 8601 time, which is UTC if it has no zone. Raises ValueError."""
    if text.isdecimal():
        return _int64(text)
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _topic(text: str) -> pb.ResetTopic:
    """Parse ``TOPIC`` or ``TOPIC:0,1``. Raises BadParameter."""
    name, colon, numbers = text.partition(":")
    try:
        return pb.ResetTopic(topic=name, partitions=map(int, numbers.split(",")) if colon else ())
    except ValueError as error:
        raise click.BadParameter(f"{numbers!r} is not a list of partitions") from error


@group.command()
@click.argument("name")
@click.option(
    "--to",
    "where",
    metavar="WHERE",
    type=reset_to,
    required=True,
    help="earliest, latest, offset=N, shift=N (negative: back), or time=... for the first record at or after a time "
    "(ISO 8601; without a zone, UTC; or milliseconds).",
)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:PARTITION,...]",
    type=_topic,
    multiple=True,
    help="Only this topic, or these partitions of it. Can be repeated. Default: all partitions with committed offsets.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be set.")
@yes
@as_json
@asking
def reset(
    server: Server,
    *,
    name: str,
    where: dict[str, Any],
    topics: tuple[pb.ResetTopic, ...],
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Set the offsets of a group that has no members. An offset outside a log is moved to the nearer end."""
    request = pb.ResetOffsetsRequest(group=name, topics=topics, validate_only=True, **where)
    if dry_run or not yes:
        reply = server.ask(RESET_OFFSETS, request)
        if dry_run:
            show(output, reply, _moves(reply.offsets))
            return
        click.echo("\n".join(_moves(reply.offsets)), err=output == "json")
        click.confirm(f"Set these offsets of group {name}?", abort=True, err=output == "json")
    request.validate_only = False
    reply = server.ask(RESET_OFFSETS, request)
    show(output, reply, _moves(reply.offsets) if yes else [f"offsets of group {name} set"])


def _moves(offsets: Iterable[pb.ResetOffset]) -> Iterator[str]:
    rows = [
        (each.topic, str(each.partition), f"{each.before:,}" if each.before >= 0 else "-", f"{each.after:,}")
        for each in offsets
    ]
    return table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), rows, left=("TOPIC",), indent="")


@group.command()
@click.argument("name")
@yes
@asking
def delete(server: Server, name: str, yes: bool) -> None:
    """Delete a group that has no members, with all its offsets."""
    if not yes:
        click.confirm(f"Delete group {printable(name)} with all its offsets?", abort=True)
    server.ask(DELETE_GROUP, pb.DeleteConsumerGroupRequest(group=name))
    click.echo(f"group {printable(name)} deleted")
