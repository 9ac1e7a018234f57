"""`kafscale user`."""

import secrets
from typing import TextIO

import click

from kafscale.rpc.admin import DELETE_USER_CREDENTIALS, LIST_USERS, SET_USER_CREDENTIALS
from kafscale.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, SALT_BYTES, Mechanism, salted_password
from kafscale.v1 import admin_pb2 as pb
from kafscale_tools.cli.admin.arguments import yes
from kafscale_tools.cli.admin.output import as_json, show
from kafscale_tools.cli.admin.server import Server, asking
from kafscale_tools.cli.present import printable, table

_MECHANISMS = tuple(mechanism.value for mechanism in Mechanism)
_mechanisms = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(_MECHANISMS, case_sensitive=False),
    multiple=True,
    help="Only the credential of this mechanism. Can be repeated. Default: all.",
)


@click.group()
def user() -> None:
    """List users, set their passwords, and delete them."""


@user.command("list")
@as_json
@asking
def list_users(server: Server, output: str) -> None:
    """List all users with the mechanisms of their credentials."""
    reply = server.ask(LIST_USERS, pb.ListUsersRequest())
    heads = ("USER", "CREDENTIALS")
    rows = [
        (
            printable(each.name),
            ", ".join(f"{known.mechanism} ({known.iterations:,} iterations)" for known in each.credentials),
        )
        for each in reply.users
    ]
    show(output, reply, table(heads, rows, left=heads, indent=""))


@user.command("set")
@click.argument("name")
@click.option(
    "--password-file",
    type=click.File("r"),
    help="A file with the password, - for standard input. A line break at its end is not part of the password. "
    "Default: ask for it.",
)
@_mechanisms
@click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=LEAST_ITERATIONS,
    show_default=True,
    help="More iterations make it slower to guess the password.",
)
@asking
def set_password(
    server: Server, *, name: str, password_file: TextIO | None, mechanisms: tuple[str, ...], iterations: int
) -> None:
    """Create a user, or change its password. The password is not sent, only what SCRAM makes of it."""
    if password_file is not None:
        password = password_file.read().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise click.UsageError("the password is empty")
    request = pb.SetUserCredentialsRequest(name=name)
    for mechanism in map(Mechanism, mechanisms or _MECHANISMS):
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password.encode(), salt, iterations)
        request.credentials.append(
            pb.NewCredential(mechanism=mechanism.value, iterations=iterations, salt=salt, salted_password=salted)
        )
    server.ask(SET_USER_CREDENTIALS, request)
    click.echo(f"password of user {printable(name)} set")


@user.command()
@click.argument("name")
@_mechanisms
@yes
@asking
def delete(server: Server, *, name: str, mechanisms: tuple[str, ...], yes: bool) -> None:
    """Delete a user, or some of its credentials. Open connections of the user stay open."""
    what = f"{' and '.join(mechanisms)} of user {printable(name)}" if mechanisms else f"user {printable(name)}"
    if not yes:
        click.confirm(f"Delete {what}?", abort=True)
    server.ask(DELETE_USER_CREDENTIALS, pb.DeleteUserCredentialsRequest(name=name, mechanisms=mechanisms))
    click.echo(f"{what} deleted")
