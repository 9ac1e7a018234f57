"""The billable S3 requests per gigabyte: `python -m tests.bench.put_cost`.

A producer sends at a constant rate to the four services on MinIO, with a different rate, number of partitions and topic
configs in each row. ``kafscale_s3_requests_total`` of the services is divided by the bytes.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import click
import confluent_kafka as ck
import httpcore
from prometheus_client.parser import text_string_to_metric_families

from tests.servers.cluster import Cluster, running_cluster
from tests.support.clients.confluent import ConfluentClient

_RECORD = bytes(1000)
_TICK_SECONDS = 0.02
_DOLLARS_PER_1000 = {"PUT": 0.005, "GET": 0.0004, "LIST": 0.005}
"""The prices of S3 Standard in us-east-1."""
_BILLED = {
    "put_if_absent": "PUT",
    "replace_if_match": "PUT",
    "get": "GET",
    "get_range": "GET",
    "list_from": "LIST",
}


@dataclass(frozen=True, slots=True)
class Load:
    """A load. ``configs`` are those of the topic; ``rate`` is in MB/s over all ``partitions``."""

    rate: float
    partitions: int
    configs: dict[str, str]


_LOADS = [
    Load(rate, partitions, configs)
    for configs in ({}, {"flush.ms": "5000"})
    for rate, partitions in ((0.1, 1), (1, 1), (10, 1), (10, 10))
]


def _billed(cluster: Cluster) -> Counter[str]:
    """Return the billable S3 requests so far by billing class."""
    counts: Counter[str] = Counter()
    for process in (*cluster.storages, *cluster.indexers):
        text = httpcore.request("GET", f"http://{process.http}/metrics").content.decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples if family.name == "kafscale_s3_requests" else ():
                if sample.labels["operation"] in _BILLED:
                    counts[_BILLED[sample.labels["operation"]]] += int(sample.value)
    return counts


def _produce(bootstrap: str, topic: str, load: Load, seconds: float) -> int:
    """Produce a load and return the number of acked bytes."""
    acked = 0

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        nonlocal acked
        if error is None:
            acked += len(_RECORD)

    producer = ck.Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20})
    began, sent = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        while sent * len(_RECORD) < now * load.rate * 1e6:
            producer.produce(topic, _RECORD, partition=sent % load.partitions, on_delivery=delivered)
            sent += 1
        producer.poll(_TICK_SECONDS)
    producer.flush(60)
    return acked


def measure(cluster: Cluster, topic: str, load: Load, seconds: float) -> str:
    """Measure a load and return its line of the table."""
    configs = {"compression.type": "producer", **load.configs}
    ConfluentClient(cluster.bootstrap).create_topic(topic, partitions=load.partitions, configs=configs)
    _produce(cluster.bootstrap, topic, load, 1)
    before = _billed(cluster)
    acked = _produce(cluster.bootstrap, topic, load, seconds)
    per_gb = {kind: count / acked * 1e9 for kind, count in (_billed(cluster) - before).items()}
    dollars = sum(count / 1000 * _DOLLARS_PER_1000[kind] for kind, count in per_gb.items())
    cells = [
        f"{load.rate:g}",
        str(load.partitions),
        " ".join(f"`{name}={value}`" for name, value in load.configs.items()) or "defaults",
        f"{per_gb.get('PUT', 0):,.0f}",
        f"{sum(per_gb.values()) - per_gb.get('PUT', 0):,.0f}",
        f"{2 * 1e6 / per_gb['PUT']:,.0f}",
        f"{dollars:.4f}",
    ]
    return "| " + " | ".join(cells) + " |"


@contextmanager
def _cluster(directory: Path) -> Iterator[Cluster]:
    """Run a cluster without printing its logs at the end."""
    with redirect_stdout(StringIO()), running_cluster(directory, env={"KAFSCALE_LEASE_TTL_SECONDS": "10"}) as cluster:
        yield cluster


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="The duration of each row.")
def main(*, seconds: float) -> None:
    """Count the S3 requests for a gigabyte of records, by rate, partitions and flush.ms."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="kafscale-put-") as scratch, _cluster(Path(scratch) / "puts") as cluster:
        for number, load in enumerate(_LOADS):
            lines.append(measure(cluster, f"puts-{number}", load, seconds))
    click.echo("| MB/s | partitions | topic configs | PUTs per GB | other requests | KB per segment | USD per GB |")
    click.echo("|---|---|---|---|---|---|---|")
    for line in lines:
        click.echo(line)


if __name__ == "__main__":
    main()
