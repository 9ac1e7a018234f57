"""The rate at which stored batches are decoded to Arrow: `PYTHONPATH=spark python -m tests.bench.decode_rate`.

The compiled decoder and a decoder in Python run alternately in one process, so that their ratio is valid on a busy
machine. Rates are per second of CPU time. MB are of keys and values. The batches are like those of producers, 16 KB
before compression. Half of each value is random, so that codecs have work to do.
"""

import random
import time
from collections.abc import Callable

import click
import pyarrow as pa

from kafscale.records.batch import walk
from kafscale.records.codecs import Codec
from kafscale.records.record import Record, build_batch, read_records
from kafscale_spark.decode import Decoder
from kafscale_spark.pieces import Partition, Piece
from kafscale_spark.schema import COLUMNS

_BATCH_BYTES = 16_384
_MAX_BYTES = 1 << 24
_T0 = 1_700_000_000_000
_PARTITION = Partition("rate", 0)
_CODECS = (Codec.NONE, Codec.SNAPPY, Codec.ZSTD)
_PLAIN = [name for name in COLUMNS.names if name != "headers"]


def _piece(size: int, codec: Codec, megabytes: float) -> tuple[Piece, int]:
    """Return a piece with batches of records of ``size`` bytes, and the number of its records."""
    chance = random.Random(size)
    each = max(1, _BATCH_BYTES // size)
    count = max(1, int(megabytes * 1e6 / (size * each)))
    parts = []
    for base in range(0, count * each, each):
        records = []
        for number in range(base, base + each):
            value = chance.randbytes((size - 8) // 2).hex().encode().ljust(size - 8, b".")
            records.append(Record(number, _T0 + number, b"%08d" % number, value))
        parts.append(build_batch(records, base_offset=base, codec=codec))
    return Piece(b"".join(parts), "bench", 0), count * each


def _arrow(piece: Piece, columns: list[str]) -> int:
    decoder = Decoder(_PARTITION, columns)
    return sum(made.num_rows for batches in (decoder.feed(piece), decoder.finish()) for made in batches)


def _python(piece: Piece) -> int:
    """Decode record by record and convert to Arrow, the way without a compiled kernel."""
    rows = 0
    data = memoryview(piece.data)
    for position, header in walk(data):
        records = list(read_records(data[position : position + header.size], max_bytes=_MAX_BYTES))
        keys, values = pa.array([r.key for r in records]), pa.array([r.value for r in records])
        others = [[r.offset for r in records], [r.timestamp for r in records]]
        made = pa.RecordBatch.from_arrays([keys, values, *map(pa.array, others)], names=["k", "v", "o", "t"])
        rows += made.num_rows
    return rows


def _rate(read: Callable[[], int], rows: int, rounds: int) -> float:
    """Return the rows per second of CPU time in the best round."""
    best = 0.0
    for _ in range(rounds):
        started = time.process_time()
        found = read()
        best = max(best, rows / (time.process_time() - started))
        if found != rows:
            raise RuntimeError(f"got {found} of {rows} rows")
    return best


@click.command()
@click.option("--megabytes", default=64.0, show_default=True, help="The size of keys and values in each run.")
@click.option("--rounds", default=3, show_default=True)
def main(*, megabytes: float, rounds: int) -> None:
    """Print a table of rows and MB per second of CPU time."""
    warm, _ = _piece(100, Codec.NONE, 0.1)
    _arrow(warm, _PLAIN)
    click.echo("| records | codec | M rows/s | MB/s | values only, M rows/s | Python, M rows/s | ratio |")
    click.echo("|---|---|---|---|---|---|---|")
    for size in (100, 1000):
        for codec in _CODECS:
            piece, rows = _piece(size, codec, megabytes)
            few, few_rows = _piece(size, codec, megabytes / 16)
            arrow = _rate(lambda piece=piece: _arrow(piece, _PLAIN), rows, rounds)  # type: ignore[misc]
            value = _rate(lambda piece=piece: _arrow(piece, ["value"]), rows, rounds)  # type: ignore[misc]
            python = _rate(lambda few=few: _python(few), few_rows, rounds)  # type: ignore[misc]
            rates = [f"{number / 1e6:.2f}" for number in (value, python)]
            cells = [f"{size} B", codec.name.lower(), f"{arrow / 1e6:.2f}", f"{arrow * size / 1e6:.0f}"]
            click.echo("| " + " | ".join([*cells, *rates, f"{arrow / python:.1f}"]) + " |")


if __name__ == "__main__":
    main()
