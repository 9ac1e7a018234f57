"""What is stored, and which requests are sent, for each GB that is produced while logs are merged and compacted.

One process with MinIO has the segment interval of the production overlay. A producer writes records of 1000 bytes,
which do not compress, at a constant rate to a topic that is merged and to one that is compacted. At the end the process
reports what it stored and requested.

    python -m tests.bench.write_amplification [--minutes 60] [--rate 1.0]
"""

import json
import random
import re
import tempfile
import time
import urllib.request
from collections import defaultdict
from pathlib import Path

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers.minio import running_minio
from tests.support.broker import KafscaleBroker

_SETTINGS = {"KAFSCALE_SEGMENT_INTERVAL_MS": "10000"}
_TOPICS = {
    "merged": {"kafscale.merge.enable": "true"},
    # As the changelogs of Kafka Streams, with smaller segments.
    "compacted": {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)},
}
_PARTITIONS = 2
_RECORD_BYTES = 1000
_KEYS = 5000
_TICK_SECONDS = 0.1
_STORED = {
    "intake objects": "kafscale_storage_intake_bytes_total",
    "segments": "kafscale_storage_committed_bytes_total",
    "rewritten objects with indexes": "kafscale_indexer_rewrite_written_bytes_total",
    "all": "bytes put_if_absent",
}
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? ([0-9.e+]+)$", re.M)


def _produce(bootstrap: str, seconds: float, megabytes_per_second: float) -> int:
    """Return how many bytes of values were acknowledged."""
    dice, acked = random.Random(1), 0

    def delivered(error: object, _: object) -> None:
        nonlocal acked
        if error is not None:
            raise click.ClickException(str(error))
        acked += _RECORD_BYTES

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    began, sent = time.monotonic(), 0
    with click.progressbar(length=round(seconds), label="producing") as progress:
        while (now := time.monotonic() - began) < seconds:
            while sent < now * megabytes_per_second * 1e6:
                for topic in _TOPICS:
                    key = b"%d" % dice.randrange(_KEYS)
                    producer.produce(topic, dice.randbytes(_RECORD_BYTES), key, on_delivery=delivered)
                    sent += _RECORD_BYTES
            producer.poll(_TICK_SECONDS)
            progress.update(round(now) - progress.pos)
    producer.flush()
    return acked


def _metrics(log: Path) -> dict[str, float]:
    """Return the samples of the process by name with labels, and those of the object store by operation alone."""
    [port] = [json.loads(line)["port"] for line in log.read_text().splitlines() if '"HTTP server started"' in line]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        found: defaultdict[str, float] = defaultdict(float)
        for name, labels, value in _SAMPLE.findall(reply.read().decode()):
            found[f"{name}{{{labels}}}" if labels else name] += float(value)
            if match := re.fullmatch(r"kafscale_s3_(bytes|requests)_total", name):
                found[re.sub(r'.*operation="(\w+)".*', rf"{match[1]} \1", labels)] += float(value)
    return found


@click.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--rate", default=1.0, show_default=True, help="MB/s of both topics together.")
def main(minutes: float, rate: float) -> None:
    """Measure bytes stored and requests for each GB produced."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "minio").mkdir()
        with running_minio(directory / "minio") as minio:
            broker = KafscaleBroker(directory / "one", {**minio.broker_settings("amplification"), **_SETTINGS})
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            topics = [NewTopic(name, _PARTITIONS, 1, config=configs) for name, configs in _TOPICS.items()]
            for made in admin.create_topics(topics).values():
                made.result()
            log = directory / "one" / "broker.log"
            before = _metrics(log)
            produced = _produce(broker.bootstrap, minutes * 60, rate)
            growth = {name: value - before.get(name, 0) for name, value in _metrics(log).items()}
            broker.stop()
    click.echo(f"{produced / 1e9:.2f} GB produced in {minutes:g} minutes")
    for name, metric in _STORED.items():
        click.echo(f"{name}: {growth.get(metric, 0) / produced:.2f} bytes stored for each byte produced")
    for kind in ("merge", "compaction"):
        steps = growth.get(f'kafscale_storage_rewrite_steps_total{{kind="{kind}"}}', 0)
        click.echo(f"committed steps of {kind}: {steps:.0f}")
    requests = {name: count for name, count in growth.items() if name.startswith("requests ")}
    for name, count in sorted(requests.items()):
        click.echo(f"{name}: {count / produced * 1e9:.0f} for each GB")


if __name__ == "__main__":
    main()
