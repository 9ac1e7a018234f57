"""The time that Spark itself needs for data from a Python source: `python -m tests.bench.spark_floor`.

RecordBatches in memory pass through Spark 4.0.0 like those of our source in `spark_compare`: from two Python workers
through sockets into the JVM. No source in Python can be faster. Results are medians after a warm-up run; wall clock
times are only valid on an idle machine. `scan_rate --cached` (storage and gRPC) and `decode_rate` measure the steps
before.
"""

import statistics
import tempfile
from pathlib import Path

import click

from tests.bench.spark_compare import LOADS, MEASURES, spark40

_SOURCE = "memory"
_MEASURES = ("sum", "scan")


@click.command()
@click.option(
    "--rounds", default=3, show_default=True, help="The number of runs of each measure. The table has medians."
)
def main(*, rounds: int) -> None:
    """Print a table of rates and CPU seconds."""
    click.echo("| measure | records | M rows/s | seconds | JVM CPU s | Python CPU s |\n|---|---|---|---|---|---|")
    sizes = sorted({(load.records, load.record_bytes) for load in LOADS}, key=lambda size: size[1])
    with tempfile.TemporaryDirectory() as scratch, spark40(Path(scratch), "", "", {_SOURCE: {}}) as spark:
        for records, record_bytes in sizes:
            for measure in _MEASURES:
                topic = f"{records}x{record_bytes}"
                runs = [spark.run(measure, records, _SOURCE, topic=topic) for _ in range(rounds + 1)][1:]
                seconds = statistics.median(run.seconds for run in runs)
                used = [statistics.median(run.cpu.get(kind, 0.0) for run in runs) for kind in ("JVM", "Python")]
                cells = [
                    MEASURES[measure],
                    f"{records / 1e6:g} M of {record_bytes} B",
                    f"{records / 1e6 / seconds:.2f}",
                ]
                click.echo("| " + " | ".join([*cells, *(f"{number:.2f}" for number in (seconds, *used))]) + " |")


if __name__ == "__main__":
    main()
