"""Spark's own Kafka source on Apache Kafka beside ours on KafScale: `python -m tests.bench.spark_compare`.

KafScale is four processes with MinIO and etcd. Both have the same records, JSON padded to a size, put there by Kafka's
ProducerPerformance, of which the one has all in its segment cache and the other in the page cache; both are read by one
Spark 4.0.0 in local mode with two tasks at a time, in alternating runs after one that does not count, and written by
its sinks. A full run takes about forty minutes and 8 GB of disk, ``--quick`` some minutes. Rates are medians; the ratio
is ours to theirs. CPU seconds are those of the servers that the source or sink uses, of Spark's JVM and of its Python
processes, medians too.

A change is measured beside what was before by ``--baseline`` with a second checkout. Its source and sink, in a Spark of
their own, then take the place of Apache Kafka and of Spark's own; both read the same topics:

    git worktree add /tmp/before HEAD
    python -m tests.bench.spark_compare --baseline /tmp/before --only scan --only-load bench-1000-6 --rounds 9
"""

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kafscale_spark.slots import SLOTS
from tests.bench.targets import load_average
from tests.bench.usage import cpu_seconds, descendants
from tests.servers.apache_kafka import apache_kafka, java
from tests.servers.cluster import running_cluster
from tests.servers.spark import kafka_source_jars, spark40_python
from tests.support.clients.confluent import ConfluentClient
from tests.support.spark.session import ROOT, environment

PROGRAM = Path(__file__).parent / "spark_program.py"
THEIRS, OURS = "kafka", "kafscale"
BASELINE = "baseline"
MEASURES = {"sum": "count and sum(length(value))", "scan": "all columns to noop", "json": "JSON and filter"}
COUNT = {"count": "count(*)"}
_LOAD_SECONDS = 900
_LEVELS = ("info", "info", "info", "warning", "error")
_PAYLOADS = 10_000
_LEAST_SECONDS = 0.05
_CACHE = "2GB"
"""More than any load."""


@dataclass(frozen=True, slots=True)
class Load:
    records: int
    record_bytes: int
    partitions: int

    @property
    def topic(self) -> str:
        return f"bench-{self.record_bytes}-{self.partitions}"

    @property
    def name(self) -> str:
        return f"{self.records / 1e6:g} M of {self.record_bytes} B, {self.partitions} partitions"


LOADS = [Load(5_000_000, 100, 1), Load(5_000_000, 100, 6), Load(1_200_000, 1000, 1), Load(1_200_000, 1000, 6)]
QUICK = [Load(500_000, 100, 1)]


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds by the clock, and those of CPU by the kind of process."""

    seconds: float
    cpu: dict[str, float]


class Spark:
    """The program's process: it is asked in lines and says how long it took. ``servers``: process ids by source."""

    def __init__(self, process: "subprocess.Popen[str]", servers: dict[str, dict[str, int]]) -> None:
        self._process = process
        self._servers = servers

    def run(self, measure: str, expected: int, source: str, **question: Any) -> Taken:
        """Raises RuntimeError when Spark failed or read another number of rows."""
        before = self._cpu(source)
        seconds = self._seconds(measure, expected, source=source, **question)
        return Taken(seconds, {kind: used - before.get(kind, 0.0) for kind, used in self._cpu(source).items()})

    def _cpu(self, source: str) -> dict[str, float]:
        used = {kind: cpu_seconds(pid) for kind, pid in self._servers[source].items()}
        for pid, command in descendants(self._process.pid):
            kind = "JVM" if "java" in command.partition(" ")[0] else "Python"
            used[kind] = used.get(kind, 0.0) + cpu_seconds(pid)
        return used

    def _seconds(self, measure: str, expected: int, **question: Any) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"measure": measure, **question}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Spark ended at {measure} {question}: its messages stand above")
        answer = json.loads(line)
        if answer["rows"] not in (-1, expected):
            raise RuntimeError(f"{measure} {question}: {answer['rows']} rows of {expected}")
        return float(answer["seconds"])


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared. ``source``: its name in Spark. ``bootstrap``: brokers that have its topics."""

    name: str
    spark: Spark
    source: str
    bootstrap: str


@contextmanager
def spark40(
    directory: Path, bootstrap: str, endpoints: str, servers: dict[str, dict[str, int]], *, checkout: Path = ROOT
) -> Iterator[Spark]:
    """One that imports the source from ``checkout``."""
    directory.mkdir(exist_ok=True)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.jars": ",".join(str(jar) for jar in kafka_source_jars()),
    }
    python = str(spark40_python())
    # Spark finds the source by itself there, and would not tell it how many tasks `local[2]` runs at a time.
    path = os.pathsep.join([str(checkout / "spark"), str(checkout)])
    variables = [f"{n}={value}" for n, value in (environment(python) | {"PYTHONPATH": path, SLOTS: "2"}).items()]
    command = ["env", *variables, python, str(PROGRAM), json.dumps(settings), bootstrap, endpoints]
    # Spark makes a directory for artifacts where it is started.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory) as process:
        try:
            yield Spark(process, servers)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)
        finally:
            process.kill()


def _payloads(path: Path, record_bytes: int) -> Path:
    """Lines for ProducerPerformance to pick from."""
    chance = random.Random(record_bytes)
    with path.open("w") as lines:
        for _ in range(_PAYLOADS):
            start = json.dumps({"id": chance.randrange(10**9), "level": chance.choice(_LEVELS), "text": ""})[:-2]
            filler = chance.randbytes(record_bytes // 2).hex()[: record_bytes - len(start) - 2]
            lines.write(f'{start}{filler}"}}\n')
    return path


def _produce(bootstrap: str, load: Load, payloads: Path) -> None:
    ConfluentClient(bootstrap).create_topic(load.topic, partitions=load.partitions)
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "batch.size": 16384,
        "linger.ms": 5,
        "enable.idempotence": "false",
        "max.in.flight.requests.per.connection": 1000,
    }
    command = java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", load.topic, "--num-records", str(load.records), "--payload-file", str(payloads)),
        *("--throughput", "-1", "--producer-props", *(f"{name}={value}" for name, value in settings.items())),
        heap="512m",
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LOAD_SECONDS, check=False)
    if done.returncode != 0 or f"{load.records} records sent" not in done.stdout:
        raise RuntimeError(f"ProducerPerformance on {bootstrap} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _compared(sides: list[Side], load: Load, measure: str, what: str, rounds: int) -> str:
    taken: dict[str, list[Taken]] = {side.name: [] for side in sides}
    for turn, side in itertools.product(range(rounds + 1), sides):
        run = side.spark.run(measure, load.records, side.source, topic=load.topic)
        if turn:
            taken[side.name].append(run)
    return _row(what, load, taken, load.records / 1e6, "M rows/s", digits=2)


def _written(sides: list[Side], load: Load, rounds: int) -> str:
    taken: dict[str, list[Taken]] = {side.name: [] for side in sides}
    for turn, side in itertools.product(range(rounds + 1), sides):
        topic = f"sink-{load.topic}-{turn}-{side.name}"
        client = ConfluentClient(side.bootstrap)
        client.create_topic(topic, partitions=load.partitions)
        question = {"topic": topic, "records": load.records, "record_bytes": load.record_bytes}
        run = side.spark.run("write", load.records, side.source, **question)
        client.delete_topic(topic)
        if turn:
            taken[side.name].append(run)
    return _row("sink", load, taken, load.records * load.record_bytes / 1e6, "MB/s", digits=0)


def _measured(sides: list[Side], load: Load, only: tuple[str, ...], rounds: int) -> Iterator[str]:
    """Rows of the table."""
    for measure, what in (COUNT | MEASURES).items():
        if not only or measure in only:
            yield _compared(sides, load, measure, what, rounds)
    if not only or "sink" in only:
        yield _written(sides, load, rounds)


def _row(what: str, load: Load, taken: dict[str, list[Taken]], amount: float, unit: str, *, digits: int) -> str:
    theirs, ours = (amount / statistics.median(run.seconds for run in runs) for runs in taken.values())
    rates = f"{theirs:.{digits}f} {unit} | {ours:.{digits}f} {unit} | {ours / theirs:.2f}"
    return f"| {what} | {load.name} | {rates} | {' | '.join(map(_used, taken.values()))} |"


def _used(runs: list[Taken]) -> str:
    medians = {kind: statistics.median(run.cpu.get(kind, 0.0) for run in runs) for kind in runs[-1].cpu}
    return ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in medians.items() if seconds >= _LEAST_SECONDS)


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the records of 100 B, in one partition, and one round.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each measure; the table has their medians.")
@click.option("--only", multiple=True, type=click.Choice([*COUNT, *MEASURES, "sink"]), help="One or more measures.")
@click.option("--only-load", type=click.Choice([load.topic for load in LOADS]), help="One load.")
@click.option("--cold", is_flag=True, help="Storage keeps no segments in memory: each read fetches them from MinIO.")
@click.option("--baseline", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Another checkout.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Also write the table there.")
def main(
    *,
    quick: bool,
    rounds: int,
    only: tuple[str, ...],
    only_load: str | None,
    cold: bool,
    baseline: Path | None,
    output: Path | None,
) -> None:
    """Compare our source and sink with Spark's own, or with those of another checkout, on this machine."""
    loads = QUICK if quick else [load for load in LOADS if only_load in (None, load.topic)]
    rounds = 1 if quick else rounds
    other = ["Spark's own, Apache Kafka", "Apache Kafka"] if baseline is None else [BASELINE, "the baseline"]
    table = [
        f"| | records | {other[0]} | KafScale | ratio | CPU seconds with {other[1]} | with KafScale |",
        "|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="kafscale-spark-") as scratch, ExitStack() as stack:
        sides = _sides(stack, Path(scratch), baseline, cache="0" if cold else _CACHE)
        brokers = dict.fromkeys(side.bootstrap for side in sides)
        for load in loads:
            payloads = _payloads(Path(scratch) / f"{load.record_bytes}.jsonl", load.record_bytes)
            for bootstrap in brokers:
                click.echo(f"loading {load.name} into {bootstrap} ...", err=True)
                _produce(bootstrap, load, payloads)
            before = load_average()
            for row in _measured(sides, load, only, rounds):
                table.append(row)
                click.echo(row, err=True)
            click.echo(f"before: {before}; after: {load_average()}", err=True)
            for bootstrap in brokers:
                ConfluentClient(bootstrap).delete_topic(load.topic)
    click.echo("\n".join(table))
    if output is not None:
        output.write_text("\n".join(table) + "\n")


def _sides(stack: ExitStack, directory: Path, baseline: Path | None, *, cache: str) -> list[Side]:
    """The other one, then ours; ``stack`` stops them."""
    kafka = None if baseline is not None else stack.enter_context(apache_kafka(directory / "kafka"))
    env = {"KAFSCALE_LEASE_TTL_SECONDS": "30", "KAFSCALE_COMPRESSION_CODEC": "producer", "KAFSCALE_CACHE_SIZE": cache}
    cluster = stack.enter_context(running_cluster(directory / "four", env=env))
    minio = cluster.minio.pid
    assert minio is not None
    servers = {OURS: {"storage": cluster.storages[0].process.pid, "MinIO": minio}}
    if kafka is not None:
        servers[THEIRS] = {"broker": kafka.process.pid}
    bootstrap = "" if kafka is None else kafka.bootstrap
    endpoints = ",".join(storage.address for storage in cluster.storages)
    spark = stack.enter_context(spark40(directory / "spark", bootstrap, endpoints, servers))
    ours = Side(OURS, spark, OURS, cluster.bootstrap)
    if kafka is not None:
        return [Side(THEIRS, spark, THEIRS, kafka.bootstrap), ours]
    assert baseline is not None
    before = spark40(directory / BASELINE, bootstrap, endpoints, servers, checkout=baseline.resolve())
    return [Side(BASELINE, stack.enter_context(before), OURS, cluster.bootstrap), ours]


if __name__ == "__main__":
    sys.exit(main())
