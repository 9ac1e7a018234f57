"""A cold read of a log of small segments before and after they are merged, and what merging costs.

One process with MinIO stores segments of 64 KiB. New processes then read the log from its first to its last record,
merge it, and read it again. The requests are those that each process reports when it stops.

    python -m tests.bench.merge_rate [--segments 5000]
"""

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers.minio import running_minio
from tests.support.broker import KafscaleBroker

_TOPIC = "merged"
_RECORD_BYTES = 1000
_SMALL = {"KAFSCALE_SEGMENT_BYTES": "64KB", "KAFSCALE_SEGMENT_INTERVAL_MS": "10000"}
_MERGING = {
    "KAFSCALE_MERGE": "on",
    "KAFSCALE_MERGE_IO_BYTES_PER_SECOND": "0",
    "KAFSCALE_REWRITE_CHECK_MS": "1000",
}
_MERGE_SECONDS = 900


def _run(
    directory: Path, bucket: Mapping[str, str], settings: Mapping[str, str], work: Callable[[KafscaleBroker], None]
) -> str:
    """Run a new process while ``work`` does, and return the requests to the object store that it reports."""
    log = directory / "broker.log"
    log.unlink(missing_ok=True)
    broker = KafscaleBroker(directory, {**bucket, **_SMALL, **settings})
    try:
        work(broker)
    finally:
        broker.stop()
    [totals] = [json.loads(line) for line in log.read_text().splitlines() if '"object store closed"' in line]
    return ", ".join(f"{name} {count}" for name, count in totals.items() if isinstance(count, int) and count)


def _produce(broker: KafscaleBroker, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    configs = {"compression.type": "producer", "max.message.bytes": "60000"}
    for made in admin.create_topics([NewTopic(_TOPIC, 1, 1, config=configs)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 50_000, "linger.ms": 20})
    body = bytes(_RECORD_BYTES)
    with click.progressbar(range(records), label="producing") as progress:
        for number in progress:
            producer.produce(_TOPIC, value=number.to_bytes(8, "big") + body)
            producer.poll(0.001 if len(producer) > 10_000 else 0)
    producer.flush()


def _read(broker: KafscaleBroker, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    began, expected = time.monotonic(), 0
    while expected < records:
        for message in consumer.consume(1000, 1):
            value = message.value()
            if value is None or int.from_bytes(value[:8], "big") != expected:
                raise click.ClickException(f"the record at {message.offset()} is not the one that was produced")
            expected += 1
    seconds = time.monotonic() - began
    consumer.close()
    click.echo(f"read in {seconds:.1f} s, {records * _RECORD_BYTES / seconds / 1e6:.0f} MB/s")


def _merge(directory: Path) -> None:
    deadline, log = time.monotonic() + _MERGE_SECONDS, directory / "broker.log"
    began = time.monotonic()
    while '"rewrite finished"' not in log.read_text():
        if time.monotonic() > deadline:
            raise click.ClickException("the log is not merged in time")
        time.sleep(0.5)
    click.echo(f"merged after {time.monotonic() - began:.1f} s")


@click.command()
@click.option("--segments", default=5000, show_default=True, help="About how many segments of 64 KiB to write.")
def main(segments: int) -> None:
    """Measure a cold read of a log before and after its segments are merged."""
    records = segments * 65
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "minio").mkdir()
        with running_minio(directory / "minio") as minio:
            one, bucket = directory / "one", minio.broker_settings("merge")
            steps: list[tuple[str, Mapping[str, str], Callable[[KafscaleBroker], None]]] = [
                ("produce", {}, lambda broker: _produce(broker, records)),
                ("read before", {}, lambda broker: _read(broker, records)),
                ("merge", _MERGING, lambda _: _merge(one)),
                ("read after", {}, lambda broker: _read(broker, records)),
            ]
            for name, settings, work in steps:
                click.echo(f"{name}: {_run(one, bucket, settings, work)}")


if __name__ == "__main__":
    main()
