"""`kafscale topic`, `kafscale partition` and `kafscale config`."""

from collections.abc import Iterable, Iterator

import click

from kafscale.rpc.admin import (
    ALTER_CONFIGS,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC,
    GROW_TOPIC,
    LIST_PARTITIONS,
    LIST_TOPICS,
)
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import PARTITIONS, as_configs, configs, name_and_value, yes
from kafscale_tools.cli.admin.output import IN_PROCESS, as_json, show
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.present import count, facts, printable, table, time_text


@click.group()
def topic() -> None:
    """List, create, describe, alter and delete topics."""


@topic.command("list")
@as_json
@asking
def list_topics(server: Server, output: str) -> None:
    """List all topics, with the configs that they override."""
    reply = server.ask(LIST_TOPICS, pb.ListTopicsRequest())
    heads = ("NAME", "PARTITIONS", "CREATED", "CONFIGS")
    rows = [
        (
            each.name + (" (being deleted)" if each.deleting else ""),
            str(each.partitions),
            time_text(each.created_ms),
            _configs(each),
        )
        for each in reply.topics
    ]
    show(output, reply, table(heads, rows, left=("NAME", "CREATED", "CONFIGS"), indent=""))


@topic.command()
@click.argument("name")
@click.option("--partitions", type=PARTITIONS, help="The number of partitions. Default: that of the gateway.")
@configs
@click.option("--dry-run", is_flag=True, help="Only validate the request.")
@as_json
@asking
def create(
    server: Server,
    *,
    name: str,
    partitions: int | None,
    configs: tuple[tuple[str, str], ...],
    dry_run: bool,
    output: str,
) -> None:
    """Create a topic. If a topic of this name is still being deleted, wait for that first."""
    request = pb.CreateTopicRequest(
        name=name, partitions=partitions or 0, configs=as_configs(configs), validate_only=dry_run
    )
    reply = server.ask(CREATE_TOPIC, request)
    how = "can be created" if dry_run else "created"
    created = f"topic {name} {how} with {count(reply.topic.partitions, 'partition')}"
    show(output, reply, [created])


@topic.command()
@click.argument("name")
@as_json
@asking
def describe(server: Server, name: str, output: str) -> None:
    """Show a topic and its partitions. With -o json, show only the topic; see also `kafscale partition list`."""
    reply = server.ask(DESCRIBE_TOPIC, pb.DescribeTopicRequest(name=name))
    if output == "json":
        show(output, reply, ())
        return
    partitions = server.ask(LIST_PARTITIONS, pb.ListPartitionsRequest(topics=[name]))
    show(output, reply, _described(reply.topic, partitions.partitions))


def _described(topic: pb.TopicStatus, partitions: Iterable[pb.PartitionStatus]) -> Iterator[str]:
    yield f"Topic {topic.name}"
    properties = [
        ("id", topic.id),
        ("created", time_text(topic.created_ms)),
        ("partitions", str(topic.partitions)),
        ("configs", _configs(topic) or "no overrides"),
    ]
    yield from facts(properties)
    yield ""
    yield from _partition_lines(partitions)


@topic.command()
@click.argument("name")
@click.option("--partitions", type=PARTITIONS, help="The new number of partitions. It cannot decrease.")
@configs
@click.option("--unset", "unset", metavar="NAME", multiple=True, help="Reset a config to its default. Can be repeated.")
@asking
def alter(
    server: Server, name: str, partitions: int | None, configs: tuple[tuple[str, str], ...], unset: tuple[str, ...]
) -> None:
    """Change the configs of a topic, increase its partitions, or both. If any change is invalid, none is made."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("nothing to change: use --partitions, --config or --unset")
    change = pb.AlterConfigsRequest(topic=name, set=as_configs(configs), unset=unset)
    if partitions is not None:
        checked = pb.AlterConfigsRequest()
        checked.CopyFrom(change)
        checked.validate_only = True
        server.ask(ALTER_CONFIGS, checked)
        server.ask(GROW_TOPIC, pb.GrowTopicRequest(name=name, partitions=partitions))
        click.echo(f"topic {name} has {count(partitions, 'partition')}")
    if configs or unset:
        server.ask(ALTER_CONFIGS, change)
        click.echo(f"configs of topic {name} changed")


@topic.command()
@click.argument("name")
@yes
@asking
def delete(server: Server, name: str, yes: bool) -> None:
    """Delete a topic with all its records. When the command ends, clients no longer see the topic."""
    server.ask(DESCRIBE_TOPIC, pb.DescribeTopicRequest(name=name))
    if not yes:
        click.confirm(f"Delete topic {name} with all its records?", abort=True)
    server.ask(DELETE_TOPIC, pb.DeleteTopicRequest(name=name))
    click.echo(f"topic {name} deleted")


@click.group()
def partition() -> None:
    """Show the owners and contents of partitions."""


@partition.command("list")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@as_json
@asking
def list_partitions(server: Server, topics: tuple[str, ...], output: str) -> None:
    """List the partitions of topics, or all partitions, with owners, offsets and sizes in the object store."""
    reply = server.ask(LIST_PARTITIONS, pb.ListPartitionsRequest(topics=topics))
    show(output, reply, _partition_lines(reply.partitions))


def _partition_lines(partitions: Iterable[pb.PartitionStatus]) -> Iterator[str]:
    heads = ("TOPIC", "PARTITION", "OWNER", "EPOCH", "LOG START", "HIGH WATERMARK", "BYTES", "SEGMENTS")
    rows = [
        (
            each.topic,
            str(each.partition),
            (printable(each.owner) or IN_PROCESS) if each.owner_run else "-",
            *(f"{known:,}" if known >= 0 else "-" for known in _counters(each)),
        )
        for each in partitions
    ]
    yield from table(heads, rows, left=("TOPIC", "OWNER"), indent="")
    for each in partitions:
        if each.error:
            yield f"{each.topic}-{each.partition}: {printable(each.error)}"


def _counters(partition: pb.PartitionStatus) -> tuple[int, ...]:
    known = partition
    return known.epoch, known.log_start, known.high_watermark, known.bytes, known.segments


@click.group()
def config() -> None:
    """Describe and set the configs of topics."""


@config.command("describe")
@click.argument("topic")
@as_json
@asking
def describe_configs(server: Server, topic: str, output: str) -> None:
    """Show all configs of a topic, and whether the topic, a broker setting or the default sets them."""
    reply = server.ask(DESCRIBE_CONFIGS, pb.DescribeConfigsRequest(topic=topic))
    heads = ("NAME", "VALUE", "SOURCE")
    rows = [(each.name, printable(each.value), each.source) for each in reply.configs]
    show(output, reply, table(heads, rows, left=heads, indent=""))


@config.command("set")
@click.argument("topic")
@click.argument("configs", metavar="[NAME=VALUE]...", type=name_and_value, nargs=-1)
@click.option("--unset", "unset", metavar="NAME", multiple=True, help="Reset a config to its default. Can be repeated.")
@click.option("--dry-run", is_flag=True, help="Only validate the request.")
@asking
def set_configs(
    server: Server, topic: str, configs: tuple[tuple[str, str], ...], unset: tuple[str, ...], dry_run: bool
) -> None:
    """Change configs of a topic. Other configs keep their values. Changes take effect at once."""
    if not configs and not unset:
        raise click.UsageError("nothing to change: use NAME=VALUE or --unset")
    change = pb.AlterConfigsRequest(topic=topic, set=as_configs(configs), unset=unset, validate_only=dry_run)
    server.ask(ALTER_CONFIGS, change)
    click.echo(f"configs of topic {topic} {'can be changed' if dry_run else 'changed'}")


def _configs(topic: pb.TopicStatus) -> str:
    return ", ".join(f"{name}={printable(value)}" for name, value in sorted(topic.configs.items()))
