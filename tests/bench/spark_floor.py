"""What Spark itself takes for what a source in Python gives it: `python -m tests.bench.spark_floor`.

RecordBatches that are in memory already go through Spark 4.0.0 as those of our source do in `spark_compare`: by two
Python workers and their sockets into the JVM. No source in Python is faster there, whatever it reads from. Seconds by
the clock hold on a machine that does nothing else; medians, after one run that does not count. What comes before is
measured by `scan_rate --cached` (storage and gRPC) and by `decode_rate`.
"""

import statistics
import tempfile
from pathlib import Path

import click

from tests.bench.spark_compare import LOADS, MEASURES, spark40

_SOURCE = "memory"
_MEASURES = ("sum", "scan")


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Runs of each measure; the table has their medians.")
def main(*, rounds: int) -> None:
    """Print a table of rates and CPU seconds."""
    click.echo("| | records | M rows/s | seconds | CPU seconds: JVM | Python |\n|---|---|---|---|---|---|")
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
