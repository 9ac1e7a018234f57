"""A sink on the four processes: each epoch is seen once, although a storage instance is killed meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage

from kafscale.records.record import Record, build_batch
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import (
    CommitSinkReply,
    CommitSinkRequest,
    Stage,
    StageReply,
    StageRequest,
    TopicsReply,
    TopicsRequest,
)
from tests.servers.cluster import Cluster
from tests.services.conftest import MakeCluster
from tests.support.clients.confluent import ConfluentClient

R = TypeVar("R", bound=ProtoMessage)
PARTITIONS = 4
STAGES = 3
BATCHES = 2
RECORDS = 300
VALUE_BYTES = 1_000
EPOCHS = 2


def _call(channel: grpc.Channel, name: str, request: ProtoMessage, reply: type[R]) -> R:
    path = f"/kafscale.v1.SegmentStorage/{name}"
    method = channel.unary_unary(path, type(request).SerializeToString, reply.FromString)
    answer: R = method(request, timeout=60)
    return answer


def _values(epoch: int, partition: int, stage: int, batch: int) -> list[bytes]:
    return [b"%d.%d.%d.%d.%d " % (epoch, partition, stage, batch, n) + bytes(VALUE_BYTES) for n in range(RECORDS)]


def _batch(values: list[bytes]) -> bytes:
    return build_batch([Record(n, 1_000 + n, None, value, ()) for n, value in enumerate(values)], base_offset=0)


@contextmanager
def _channels(cluster: Cluster) -> Iterator[list[grpc.Channel]]:
    channels = [grpc.insecure_channel(storage.address) for storage in cluster.storages]
    try:
        yield channels
    finally:
        for channel in channels:
            channel.close()


def _stage_all(channels: list[grpc.Channel], topic: str, topic_id: bytes, epoch: int) -> list[Stage]:
    stages = []
    for partition in range(PARTITIONS):
        ref = PartitionRef(topic=topic, topic_id=topic_id, partition=partition)
        for stage in range(STAGES):
            records = b"".join(_batch(_values(epoch, partition, stage, batch)) for batch in range(BATCHES))
            request = StageRequest(sink="a sink", epoch=epoch, partition=ref, records=records)
            reply = _call(channels[stage % len(channels)], "Stage", request, StageReply)
            assert reply.status == Status.OK, reply.detail
            stages.append(reply.stage)
    return stages


def test_each_epoch_is_in_the_log_once_when_a_storage_instance_is_killed(make_cluster: MakeCluster) -> None:
    with make_cluster(storages=2) as cluster, _channels(cluster) as channels:
        client = ConfluentClient(cluster.bootstrap)
        client.create_topic("sunk", partitions=PARTITIONS)
        topics = _call(channels[0], "Topics", TopicsRequest(names=["sunk"]), TopicsReply)
        topic_id = topics.topics[0].id
        for epoch in range(EPOCHS):
            never = _stage_all(channels, "sunk", topic_id, epoch)
            stages = _stage_all(channels, "sunk", topic_id, epoch)
            request = CommitSinkRequest(sink="a sink", epoch=epoch, stages=stages)
            first = _call(channels[0], "CommitSink", request, CommitSinkReply)
            assert (first.status, first.already, first.applied) == (Status.OK, False, False), first.detail
            if epoch == 0:
                cluster.storages[0].kill()
            # A driver without the outcome commits again, with other stages in addition.
            again = CommitSinkRequest(sink="a sink", epoch=epoch, stages=[*stages, *never], wait_ms=50_000)
            second = _call(channels[1], "CommitSink", again, CommitSinkReply)
            assert (second.status, second.already, second.applied) == (Status.OK, True, True), second.detail
            if epoch == 0:
                cluster.storages[0].restart()
        for partition in range(PARTITIONS):
            expected = [
                value
                for epoch in range(EPOCHS)
                for stage in range(STAGES)
                for batch in range(BATCHES)
                for value in _values(epoch, partition, stage, batch)
            ]
            records = client.consume("sunk", count=len(expected), partition=partition)
            assert [record.value for record in records] == expected
            assert client.offsets("sunk", partition=partition) == (0, len(expected))
