"""What a client that offers ten times its quota costs another client: the latency of the other's acknowledgements.

One process on a directory. A producer sends single records at a constant rate. Rounds alternate: alone, beside a client
that offers as much as its producer_byte_rate, beside one that offers ten times as much, and beside that one without a
quota. The other client has batches of up to 16 KB.

    python -m tests.bench.quota_fairness [--seconds 20] [--rounds 3] [--quota 1000000]
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median, quantiles

import click
import trio
from confluent_kafka import Producer

from tests.java.against import answer
from tests.support.broker import KafscaleBroker
from tests.support.clients.confluent import ConfluentClient

_RECORDS_PER_SECOND = 200
_RECORD_BYTES = 100
_HEAVY = "heavy"
_HEAVY_RECORD_BYTES = 1000
_TIMES = 10
_SETTLES_AFTER = 12.0
"""Seconds until a client has used up what its quota allows it at first."""
_ALONE, _WITHIN, _BEYOND, _FREE = "alone", "other within its quota", "other offers ten times its quota", "without quota"

_context = get_context("spawn")


def _latencies(bootstrap: str, seconds: float) -> list[float]:
    """Produce at a constant rate, and return how long each record waited for its acknowledgement in ms."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "steady", "linger.ms": 0, "log_level": 0})
    found: list[float] = []

    def delivered(sent_at: float, error: object, _: object) -> None:
        if error is not None:
            raise click.ClickException(str(error))
        found.append((time.monotonic() - sent_at) * 1000)

    value, began, sent = bytes(_RECORD_BYTES), time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        while sent < (now - began) * _RECORDS_PER_SECOND:
            producer.produce("steady", value, on_delivery=partial(delivered, time.monotonic()))
            sent += 1
        producer.poll(0.001)
    producer.flush()
    return found


def _offer(bootstrap: str, bytes_per_second: float, stop: Event) -> None:
    """Offer records at a constant rate. Those for which the client has no space are dropped."""
    limits = {"queue.buffering.max.kbytes": 8192, "linger.ms": 5, "batch.size": 16_384, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": _HEAVY, **limits})
    value, began, offered = bytes(_HEAVY_RECORD_BYTES), time.monotonic(), 0
    while not stop.is_set():
        due = (time.monotonic() - began) * bytes_per_second / _HEAVY_RECORD_BYTES
        while offered < due:
            offered += 1
            try:
                producer.produce(_HEAVY, value)
            except BufferError:
                break
        producer.poll(0.005)
    producer.purge()


@contextmanager
def _offering(bootstrap: str, bytes_per_second: float) -> Iterator[None]:
    stop = _context.Event()
    process = _context.Process(target=_offer, args=(bootstrap, bytes_per_second, stop))
    process.start()
    try:
        time.sleep(_SETTLES_AFTER)
        yield
    finally:
        stop.set()
        process.join()


def _limit(bootstrap: str, quota: float | None) -> None:
    entity = [{"entity_type": "client-id", "entity_name": _HEAVY}]
    ops = [{"key": "producer_byte_rate", "value": quota or 0.0, "remove": quota is None}]
    entries = [{"entity": entity, "ops": ops}]
    reply = trio.run(answer, bootstrap, 49, 1, {"entries": entries, "validate_only": False})
    if reply["entries"][0]["error_code"]:
        raise click.ClickException(str(reply))


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="The length of a round.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--quota", default=1_000_000, show_default=True, help="The producer_byte_rate of the other client.")
def main(seconds: float, rounds: int, quota: int) -> None:
    """Measure acknowledgements beside a client that offers ten times its quota."""
    results: dict[str, list[tuple[float, float]]] = {_ALONE: [], _WITHIN: [], _BEYOND: [], _FREE: []}
    with tempfile.TemporaryDirectory() as scratch:
        broker = KafscaleBroker(Path(scratch) / "one", {})
        bootstrap = broker.bootstrap
        for topic in ("steady", _HEAVY):
            ConfluentClient(bootstrap).create_topic(topic, partitions=1, configs={})
        _latencies(bootstrap, 5.0)
        for _ in range(rounds):
            for kind, found in results.items():
                _limit(bootstrap, None if kind == _FREE else quota)
                offered = quota if kind == _WITHIN else _TIMES * quota
                with nullcontext() if kind == _ALONE else _offering(bootstrap, offered):
                    cuts = quantiles(_latencies(bootstrap, seconds), n=100)
                found.append((cuts[49], cuts[98]))
                click.echo(f"{kind}: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms")
        broker.stop()
    alone = median(p99 for _, p99 in results[_ALONE])
    for kind, found in results.items():
        p50, p99 = (median(each) for each in zip(*found, strict=True))
        click.echo(f"{kind}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, ratio of p99 {p99 / alone:.2f}")


if __name__ == "__main__":
    main()
