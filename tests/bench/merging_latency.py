"""How long acknowledgements take while segments are merged, compared with the same load without merging.

One process with MinIO. The load is half of what a producer reaches without a limit. Rounds with and without merging
alternate, and each has a topic of its own. With merging, objects of 4 MiB are made from segments of 64 KiB, so that
merging goes on during the whole round.

    python -m tests.bench.merging_latency [--seconds 60] [--rounds 3]
"""

import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.servers.minio import running_minio
from tests.support.broker import KafscaleBroker

_SETTINGS = {
    "KAFSCALE_SEGMENT_BYTES": "64KB",
    "KAFSCALE_MERGE_BYTES": "4MB",
    "KAFSCALE_REWRITE_CHECK_MS": "1000",
    "KAFSCALE_REWRITE_GRACE_MS": "5000",
}
_RECORD_BYTES = 1000
_BATCH_BYTES = 16_384
_MOST_WAITING = 2000
_MEASURED_FOR = 15.0
"""Seconds without a limit."""


def _latencies(bootstrap: str, topic: str, seconds: float, records_per_second: float) -> list[float]:
    """Produce at a constant rate, and return how long each record waited for its acknowledgement in ms."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": _BATCH_BYTES, "log_level": 0})
    found: list[float] = []

    def delivered(sent_at: float, error: object, _: object) -> None:
        if error is not None:
            raise click.ClickException(str(error))
        found.append((time.monotonic() - sent_at) * 1000)

    value, began, sent = bytes(_RECORD_BYTES), time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        due = (now - began) * records_per_second
        while sent < due and len(producer) < _MOST_WAITING:
            producer.produce(topic, value, on_delivery=partial(delivered, time.monotonic()))
            sent += 1
        producer.poll(0.001)
    producer.flush()
    return found


def _create(bootstrap: str, topic: str, *, merges: bool) -> None:
    configs = {"kafscale.merge.enable": str(merges).lower(), "compression.type": "producer"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, 1, 1, config=configs)]).values()
    made.result()


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="The length of a round.")
@click.option("--rounds", default=3, show_default=True)
def main(seconds: float, rounds: int) -> None:
    """Measure acknowledgements with and without merging at half load."""
    results: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "minio").mkdir()
        with running_minio(directory / "minio") as minio:
            broker = KafscaleBroker(directory / "one", {**minio.broker_settings("latency"), **_SETTINGS})
            _create(broker.bootstrap, "full", merges=False)
            full = len(_latencies(broker.bootstrap, "full", _MEASURED_FOR, 1e9)) / _MEASURED_FOR
            click.echo(f"without a limit: {full * _RECORD_BYTES / 1e6:.1f} MB/s")
            for number in range(rounds):
                for merges in (False, True):
                    topic = f"round-{number}-{merges}"
                    _create(broker.bootstrap, topic, merges=merges)
                    cuts = quantiles(_latencies(broker.bootstrap, topic, seconds, full / 2), n=100)
                    results[merges].append((cuts[49], cuts[98]))
                    name = "merging" if merges else "not merging"
                    click.echo(f"{name}: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms")
            broker.stop()
    for name, place in (("p50", 0), ("p99", 1)):
        without, with_ = (median(one[place] for one in results[merges]) for merges in (False, True))
        click.echo(f"{name}: {without:.1f} ms without, {with_:.1f} ms with merging, ratio {with_ / without:.2f}")


if __name__ == "__main__":
    main()
