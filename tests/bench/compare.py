"""Compare KafScale with Apache Kafka: the same loads on the same machine in alternating runs, with ratios.

KafScale is measured as one process on a directory, as one process on MinIO, and as four processes (a gateway, a storage
instance, an indexer and a coordinator) with MinIO and etcd. The producers are Apache's ProducerPerformance and a
program with librdkafka. They run with acks=all and their default batches and requests in flight, idempotent and not,
and with large batches. ProducerPerformance also runs with as many requests in flight as its buffer holds. The consumer
is kcat (librdkafka), which assigns all partitions of a topic. All servers run all the time, but only one has work, and
each gets a load that does not count first. With several rounds, all loads are run once in each, and every second round
has the servers in the other order. The table has CPU time by process, which shows what limits a server even if
other work on the machine distorts the rates.

A full run takes about 45 minutes and 5 GB of disk, ``--quick`` about 3 minutes. ``--only-server`` and ``--only-load``
select parts. To compare a change with the code before it, use ``--baseline`` with a second checkout:

    git worktree add /tmp/before HEAD
    python -m tests.bench.compare --only-server four --baseline /tmp/before --only-load "1000 B, 128" --rounds 3
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from tests.bench.report import Result, render
from tests.bench.targets import NAMES, Target, load_average, start_targets
from tests.bench.usage import Usage, measured_each, touch_memory
from tests.servers.apache_kafka import java
from tests.support.clients.confluent import ConfluentClient

JAVA = "Java"
LIBRDKAFKA = "librdkafka"
_RUN_SECONDS = 300
_SUMMARY = re.compile(r"([\d.]+) records/sec .*?(\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th")
_topic_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the table. ``batch_bytes`` and ``in_flight`` are None for the defaults of the client."""

    record_bytes: int
    partitions: int
    acks: str = "all"
    client: str = JAVA
    batch_bytes: int | None = None
    in_flight: int | None = None
    idempotent: bool = False

    @property
    def name(self) -> str:
        batches = "default batches" if self.batch_bytes is None else f"{self.batch_bytes // 1024} KB batches"
        flights = "" if self.in_flight is None else f", {self.in_flight} in flight"
        size = f"{self.client}, {self.record_bytes} B, {batches}{flights}, {self.partitions} partitions"
        return f"{size}, acks={self.acks}" + (", idempotent" if self.idempotent else "")

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the producer that differ from its defaults."""
        settings = {"acks": self.acks, "enable.idempotence": str(self.idempotent).lower()}
        if self.batch_bytes is not None:
            settings["batch.size"] = str(self.batch_bytes)
        if self.in_flight is not None:
            settings["max.in.flight.requests.per.connection"] = str(self.in_flight)
        return settings


def loads(*, quick: bool) -> Iterator[Load]:
    """Return the rows of the table in order."""
    for client, idempotent, count in itertools.product([JAVA, LIBRDKAFKA], [False, True], [1] if quick else [1, 6]):
        yield Load(1000, count, client=client, idempotent=idempotent)
    yield Load(100, 1, batch_bytes=1 << 20)
    yield Load(1000, 6, batch_bytes=1 << 20)
    sizes, batches, partitions = ([100], [16384], [1]) if quick else ([100, 1000], [16384, 131072], [1, 6])
    for size, batch, count, acks in itertools.product(sizes, batches, partitions, ["1", "all"]):
        yield Load(size, count, acks=acks, batch_bytes=batch, in_flight=1000)


def produce(target: Target, load: Load, topic: str, megabytes: float) -> Result:
    """Run the producer once. Raise RuntimeError if it reports no result."""
    records = max(1, int(megabytes * 1_000_000 / load.record_bytes))
    with measured_each(target.pids) as usage:
        done = subprocess.run(
            _java(target, load, topic, records) if load.client == JAVA else _librdkafka(target, load, topic, records),
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
    summary = _SUMMARY.search(done.stdout.splitlines()[-1] if done.stdout else "")
    if done.returncode != 0 or summary is None:
        raise RuntimeError(f"the producer on {target.name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    rate = float(summary[1]) * load.record_bytes / 1e6
    return _result(f"produce: {load.name}", target, usage, rate, records * load.record_bytes / 1e9, summary.groups())


def _java(target: Target, load: Load, topic: str, records: int) -> list[str]:
    settings = {"bootstrap.servers": target.bootstrap, "buffer.memory": 256 * 1024 * 1024, **load.settings}
    return java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(load.record_bytes)),
        *("--throughput", "-1", "--producer-props", *(f"{name}={value}" for name, value in settings.items())),
        heap="1g",
    )


def _librdkafka(target: Target, load: Load, topic: str, records: int) -> list[str]:
    settings = json.dumps({"bootstrap.servers": target.bootstrap, **load.settings})
    return [sys.executable, "-m", "tests.bench.producer", topic, str(records), str(load.record_bytes), settings]


def consume(target: Target, load: Load, topic: str, megabytes: float) -> Result:
    """Read a topic that was produced with this load completely with kcat."""
    command = ["kcat", "-C", "-q", "-b", target.bootstrap, "-t", topic, "-o", "beginning", "-e", "-f", ""]
    command += ["-X", "fetch.message.max.bytes=4194304", "-X", "queued.max.messages.kbytes=262144"]
    started = time.monotonic()
    with measured_each(target.pids) as usage:
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=_RUN_SECONDS, check=True)
    rate = megabytes / (time.monotonic() - started)
    return _result(f"consume: {load.name}", target, usage, rate, megabytes / 1000, None)


def _result(
    row: str,
    target: Target,
    usage: dict[str, Usage],
    rate: float,
    gigabytes: float,
    summary: tuple[str, ...] | None,
) -> Result:
    return Result(
        row=row,
        target=target.name,
        megabytes_per_second=rate,
        p50_ms=int(summary[1]) if summary else None,
        p99_ms=int(summary[2]) if summary else None,
        cpu_seconds_per_gb={name: used.cpu_seconds / gigabytes for name, used in usage.items()},
        peak_rss_mb={name: used.peak_rss_bytes / 1e6 for name, used in usage.items()},
    )


def run_row(targets: list[Target], load: Load, megabytes: float, scratch: Path) -> list[Result]:
    """Measure each target in turn with one load. Topics produced with acks=1 are also consumed."""
    results = []
    for target in targets:
        # KafScale stores the records twice, and S3 and the producer need memory too.
        touch_memory(scratch, 4 * megabytes)
        topic = f"bench-{next(_topic_numbers)}"
        client = ConfluentClient(target.bootstrap)
        client.create_topic(topic, partitions=load.partitions, configs={"compression.type": "producer"})
        results.append(produce(target, load, topic, megabytes))
        if load.acks == "1":
            results.append(consume(target, load, topic, megabytes))
        client.delete_topic(topic)
        for result in results[-2:] if load.acks == "1" else results[-1:]:
            click.echo(f"{result.row}: {result.target}: {result.megabytes_per_second:.1f} MB/s", err=True)
    return results


@click.command()
@click.option(
    "--quick", is_flag=True, help="Only one record size and one partition, without the single process on MinIO."
)
@click.option(
    "--only-server",
    "servers",
    multiple=True,
    type=click.Choice(list(NAMES)),
    help="Measure only this server. Can be repeated.",
)
@click.option(
    "--only-load", "patterns", multiple=True, help="Run only loads whose name contains this. Can be repeated."
)
@click.option("--baseline", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Another checkout.")
@click.option("--rounds", default=1, show_default=True, help="How often all loads are run. The table has medians.")
@click.option("--megabytes", default=300.0, show_default=True, help="The payload of each run.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Also write the table to this file.")
def main(
    *,
    quick: bool,
    servers: tuple[str, ...],
    patterns: tuple[str, ...],
    baseline: Path | None,
    rounds: int,
    megabytes: float,
    output: Path | None,
) -> None:
    """Compare KafScale with Apache Kafka on this machine."""
    selected = [load for load in loads(quick=quick) if not patterns or any(each in load.name for each in patterns)]
    if not selected:
        raise click.UsageError(
            "no load has such a name; the loads are: " + "; ".join(load.name for load in loads(quick=False))
        )
    names = servers or [name for name in NAMES if not (quick and name == "minio")]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="kafscale-bench-") as scratch, ExitStack() as stack:
        targets = start_targets(stack, Path(scratch), names, baseline=baseline)
        click.echo("warming up ...", err=True)
        run_row(targets, Load(100, 1, acks="1", in_flight=1000), megabytes / 3, Path(scratch))
        before = load_average()
        # Servers become faster with what they have done before, so each load is measured early and late.
        for number, load in itertools.product(range(rounds), selected):
            results += run_row(targets[:: -1 if number % 2 else 1], load, megabytes, Path(scratch))
        click.echo(f"before: {before}; after: {load_average()}", err=True)
    table = render(results, reference=targets[0].name)
    click.echo(table)
    if output is not None:
        output.write_text(table)


if __name__ == "__main__":
    main()
