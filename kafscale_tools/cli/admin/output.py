"""The output of commands: tables or JSON, and progress bars."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from google.protobuf.message import Message

IN_PROCESS = "(in process)"
"""Replaces the address of a service in the process that answers."""

as_json = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json: the whole reply, with the field names of protos/kafscale/v1/admin.proto.",
)


def show(output: str, reply: Message, lines: Iterable[str]) -> None:
    """Print the reply as JSON, or as ``lines`` of text."""
    if output == "json":
        click.echo(json.dumps(plain(reply), indent=2, ensure_ascii=False))
        return
    for line in lines:
        click.echo(line)


def plain(message: Message) -> dict[str, Any]:
    """Return all fields as JSON values. Bytes are base64.

    Unlike in ProtoJSON, 64-bit integers are numbers and unset fields are null.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.has_presence and not message.HasField(field.name):
        return None
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(sorted(value.items()))
    return [_value(field, each) for each in value] if field.is_repeated else _value(field, value)


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value if field.enum_type is None else field.enum_type.values_by_number[value].name


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that reports a position and a length. On a terminal, it updates a progress bar on stderr."""
    if not sys.stderr.isatty():
        yield lambda position, length: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def move(position: int, length: int) -> None:
            bar.length = max(length, 1)
            bar.update(position - bar.pos)

        yield move
