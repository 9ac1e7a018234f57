"""A storage service for tests on a real gRPC port, whose logs are lists of batches."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from kafscale.records.batch import peek_one
from kafscale.records.record import Record, build_batch
from kafscale.v1 import common_pb2
from kafscale.v1 import storage_pb2 as pb

Answer = Callable[[Any, grpc.ServicerContext], Any]

_REQUESTS: dict[str, Any] = {"Topics": pb.TopicsRequest, "PlanScan": pb.PlanScanRequest, "Scan": pb.ScanRequest}

_NOTHING = pb.ScanPiece()


@contextmanager
def serving(
    tls: grpc.ServerCredentials | None = None, *, address: str = "127.0.0.1:0", **answers: Answer
) -> Iterator[str]:
    """Serve these methods and yield the address. ``Scan`` returns an iterator of replies."""
    handlers = {}
    for name, answer in answers.items():
        make = grpc.unary_stream_rpc_method_handler if name == "Scan" else grpc.unary_unary_rpc_method_handler
        handlers[name] = make(
            answer,
            request_deserializer=_REQUESTS[name].FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kafscale.v1.SegmentStorage", handlers),))
    port = server.add_insecure_port(address) if tls is None else server.add_secure_port(address, tls)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@dataclass
class Log:
    """A partition. Each batch begins at the offset after the one before."""

    start: int = 0
    batches: list[bytes] = field(default_factory=list)

    @property
    def end(self) -> int:
        return peek_one(self.batches[-1]).next_offset if self.batches else self.start

    def add(self, records: int, *, size: int = 10) -> None:
        """Append a batch, whose values are their offsets."""
        base = self.end
        self.batches.append(
            build_batch(
                [Record(base + i, 1000 + base + i, None, str(base + i).encode().ljust(size)) for i in range(records)],
                base_offset=base,
                leader_epoch=3,
            )
        )

    def delete_before(self, offset: int) -> None:
        self.start = offset
        self.batches = [batch for batch in self.batches if peek_one(batch).next_offset > offset]


@dataclass
class Storage:
    """Topics by name. Each piece of a scan is one batch.

    ``before`` may return another reply in place of a piece, which ends the stream; an empty one ends it silently.
    """

    topics: dict[str, list[Log]] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    instances: list[str] = field(default_factory=list)
    before: Callable[[pb.ScanRequest, int], pb.ScanPiece | None] = lambda *_: None
    plans_asked: list[pb.PlanScanRequest] = field(default_factory=list)
    scans_asked: list[pb.ScanRequest] = field(default_factory=list)

    def make(self, name: str, partitions: int = 1) -> list[Log]:
        self.topics[name] = [Log() for _ in range(partitions)]
        self.ids[name] = bytes([len(self.ids) + 1]) * 16
        return self.topics[name]

    @contextmanager
    def running(self, count: int = 1) -> Iterator[tuple[str, ...]]:
        """Run this many instances and yield their addresses."""
        with ExitStack() as servers:
            yield tuple(
                servers.enter_context(serving(Topics=self._list, PlanScan=self._plan, Scan=self._scan))
                for _ in range(count)
            )

    def _list(self, request: pb.TopicsRequest, _: grpc.ServicerContext) -> pb.TopicsReply:
        names = sorted(set(request.names) & self.topics.keys() if request.names else self.topics)
        found = [pb.TopicDescription(name=n, id=self.ids[n], partitions=len(self.topics[n])) for n in names]
        return pb.TopicsReply(topics=found, instances=self.instances)

    def _plan(self, request: pb.PlanScanRequest, _: grpc.ServicerContext) -> pb.PlanScanReply:
        self.plans_asked.append(request)
        return pb.PlanScanReply(plans=[self._one_plan(scan, request) for scan in request.scans])

    def _one_plan(self, scan: pb.PartitionScan, request: pb.PlanScanRequest) -> pb.PartitionPlan:
        log = self._log(scan.partition)
        if log is None:
            return pb.PartitionPlan(status=common_pb2.TOPIC_ID_MISMATCH, detail="another")
        at = [
            {"earliest": log.start, "latest": log.end}.get(bound.WhichOneof("at") or "", bound.offset)
            for bound in (scan.start, scan.end)
        ]
        found = pb.PartitionPlan(log_start=log.start, high_watermark=log.end, start=at[0], end=at[1])
        for batch in log.batches:
            header = peek_one(batch)
            start, end = max(header.base_offset, at[0], log.start), min(header.next_offset, at[1])
            if start < end:
                share = len(batch) * (end - start) // header.record_count
                if found.splits and not 0 < request.split_bytes < found.splits[-1].bytes + share:
                    found.splits[-1].end, found.splits[-1].bytes = end, found.splits[-1].bytes + share
                else:
                    found.splits.add(start=start, end=end, bytes=share)
        return found

    def _scan(self, request: pb.ScanRequest, _: grpc.ServicerContext) -> Iterator[pb.ScanPiece]:
        self.scans_asked.append(request)
        log = self._log(request.partition)
        if log is None:
            yield pb.ScanPiece(status=common_pb2.UNKNOWN_TOPIC, detail="gone")
            return
        if request.start < log.start:
            yield pb.ScanPiece(status=common_pb2.OFFSET_OUT_OF_RANGE, log_start=log.start, detail="deleted")
            return
        for number, batch in enumerate(log.batches):
            header = peek_one(batch)
            if not (header.next_offset > request.start and header.base_offset < request.end):
                continue
            instead = self.before(request, number)
            if instead is not None:
                if instead != _NOTHING:
                    yield instead
                return
            piece = pb.ScanPiece(first_offset=header.base_offset, next_offset=header.next_offset, epoch=3, object="obj")
            if request.mode == pb.ScanRequest.COUNT:
                piece.count = min(header.next_offset, request.end) - max(header.base_offset, request.start)
            else:
                piece.records = batch
            yield piece

    def _log(self, ref: common_pb2.PartitionRef) -> Log | None:
        logs = self.topics.get(ref.topic, [])
        same = self.ids.get(ref.topic) == ref.topic_id and ref.partition < len(logs)
        return logs[ref.partition] if same else None
