"""The cost of a Produce request in a broker, without a client library: `python -m tests.bench.request_cost`.

A socket sends the same prepared request repeatedly, with a window of requests in flight, in turn to Apache Kafka, to
KafScale on a local directory and to KafScale's four services. On a busy machine, CPU time per request varies less than
throughput. With ``--partitions``, each request has a batch for each of so many partitions. ``--only-server`` and
``--baseline`` work as in `tests.bench.compare`.
"""

import socket
import struct
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import click

from kafscale.records.record import Record, build_batch
from tests.bench.report import by_process
from tests.bench.targets import NAMES, Target, start_targets
from tests.bench.usage import measured_each, touch_memory
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message, ProduceOptions

_TOPIC = "cost"
_VERSION = 7
_RECEIVE_BYTES = 1 << 20
_RECORD_BYTES = 1000
_MOST_IN_FLIGHT_BYTES = 12_000_000  # a partition always accepts this much, whatever the store does
_RESULT_BYTES = 30
"""The size of the result of a partition: its index, error code, base offset, append time and log start."""


def produce_request(batch: bytes, acks: int, partitions: int) -> tuple[bytes, bytes]:
    """Return a Produce v7 frame with the batch for each partition, split where its correlation id of 4 bytes is."""
    name = _TOPIC.encode()
    body = struct.pack(">hhiih", -1, acks, 30_000, 1, len(name)) + name + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">ii", index, len(batch)) + batch for index in range(partitions))
    rest = struct.pack(">h", -1) + body
    return struct.pack(">ihh", 8 + len(rest), 0, _VERSION), rest


def send_all(bootstrap: str, batch: bytes, *, partitions: int, acks: int, count: int, window: int) -> float:
    """Return the seconds from the first request to the last reply. Raise RuntimeError if one is rejected."""
    host, _, port = bootstrap.rpartition(":")
    before, after = produce_request(batch, acks, partitions)
    room = threading.Semaphore(window)
    failures: list[str] = []
    with socket.create_connection((host, int(port))) as connection:
        reader = threading.Thread(target=_receive, args=(connection, partitions, count, room, failures))
        reader.start()
        started = time.perf_counter()
        for correlation_id in range(count):
            room.acquire()
            if failures:
                break
            connection.sendall(b"".join((before, correlation_id.to_bytes(4, "big"), after)))
        reader.join()
        seconds = time.perf_counter() - started
    if failures:
        raise RuntimeError(failures[0])
    return seconds


def _receive(
    connection: socket.socket, partitions: int, count: int, room: threading.Semaphore, failures: list[str]
) -> None:
    received = bytearray()
    # size, correlation id, topic count, name, partition count, then for each partition its index and the error code.
    first_error_at = 4 + 4 + 4 + 2 + len(_TOPIC) + 4 + 4
    errors_at = [first_error_at + _RESULT_BYTES * index for index in range(partitions)]
    for _ in range(count):
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            data = connection.recv(_RECEIVE_BYTES)
            if not data:
                failures.append("the broker closed the connection")
                room.release()
                return
            received += data
        errors = [int.from_bytes(received[at : at + 2], "big", signed=True) for at in errors_at]
        if any(errors):
            failures.append(f"rejected with error codes {errors}")
            room.release()
            return
        del received[: 4 + int.from_bytes(received[:4], "big")]
        room.release()


def measure(target: Target, batch_bytes: int, *, partitions: int, acks: int, megabytes: float, window: int) -> str:
    """Measure a load and return its line of the table."""
    records = max(1, batch_bytes // _RECORD_BYTES)
    now = time.time_ns() // 1_000_000
    some = (Record(offset=i, timestamp=now, key=None, value=bytes(_RECORD_BYTES)) for i in range(records))
    batch = build_batch(some, base_offset=0)
    count = max(1, int(megabytes * 1e6 / (partitions * len(batch))))
    window = max(1, min(window, _MOST_IN_FLIGHT_BYTES // len(batch)))
    with measured_each(target.pids) as usage:
        seconds = send_all(target.bootstrap, batch, partitions=partitions, acks=acks, count=count, window=window)
    total = count * partitions * len(batch)
    cells = [
        f"{batch_bytes // 1024} KB, acks={acks}",
        target.name,
        f"{total / seconds / 1e6:.0f}",
        f"{sum(used.cpu_seconds for used in usage.values()) / (count * partitions) * 1e6:.0f}",
        by_process({name: used.cpu_seconds / total * 1e9 for name, used in usage.items()}),
    ]
    return "| " + " | ".join(cells) + " |"


@click.command()
@click.option("--megabytes", default=400.0, show_default=True, help="The payload of each run.")
@click.option("--window", default=200, show_default=True, help="The number of requests in flight.")
@click.option("--partitions", default=1, show_default=True, help="The number of batches in a request.")
@click.option(
    "--kilobytes", "sizes", multiple=True, default=(16, 128), show_default=True, help="The size of a batch, repeatable."
)
@click.option("--rounds", default=2, show_default=True)
@click.option(
    "--only-server",
    "servers",
    multiple=True,
    type=click.Choice(list(NAMES)),
    help="Measure only this server. Can be repeated.",
)
@click.option("--baseline", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Another checkout.")
def main(
    *,
    megabytes: float,
    window: int,
    partitions: int,
    sizes: tuple[int, ...],
    rounds: int,
    servers: tuple[str, ...],
    baseline: Path | None,
) -> None:
    """Measure the cost of Produce requests in Apache Kafka and KafScale."""
    with tempfile.TemporaryDirectory(prefix="kafscale-cost-") as scratch, ExitStack() as stack:
        targets = start_targets(stack, Path(scratch), servers or ("kafka", "directory", "four"), baseline=baseline)
        for target in targets:
            client = ConfluentClient(target.bootstrap)
            client.create_topic(_TOPIC, partitions=partitions, configs={"compression.type": "producer"})
            # This client tries again until the partitions have owners.
            for partition in range(partitions):
                client.produce(_TOPIC, [Message(b"")], ProduceOptions(partition=partition))
            measure(target, 16384, partitions=partitions, acks=1, megabytes=megabytes / 2, window=window)
        click.echo("| batches | server | MB/s | CPU us per batch | CPU s per GB |\n|---|---|---|---|---|")
        for batch_bytes in (1024 * kilobytes for kilobytes in sizes):
            for acks in (1, -1):
                for _ in range(rounds):
                    for target in targets:
                        touch_memory(Path(scratch), 3 * megabytes)
                        line = measure(
                            target, batch_bytes, partitions=partitions, acks=acks, megabytes=megabytes, window=window
                        )
                        click.echo(line)


if __name__ == "__main__":
    main()
