"""Writes the documents that are generated from code; ``--check`` compares instead and exits 1 with a diff.

Run in the repository: ``python -m services.cli.docs``.
"""

import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from kafscale.service.logging import LogSettings
from kafscale.service.settings import documented
from kafscale.service.stores import S3Settings
from kafscale.topics.definitions import DEFINITIONS
from services.gateway import registry
from services.gateway.settings import GatewaySettings
from services.indexer.settings import IndexerSettings
from services.storage.settings import StorageSettings

SETTINGS: dict[str, type] = {
    "Gateway": GatewaySettings,
    "Storage": StorageSettings,
    "Indexer": IndexerSettings,
    "Where objects are kept": S3Settings,
    "Logs": LogSettings,
}
"""Every settings class, under the heading that it has in docs/configuration.md."""

_DOCS = Path(__file__).resolve().parents[2] / "docs"

_CONFIGURATION = """\
# Configuration

<!-- Generated from the settings classes by `python -m services.cli.docs`; do not edit. -->

Everything is read from environment variables when a process starts. A wrong value stops the start with a message that
names the variable; nothing falls back to a default. A variable that is empty counts as not set. A `KAFSCALE_` variable
that nothing reads is warned of, with the nearest known name; those that Kubernetes makes for Services are passed over.

Sizes are plain bytes or have a unit: `KB`, `MB`, `GB`, `TB` are powers of two, with or without the `i` (`4MB` =
`4MiB` = 4194304 bytes). The one-process mode reads all of these.
"""

_TOPIC_CONFIGS = """\
# Topic configs

<!-- Generated from kafscale/topics/definitions.py by `python -m services.cli.docs`; do not edit. -->

Names, types, defaults and bounds are Apache Kafka's. An unknown name or a wrong value is refused with INVALID_CONFIG,
whether or not the config does something here.
"""


def configuration() -> str:
    """docs/configuration.md."""
    parts = [_CONFIGURATION]
    for heading, cls in SETTINGS.items():
        [(_, settings)] = documented([cls])
        rows = [
            (f"`{s.env}`", f"`{s.default_text}`" if s.default_text else "not set", s.parser.accepts, s.doc)
            for s in settings
        ]
        parts.append(f"\n## {heading}\n\n" + _table(("Variable", "Default", "Accepts", "Meaning"), rows))
    return "".join(parts)


def topic_configs() -> str:
    """docs/topic-configs.md."""
    rows = [
        (f"`{d.name}`", d.type.name.lower(), f"`{d.default}`" if d.default else "empty", d.accepts, d.effect)
        for d in sorted(DEFINITIONS.values(), key=lambda definition: definition.name)
    ]
    return _TOPIC_CONFIGS + "\n" + _table(("Config", "Type", "Default", "Accepts", "What it does here"), rows)


DOCUMENTS: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "protocol.md": registry.document,
    "topic-configs.md": topic_configs,
}


def differences() -> list[str]:
    """The lines of a diff from what stands in docs/ to what the code says; none when all is up to date."""
    lines: list[str] = []
    for name, document in DOCUMENTS.items():
        path = _DOCS / name
        kept = path.read_text().splitlines() if path.exists() else []
        lines += difflib.unified_diff(
            kept, document().splitlines(), f"docs/{name}", f"docs/{name} as generated", lineterm=""
        )
    return lines


@click.command()
@click.option("--check/--write", default=False, help="Compare with docs/ instead of writing there.")
def main(check: bool) -> None:
    """Write docs/*.md that are generated from code."""
    if not check:
        _DOCS.mkdir(exist_ok=True)
        for name, document in DOCUMENTS.items():
            (_DOCS / name).write_text(document())
        return
    lines = differences()
    for line in lines:
        click.echo(line)
    if lines:
        click.echo("docs/ is not what the code says: make generate", err=True)
        sys.exit(1)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
