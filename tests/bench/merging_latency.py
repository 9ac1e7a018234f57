"""How long acknowledgements take while segments are merged, compared with the same load without merging.

One process with MinIO. The load is half of what a producer reaches without a limit. Each round measures it with and
without merging, every second one in the other order, because the load itself varies. For each round, another topic is
filled with segments of 64 KiB. It is deleted after they were merged, so that this does not go on in the next part. With
``--control``, nothing is merged at all, which shows how much of a difference is chance. At 1 MB/s it takes three
minutes to read the segments of an object, to store it, and to read it back, and they are deleted when the next one is
stored. So merging goes on for a while before it is measured, and shorter halves measure only a part.

    python -m tests.bench.merging_latency [--seconds 120] [--rounds 4] [--lead 230] [--pace 1MB] [--control]
"""

import json
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType
from confluent_kafka.cimpl import NewTopic

from tests.servers.minio import running_minio
from tests.support.broker import KafscaleBroker
from tests.support.configs import changed

_SETTINGS = {
    "KAFSCALE_SEGMENT_BYTES": "64KB",
    "KAFSCALE_REWRITE_CHECK_MS": "1000",
    # What is merged is deleted within the measurement.
    "KAFSCALE_REWRITE_GRACE_MS": "1000",
}
_LARGE_SEGMENTS = {"segment.bytes": str(4 << 20)}
_RECORD_BYTES = 1000
_BATCH_BYTES = 16_384
_SETTLE_SECONDS = 20.0
"""How long the deletion of a topic's objects takes."""
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


def _create(bootstrap: str, topic: str, configs: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [made] = admin.create_topics([NewTopic(topic, 1, 1, config={"compression.type": "producer", **configs})]).values()
    made.result()


def _fill(bootstrap: str, topic: str, segments: int) -> None:
    """Produce small segments to a new topic."""
    _create(bootstrap, topic, {"max.message.bytes": "60000"})
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 50_000, "linger.ms": 20, "log_level": 0})
    body = bytes(_RECORD_BYTES)
    for _ in range(segments * 65):
        producer.produce(topic, body)
        producer.poll(0.001 if len(producer) > 10_000 else 0)
    producer.flush()


def _merge(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    changed(admin, topic, ("kafscale.merge.enable", AlterConfigOpType.SET, "true"))


def _delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [deleted] = admin.delete_topics([topic]).values()
    deleted.result()
    time.sleep(_SETTLE_SECONDS)


def _merges(log: Path, topic: str) -> tuple[int, int]:
    """Return how many merges of a topic have begun, and how many of them have finished."""
    events = [json.loads(line)["event"] for line in log.read_text().splitlines() if f'"{topic}-0"' in line]
    return events.count("rewrite begins"), events.count("rewrite finished")


@click.command()
@click.option("--seconds", default=120.0, show_default=True, help="The length of each half of a round.")
@click.option("--rounds", default=4, show_default=True)
@click.option("--segments", default=5000, show_default=True, help="How many segments there are to merge in a round.")
@click.option("--lead", default=230.0, show_default=True, help="For how long merging goes on before it is measured.")
@click.option("--pace", default="1MB", show_default=True, help="KAFSCALE_MERGE_IO_BYTES_PER_SECOND.")
@click.option("--control", is_flag=True, help="Merge nothing.")
def main(*, seconds: float, rounds: int, segments: int, lead: float, pace: str, control: bool) -> None:
    """Measure acknowledgements with and without merging at half load."""
    results: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        (directory / "minio").mkdir()
        with running_minio(directory / "minio") as minio:
            settings = {**_SETTINGS, "KAFSCALE_MERGE_IO_BYTES_PER_SECOND": pace}
            broker = KafscaleBroker(directory / "one", {**minio.broker_settings("latency"), **settings})
            _create(broker.bootstrap, "live", _LARGE_SEGMENTS)
            full = len(_latencies(broker.bootstrap, "live", _MEASURED_FOR, 1e9)) / _MEASURED_FOR
            click.echo(f"without a limit: {full * _RECORD_BYTES / 1e6:.1f} MB/s")
            for number in range(rounds):
                small = f"small-{number}"
                _fill(broker.bootstrap, small, segments)
                for merges in (False, True) if number % 2 == 0 else (True, False):
                    if merges and not control:
                        _merge(broker.bootstrap, small)
                        time.sleep(lead)
                    cuts = quantiles(_latencies(broker.bootstrap, "live", seconds, full / 2), n=100)
                    results[merges].append((cuts[49], cuts[98]))
                    begun, finished = _merges(directory / "one" / "broker.log", small)
                    state = f"{begun} merges began, {finished} finished" if merges else "not merging"
                    click.echo(f"{state}: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms")
                    if merges:
                        _delete(broker.bootstrap, small)
            broker.stop()
    for name, place in (("p50", 0), ("p99", 1)):
        without, with_ = (median(one[place] for one in results[merges]) for merges in (False, True))
        click.echo(f"{name}: {without:.1f} ms without, {with_:.1f} ms with merging, ratio {with_ / without:.2f}")


if __name__ == "__main__":
    main()
