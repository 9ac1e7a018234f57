"""Scans of whole topics from any storage instance, on etcd and MinIO, also while an instance dies."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import grpc
import pytest
from confluent_kafka import Producer

from kafscale.records.batch import verify_crc, walk
from kafscale.records.record import read_records
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import ScanPiece, ScanRequest
from tests.servers.cluster import Cluster, ServiceProcess, running_cluster
from tests.servers.etcd import Etcd
from tests.servers.minio import Minio
from tests.services.test_operations import ask
from tests.support.broker import KafscaleBroker
from tests.support.clients.confluent import ConfluentClient
from tests.support.clients.interface import Message, ProduceOptions
from tests.support.topic_reader import TIMEOUT, TopicReader

PARTITIONS = 4
RECORDS = 20_000
MUCH = 3_000_000
SMALL = {"KAFSCALE_CACHE_SIZE": "0", "KAFSCALE_SEGMENT_BYTES": "64KB", "KAFSCALE_EARLY_FLUSH_BYTES": "32KB"}
"""Many segments, all of which are read back from the bucket."""


@pytest.fixture(scope="module")
def cluster(etcd: Etcd, minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("scans")
    with running_cluster(directory, etcd=etcd, minio=minio, storages=2, env=SMALL) as cluster:
        yield cluster


def _produced(client: ConfluentClient, topic: str) -> dict[int, list[bytes]]:
    """Produce to a new topic and return the values in each partition."""
    client.create_topic(topic, partitions=PARTITIONS)
    values = {index: [b"%d/%d" % (index, i) for i in range(RECORDS // PARTITIONS)] for index in range(PARTITIONS)}
    _append(client, topic, values)
    return values


def _produced_much(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """Produce `MUCH` bytes to each partition of a new topic, in small batches of incompressible values."""
    configs = {"segment.bytes": str(1 << 20)}
    ConfluentClient(bootstrap).create_topic(topic, partitions=PARTITIONS, configs=configs)
    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 60_000, "enable.idempotence": True})
    values = {index: [Random(i).randbytes(20_000) for i in range(MUCH // 20_000)] for index in range(PARTITIONS)}
    for partition, of_it in values.items():
        for value in of_it:
            producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT) == 0
    return values


def _append(client: ConfluentClient, topic: str, values: Mapping[int, list[bytes]]) -> None:
    """Append values, which are given by partition."""
    for partition, of_it in values.items():
        client.produce(topic, [Message(value) for value in of_it], ProduceOptions(partition=partition))


def _values(pieces: Iterator[ScanPiece], start: int, end: int) -> list[bytes | None]:
    """Return the values of a range's records, and check that all are there, in order and intact."""
    found, expected = [], start
    for piece in pieces:
        assert piece.status == Status.OK, piece.detail
        assert piece.first_offset <= expected
        for position, header in walk(piece.records):
            verify_crc(piece.records, position, header)
            batch = piece.records[position : position + header.size]
            records = [record for record in read_records(batch, max_bytes=1 << 24) if start <= record.offset < end]
            assert [record.offset for record in records] == list(range(expected, expected + len(records)))
            expected += len(records)
            found += [record.value for record in records]
        expected = min(end, piece.next_offset)
    assert expected == end
    return found


def _scanned(reader: TopicReader, ref: PartitionRef, split_bytes: int) -> list[bytes | None]:
    (plan,) = reader.plan([ref], split_bytes=split_bytes)
    assert plan.status == Status.OK, plan.detail
    return [
        value
        for split in plan.splits
        for value in _values(reader.scan(ref, split.start, split.end), split.start, split.end)
    ]


def test_every_instance_serves_every_partition(cluster: Cluster) -> None:
    values = _produced(ConfluentClient(cluster.bootstrap), "everywhere")
    addresses = sorted(storage.address for storage in cluster.storages)
    for address in addresses:
        with TopicReader(address) as reader:
            assert list(reader.topics("everywhere").instances) == addresses
            for ref in reader.partitions("everywhere"):
                for split_bytes in (0, 50_000):
                    assert _scanned(reader, ref, split_bytes) == values[ref.partition]
                counts = reader.scan(ref, 7, len(values[ref.partition]), mode=ScanRequest.COUNT)
                assert sum(piece.count for piece in counts) == len(values[ref.partition]) - 7


def test_a_partition_can_be_scanned_while_its_owner_dies(cluster: Cluster) -> None:
    client = ConfluentClient(cluster.bootstrap)
    values = _produced_much(cluster.bootstrap, "taken-over")
    survivor, doomed = cluster.storages
    scanned = _scanned_bytes(survivor)
    with TopicReader(survivor.address, window=65_536) as reader:
        refs = reader.partitions("taken-over")
        # Scans read segments, and a plan has the owners store all records in segments.
        assert all(plan.status == Status.OK for plan in reader.plan(refs, split_bytes=0))
        under_way = [reader.scan(ref, 0, len(values[ref.partition]), piece_bytes=1) for ref in refs]
        begun = [next(pieces) for pieces in under_way]
        doomed.kill()
        assert _scanned_bytes(survivor) - scanned < PARTITIONS * MUCH / 2, "too much was already sent"
        try:
            for ref, first, pieces in zip(refs, begun, under_way, strict=True):
                assert _values(_chained(first, pieces), 0, len(values[ref.partition])) == values[ref.partition]
            # A partition that was taken over accepts records, and a scan reads them from its new owner.
            _append(client, "taken-over", {ref.partition: [b"later"] for ref in refs})
            for ref in refs:
                assert _scanned(reader, ref, 0) == [*values[ref.partition], b"later"]
        finally:
            doomed.restart()
    _await_there(doomed.address)
    with TopicReader(doomed.address) as reader:
        for ref in refs:
            assert _scanned(reader, ref, 100_000) == [*values[ref.partition], b"later"]


def test_the_one_process_mode_serves_the_same_scans(tmp_path: Path) -> None:
    broker = KafscaleBroker(tmp_path, {})
    try:
        values = _produced(ConfluentClient(broker.bootstrap), "here")
        with TopicReader(broker.rpc) as reader:
            assert list(reader.topics().instances) == [broker.rpc]
            for ref in reader.partitions("here"):
                assert _scanned(reader, ref, 50_000) == values[ref.partition]
    finally:
        broker.stop()


def _scanned_bytes(storage: ServiceProcess) -> float:
    """Return how many bytes an instance has sent to scans, in pieces that may still be on their way."""
    _, text = ask(storage, "/metrics")
    (line,) = (line for line in text.splitlines() if line.startswith("kafscale_storage_scanned_bytes_total "))
    return float(line.split()[1])


def _chained(first: ScanPiece, rest: Iterator[ScanPiece]) -> Iterator[ScanPiece]:
    yield first
    yield from rest


def _await_there(address: str) -> None:
    """Wait until the instance answers. After its registration it may still wait for its lease."""
    deadline = time.monotonic() + TIMEOUT
    with TopicReader(address) as reader:
        while True:
            try:
                if address in reader.topics().instances:
                    return
            except grpc.RpcError:
                pass
            assert time.monotonic() < deadline
            time.sleep(0.1)
