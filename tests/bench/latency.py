"""Latencies beside Apache Kafka: one synchronous producer, a tailing consumer, and many partitions.

- produce: one record at a time with acks=all, from the call to its acknowledgement.
- tail: from that acknowledgement until a consumer at the end of the log has the record; 0 if it has it before.
- many: five records to each of 2,000 partitions, first to partitions that nobody has used, then again.

Each server first gets a load that does not count. The client is librdkafka.

    python -m tests.bench.latency [--only-server directory] [--records 500] [--partitions 2000]
"""

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles

import click
import confluent_kafka as ck

from tests.bench.targets import NAMES, Target, load_average, start_targets
from tests.support.clients.confluent import ConfluentClient

_EACH = 5
_WARM_RECORDS = 300
_VALUE = b"x" * 100
_topic_numbers = itertools.count()


def _topic(target: Target, partitions: int) -> str:
    topic = f"latency-{next(_topic_numbers)}"
    ConfluentClient(target.bootstrap).create_topic(topic, partitions=partitions, configs={})
    return topic


def _producer(target: Target, **settings: object) -> ck.Producer:
    return ck.Producer({"bootstrap.servers": target.bootstrap, "acks": "all", "linger.ms": 0, **settings})


@contextmanager
def _tailing(target: Target, topic: str) -> Iterator[dict[int, float]]:
    """Follow partition 0 in a thread. Provide the times at which records arrived, by offset."""
    arrived: dict[int, float] = {}
    stop = threading.Event()
    consumer = ck.Consumer({"bootstrap.servers": target.bootstrap, "group.id": "latency", "fetch.wait.max.ms": 500})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])

    def follow() -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            offset = None if message is None or message.error() else message.offset()
            if offset is not None:
                arrived[offset] = time.monotonic()

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield arrived
    finally:
        stop.set()
        thread.join()
        consumer.close()


def synchronous(target: Target, records: int) -> tuple[list[float], list[float]]:
    """Return the latencies of producing and of tailing, in ms."""
    topic, producer = _topic(target, 1), _producer(target)
    with _tailing(target, topic) as arrived:
        produced: list[float] = []
        acked: list[float] = []
        for _ in range(records):
            began = time.monotonic()
            producer.produce(topic, _VALUE, partition=0)
            producer.flush()
            acked.append(time.monotonic())
            produced.append((acked[-1] - began) * 1000)
        deadline = time.monotonic() + 30
        while len(arrived) < records and time.monotonic() < deadline:
            time.sleep(0.01)
        tail = [max(0.0, arrived[offset] - at) * 1000 for offset, at in enumerate(acked)]
    return produced, tail


def many(target: Target, partitions: int) -> tuple[float, float]:
    """Return the seconds for five records to each partition, at first and again."""
    topic, producer = _topic(target, partitions), _producer(target, **{"linger.ms": 5})
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        for _, partition in itertools.product(range(_EACH), range(partitions)):
            producer.produce(topic, _VALUE, partition=partition)
            producer.poll(0)
        producer.flush()
        seconds.append(time.monotonic() - began)
    return seconds[0], seconds[1]


def _percentiles(values: Sequence[float]) -> str:
    cuts = quantiles(values, n=100)
    return f"{cuts[49]:.1f} / {cuts[98]:.1f}"


@click.command()
@click.option("--only-server", "servers", multiple=True, type=click.Choice(list(NAMES)), help="Can be repeated.")
@click.option("--records", default=500, show_default=True, help="The number of records of the synchronous producer.")
@click.option("--partitions", default=2000, show_default=True, help="The number of partitions of the large topic.")
def main(*, servers: tuple[str, ...], records: int, partitions: int) -> None:
    """Measure latencies of KafScale and Apache Kafka on this machine."""
    with tempfile.TemporaryDirectory(prefix="kafscale-bench-") as scratch, ExitStack() as stack:
        targets = start_targets(stack, Path(scratch), servers or ("kafka", "directory", "four"))
        lines = [
            "| server | produce p50 / p99 ms | tail p50 / p99 ms | many, first s | many, again s |",
            "|---|---|---|---|---|",
        ]
        for target in targets:
            click.echo(f"{target.name} ...", err=True)
            synchronous(target, _WARM_RECORDS)
            produced, tail = synchronous(target, records)
            first, again = many(target, partitions)
            cells = (target.name, _percentiles(produced), _percentiles(tail), f"{first:.1f}", f"{again:.1f}")
            lines.append("| " + " | ".join(cells) + " |")
        click.echo("\n".join(lines))
        click.echo(load_average(), err=True)


if __name__ == "__main__":
    main()
