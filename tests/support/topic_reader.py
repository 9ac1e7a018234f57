"""A reader of topics like Spark's tasks, which uses gRPC's synchronous client and only the messages of KafScale."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import grpc

from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import (
    Bound,
    PartitionPlan,
    PartitionScan,
    PlanScanReply,
    PlanScanRequest,
    ScanPiece,
    ScanRequest,
    TopicsReply,
    TopicsRequest,
)

TIMEOUT = 60.0
_MOST_BYTES = 72 << 20
_SERVICE = "/kafscale.v1.SegmentStorage/"


class TopicReader:
    """Reads from the storage instance at ``address``. ``window`` is the flow control window of a stream in bytes."""

    def __init__(self, address: str, *, window: int = 4 << 20) -> None:
        options = [
            ("grpc.max_receive_message_length", _MOST_BYTES),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", window),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        self._topics = self._channel.unary_unary(
            _SERVICE + "Topics", TopicsRequest.SerializeToString, TopicsReply.FromString
        )
        self._plan = self._channel.unary_unary(
            _SERVICE + "PlanScan", PlanScanRequest.SerializeToString, PlanScanReply.FromString
        )
        self._scan = self._channel.unary_stream(_SERVICE + "Scan", ScanRequest.SerializeToString, ScanPiece.FromString)

    def __enter__(self) -> "TopicReader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._channel.close()

    def topics(self, *names: str) -> TopicsReply:
        reply: TopicsReply = self._topics(TopicsRequest(names=names), timeout=TIMEOUT, wait_for_ready=True)
        return reply

    def partitions(self, topic: str) -> list[PartitionRef]:
        """Return all partitions of an existing topic."""
        (found,) = self.topics(topic).topics
        return [PartitionRef(topic=found.name, topic_id=found.id, partition=index) for index in range(found.partitions)]

    def plan(
        self, refs: Sequence[PartitionRef], *, start: Bound | None = None, end: Bound | None = None, **options: Any
    ) -> list[PartitionPlan]:
        """Plan a scan, from the earliest to the latest offset by default."""
        start, end = start or Bound(earliest=True), end or Bound(latest=True)
        scans = [PartitionScan(partition=ref, start=start, end=end) for ref in refs]
        reply: PlanScanReply = self._plan(PlanScanRequest(scans=scans, **options), timeout=TIMEOUT)
        return list(reply.plans)

    def scan(self, ref: PartitionRef, start: int, end: int, **options: Any) -> Iterator[ScanPiece]:
        """Return the pieces of a range as they arrive."""
        return iter(self._scan(ScanRequest(partition=ref, start=start, end=end, **options), timeout=TIMEOUT))
