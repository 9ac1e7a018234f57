"""The bounds of logs for an audit, from a storage service that cannot plan all of them."""

import grpc

from kafscale.v1 import common_pb2
from kafscale.v1 import storage_pb2 as pb
from kafscale_spark.audit.chain import Bounds
from kafscale_spark.audit.metadata import around, logs_of_storage
from kafscale_spark.connection import Connection
from tests.unit.spark.storage import serving

ID = b"i" * 16
PLANS = {
    "sound": pb.PartitionPlan(status=common_pb2.OK, log_start=3, high_watermark=20),
    "damaged": pb.PartitionPlan(status=common_pb2.DAMAGED, detail="a segment is missing"),
    "deleted": pb.PartitionPlan(status=common_pb2.UNKNOWN_TOPIC, detail="gone"),
}


def _topics(request: pb.TopicsRequest, _: grpc.ServicerContext) -> pb.TopicsReply:
    assert not request.names
    return pb.TopicsReply(topics=[pb.TopicDescription(name=name, id=ID, partitions=1) for name in PLANS])


def _plan(request: pb.PlanScanRequest, _: grpc.ServicerContext) -> pb.PlanScanReply:
    return pb.PlanScanReply(plans=[PLANS[scan.partition.topic] for scan in request.scans])


def test_a_log_that_cannot_be_planned_exists() -> None:
    with serving(Topics=_topics, PlanScan=_plan) as endpoint:
        logs = logs_of_storage(Connection((endpoint,)))
    assert logs == {
        ("sound", 0): Bounds(3, end_before=20, end_after=20, topic_id=ID),
        ("damaged", 0): Bounds(0, start_known=False, topic_id=ID),
    }


def test_bounds_come_from_two_reads_of_the_metadata() -> None:
    before = {("t", 0): Bounds(1, end_before=5, end_after=5, topic_id=ID)}
    after = {("t", 0): Bounds(2, end_before=9, end_after=9, topic_id=ID), ("new", 0): Bounds(0, end_before=1)}
    assert around(before, after) == {
        ("t", 0): Bounds(2, end_before=5, end_after=9, topic_id=ID),
        ("new", 0): Bounds(0, end_before=None),
    }
    # Deleted and recreated in between, so no object need have been listed.
    after = {("t", 0): Bounds(0, end_before=9, end_after=9, topic_id=b"j" * 16)}
    assert around(before, after) == {("t", 0): Bounds(0, end_before=None, end_after=9, topic_id=b"j" * 16)}
