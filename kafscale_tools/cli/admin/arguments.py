"""Options and argument types that several commands share."""

from collections.abc import Sequence

import click

MAX_INT64 = 2**63 - 1
PARTITION = click.IntRange(0, 2**31 - 1)
PARTITIONS = click.IntRange(1, 2**31 - 1)
OFFSET = click.IntRange(0, MAX_INT64)
LIMIT = click.IntRange(1, 2**32 - 1)


def name_and_value(text: str) -> tuple[str, str]:
    """Parse ``name=value`` into a pair. Raises BadParameter."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not name=value")
    return name, value


yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
configs = click.option(
    "--config",
    "configs",
    metavar="NAME=VALUE",
    type=name_and_value,
    multiple=True,
    help="A config of the topic. Can be repeated.",
)


def as_configs(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Convert pairs to configs. Raises UsageError if a name occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise click.UsageError("a config is set twice")
    return found
