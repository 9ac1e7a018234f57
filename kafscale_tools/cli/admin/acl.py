"""`kafscale acl`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import click

from kafscale.rpc.admin import CREATE_ACLS, DELETE_ACLS, LIST_ACLS
from kafscale.security.acls import ANY_HOST, CLUSTER_NAME, OPERATIONS, Operation, PatternType, Permission, ResourceType
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import yes
from kafscale_tools.cli.admin.output import as_json, show
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.present import printable, table

_MATCH = "match"
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OF_SOME_TYPE = frozenset[Operation]().union(*(OPERATIONS[type_] for type_ in (*_TYPES.values(), ResourceType.CLUSTER)))
_OPERATIONS = tuple(each.name.lower().replace("_", "-") for each in (Operation.ALL, *sorted(_OF_SOME_TYPE)))
_HEADS = ("PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN")

_Decorated = Callable[..., Any]


def _resource(help_of_all: str) -> Callable[[_Decorated], _Decorated]:
    def add(command: _Decorated) -> _Decorated:
        command = click.option("--cluster", is_flag=True, help="The cluster.")(command)
        for option in reversed(_TYPES):
            name = option.replace("-", " ")
            command = click.option(f"--{option}", help=f"The {name}, * for all. {help_of_all}")(command)
        return command

    return add


def _resource_of(names: dict[str, str | None], *, cluster: bool) -> tuple[str, str] | None:
    """The type and the name; None if no option names a resource."""
    given = [(_TYPES[option.replace("_", "-")].name, name) for option, name in names.items() if name is not None]
    if cluster:
        given.append((ResourceType.CLUSTER.name, CLUSTER_NAME))
    if len(given) > 1:
        raise click.UsageError("give one of --topic, --group, --transactional-id and --cluster")
    return given[0] if given else None


@click.group()
def acl() -> None:
    """List, create and delete ACLs. Gateways need KAFSCALE_ACLS=true."""


@acl.command("list")
@_resource("Only ACLs about it.")
@click.option("--principal", help="Only ACLs of this principal, such as User:orders.")
@as_json
@asking
def list_acls(server: Server, *, output: str, cluster: bool, principal: str | None, **names: str | None) -> None:
    """List ACLs. An ACL with a prefix is about every resource whose name begins with it."""
    reply = server.ask(LIST_ACLS, pb.ListAclsRequest(filter=_filter(names, principal, cluster=cluster)))
    show(output, reply, _table(reply.acls))


@acl.command()
@click.argument("principal")
@_resource("")
@click.option(
    "--operation",
    "operations",
    type=click.Choice(_OPERATIONS, case_sensitive=False),
    multiple=True,
    required=True,
    help="What is allowed or denied. Can be repeated.",
)
@click.option("--prefix", is_flag=True, help="The ACL is about every resource whose name begins with the given one.")
@click.option("--deny", is_flag=True, help="Deny the operations instead of allowing them.")
@click.option("--host", default=ANY_HOST, show_default=True, help="Only from this address; * for all.")
@asking
def create(
    server: Server,
    *,
    principal: str,
    cluster: bool,
    operations: tuple[str, ...],
    prefix: bool,
    deny: bool,
    host: str,
    **names: str | None,
) -> None:
    """Allow PRINCIPAL, such as User:orders, to do operations with a resource, or deny it. User:* is everybody."""
    resource = _resource_of(names, cluster=cluster)
    if resource is None:
        raise click.UsageError("give one of --topic, --group, --transactional-id and --cluster")
    type_, name = resource
    rules = [
        pb.AccessRule(
            resource_type=type_,
            pattern_type=(PatternType.PREFIXED if prefix else PatternType.LITERAL).name,
            name=name,
            principal=principal,
            host=host,
            operation=operation.upper().replace("-", "_"),
            permission=(Permission.DENY if deny else Permission.ALLOW).name,
        )
        for operation in operations
    ]
    server.ask(CREATE_ACLS, pb.CreateAclsRequest(acls=rules))
    click.echo("\n".join(_table(rules)))


@acl.command()
@_resource("Only ACLs about it.")
@click.option("--principal", help="Only ACLs of this principal, such as User:orders.")
@click.option("--all", "everything", is_flag=True, help="All ACLs of the cluster.")
@yes
@asking
def delete(
    server: Server, *, cluster: bool, principal: str | None, everything: bool, yes: bool, **names: str | None
) -> None:
    """Delete the ACLs that `list` shows with the same options."""
    wanted = _filter(names, principal, cluster=cluster)
    if not everything and wanted == pb.AccessRuleFilter():
        raise click.UsageError("give a resource, --principal or --all")
    found = server.ask(DELETE_ACLS, pb.DeleteAclsRequest(filter=wanted, validate_only=True)).acls
    if not found:
        click.echo("no ACL matches")
        return
    if not yes:
        click.echo("\n".join(_table(found)), err=True)
        click.confirm(f"Delete {_counted(found)}?", abort=True)
    gone = server.ask(DELETE_ACLS, pb.DeleteAclsRequest(filter=wanted)).acls
    click.echo(f"{_counted(gone)} deleted")


def _counted(acls: Sequence[pb.AccessRule]) -> str:
    return f"{len(acls):,} {'ACL' if len(acls) == 1 else 'ACLs'}"


def _filter(names: dict[str, str | None], principal: str | None, *, cluster: bool) -> pb.AccessRuleFilter:
    wanted = pb.AccessRuleFilter(principal=principal or "")
    resource = _resource_of(names, cluster=cluster)
    if resource is not None:
        wanted.resource_type, wanted.name = resource
        wanted.pattern_type = _MATCH
    return wanted


def _table(acls: Iterable[pb.AccessRule]) -> Iterator[str]:
    rows = [
        (
            printable(each.principal),
            printable(each.host),
            each.permission,
            each.operation,
            each.resource_type,
            printable(each.name),
            each.pattern_type,
        )
        for each in acls
    ]
    return table(_HEADS, rows, left=_HEADS, indent="")
