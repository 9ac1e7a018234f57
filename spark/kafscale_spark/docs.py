"""``python -m kafscale_spark.docs FILE`` writes docs/reference/spark-options.md from the tables of options.

With ``--check`` it compares instead, and exits with status 1 if the file differs.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from kafscale_spark.connection import CONNECTION_OPTIONS
from kafscale_spark.options import markdown_table, option_rows
from kafscale_spark.sink.options import SINK_OPTIONS
from kafscale_spark.source_options import SOURCE_OPTIONS

_HEADS = ("Option", "Default", "Accepts", "For", "Meaning")
_TEXT = """\
# Options of the Spark data source

<!-- Generated from the tables of options by `python -m kafscale_spark.docs`; do not edit. -->

This page lists the options of the Spark source and sink. The [tutorial](../spark/tutorial.md) shows how to use them.

Option names are not case-sensitive. An unknown option is an error, and its message names the nearest known option. An
option of Spark's Kafka source that has no meaning in KafScale, such as `kafka.bootstrap.servers`, is also an error.
"""


def document() -> str:
    """Return the content of docs/reference/spark-options.md."""
    tables = {
        "Connection": CONNECTION_OPTIONS,
        "Source": [option for option in SOURCE_OPTIONS if option not in CONNECTION_OPTIONS],
        "Sink": [option for option in SINK_OPTIONS if option not in CONNECTION_OPTIONS],
    }
    parts = [f"\n## {name}\n\n{markdown_table(_HEADS, option_rows(table))}" for name, table in tables.items()]
    return _TEXT + "".join(parts)


def main(arguments: Sequence[str]) -> int:
    checks, files = "--check" in arguments, [Path(name) for name in arguments if name != "--check"]
    if len(files) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    if not checks:
        files[0].write_text(document())
        return 0
    if files[0].read_text() == document():
        return 0
    print(f"{files[0]} is out of date; run make generate", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
