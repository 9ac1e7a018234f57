"""The rate and cost of streaming a topic from MinIO through storage to a synchronous gRPC client.

`python -m tests.bench.scan_rate [--megabytes 1000] [--partitions 6] [--streams 2]`. CPU seconds are per GB.
"""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from confluent_kafka import Producer

from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import ScanRequest
from tests.bench.usage import measured_each
from tests.servers.cluster import Cluster, running_cluster
from tests.support.clients.confluent import ConfluentClient
from tests.support.topic_reader import TopicReader

_TOPIC = "scanned"
_GB = 1_000_000_000
# The client is a separate process, so that its CPU time can be measured.
_CLIENT = "tests.bench.scan_rate"


@click.command()
@click.option("--megabytes", default=1000, show_default=True)
@click.option("--record-bytes", default=100, show_default=True)
@click.option("--partitions", default=6, show_default=True)
@click.option("--streams", default=2, show_default=True, help="The number of concurrent scans.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--piece-bytes", default=1 << 20, show_default=True)
@click.option("--cached", is_flag=True, help="Read from the cache of the storage process, without MinIO.")
def main(
    *, megabytes: int, record_bytes: int, partitions: int, streams: int, repeats: int, piece_bytes: int, cached: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        env = {"KAFSCALE_COMPRESSION_CODEC": "producer", "KAFSCALE_LEASE_TTL_SECONDS": "30"}
        if not cached:
            env["KAFSCALE_CACHE_SIZE"] = "0"
        with running_cluster(Path(directory), env=env) as cluster:
            _produce(cluster, megabytes, record_bytes, partitions)
            click.echo("| streams | MB/s | CPU s per GB: storage | MinIO | client |\n|---|---|---|---|---|")
            for _ in range(repeats):
                click.echo(_measured(cluster, streams, piece_bytes))


def _produce(cluster: Cluster, megabytes: int, record_bytes: int, partitions: int) -> None:
    ConfluentClient(cluster.bootstrap).create_topic(_TOPIC, partitions=partitions)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "batch.size": 1 << 17, "acks": "all"})
    value = b"x" * record_bytes
    for number in range(megabytes * 1_000_000 // record_bytes):
        while True:
            try:
                producer.produce(_TOPIC, value, partition=number // 1000 % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise RuntimeError("not all records were acked")


def _measured(cluster: Cluster, streams: int, piece_bytes: int) -> str:
    (storage,) = cluster.storages
    command = [sys.executable, "-m", _CLIENT, "--read", storage.address, str(streams), str(piece_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdout.readline()
        pids = {"storage": storage.process.pid, "client": client.pid}
        if cluster.minio.pid is not None:
            pids["MinIO"] = cluster.minio.pid
        with measured_each(pids) as used:
            client.stdin.write("\n")
            client.stdin.flush()
            size, seconds = client.stdout.readline().split()
        per_gb = {name: usage.cpu_seconds / (int(size) / _GB) for name, usage in used.items()}
        client.stdin.close()
    costs = " | ".join(f"{per_gb[name]:.2f}" if name in per_gb else "" for name in ("storage", "MinIO", "client"))
    return f"| {streams} | {int(size) / 1e6 / float(seconds):.0f} | {costs} |"


def _read(address: str, streams: int, piece_bytes: int) -> None:
    """Run the client: read everything after a line of input, print bytes and seconds, and wait for the end of input."""
    with TopicReader(address) as reader, ThreadPoolExecutor(streams) as pool:
        refs = reader.partitions(_TOPIC)
        plans = reader.plan(refs, split_bytes=64 << 20)
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()

        def read(request: ScanRequest) -> int:
            size = 0
            for piece in reader.scan(request.partition, request.start, request.end, piece_bytes=piece_bytes):
                if piece.status != Status.OK:
                    raise RuntimeError(piece.detail)
                size += len(piece.records)
            return size

        requests = [
            ScanRequest(partition=ref, start=split.start, end=split.end)
            for ref, plan in zip(refs, plans, strict=True)
            for split in plan.splits
        ]
        size = sum(pool.map(read, requests))
        print(size, time.monotonic() - began, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        _read(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
