"""A storage service on a real gRPC port that keeps stages and commits in memory, with injected errors."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

import grpc

from kafscale.records.batch import walk
from kafscale.records.checksum import crc32c
from kafscale.records.record import Record, read_records
from kafscale.v1 import storage_pb2 as pb
from kafscale.v1.common_pb2 import OK

_METHODS: dict[str, Any] = {
    "Topics": pb.TopicsRequest,
    "Stage": pb.StageRequest,
    "CommitSink": pb.CommitSinkRequest,
    "DiscardStages": pb.DiscardStagesRequest,
}
Trouble = Callable[[Any], Any]


class StagingStorage:
    """``topics`` has the number of partitions by name, and ``instances`` the other instances that it reports.

    ``troubles`` has, by method, the replies to its first calls, or the exceptions that they raise.
    """

    def __init__(self, topics: dict[str, int], **configs: str) -> None:
        self.address = ""
        self.instances: list[str] = []
        self.topics = topics
        self.configs = configs
        self.troubles: dict[str, list[Trouble]] = {}
        self.staged: dict[str, bytes] = {}
        self.requests: list[pb.StageRequest] = []
        self.commits: list[pb.CommitSinkRequest] = []
        self.discarded: list[str] = []
        self._done: set[tuple[str, int]] = set()
        self._lock = Lock()

    def answer(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        with self._lock:
            troubles = self.troubles.get(method, [])
            trouble = troubles.pop(0) if troubles else None
            reply = None if trouble is None else trouble(request)
            if isinstance(reply, Exception):
                context.abort(grpc.StatusCode.UNAVAILABLE, str(reply))
            return reply or getattr(self, f"_{method.lower()}")(request)

    def rows(self, topic: str, partition: int) -> list[Record]:
        """Return the records of the partition's log after the commits so far."""
        found: list[Record] = []
        for commit in self.commits:
            for stage in commit.stages:
                if (stage.partition.topic, stage.partition.partition) == (topic, partition):
                    data = self.staged[stage.key]
                    for position, header in walk(data):
                        found += read_records(data[position : position + header.size], max_bytes=1 << 24)
        return found

    def _topics(self, request: pb.TopicsRequest) -> pb.TopicsReply:
        found = [
            pb.TopicDescription(
                name=name, id=name.encode().ljust(16), partitions=self.topics[name], configs=self.configs
            )
            for name in request.names
            if name in self.topics
        ]
        return pb.TopicsReply(topics=found, instances=[self.address, *self.instances])

    def _stage(self, request: pb.StageRequest) -> pb.StageReply:
        key = f"{request.sink}/{request.epoch}/{len(self.staged)}"
        self.requests.append(request)
        self.staged[key] = request.records
        stage = pb.Stage(
            partition=request.partition,
            key=key,
            size=len(request.records),
            crc=crc32c(request.records),
            batches=sum(1 for _ in walk(request.records)),
            records=sum(header.record_count for _, header in walk(request.records)),
        )
        return pb.StageReply(status=OK, stage=stage)

    def _commitsink(self, request: pb.CommitSinkRequest) -> pb.CommitSinkReply:
        already = (request.sink, request.epoch) in self._done
        if not already:
            self._done.add((request.sink, request.epoch))
            self.commits.append(request)
        return pb.CommitSinkReply(status=OK, already=already, applied=True)

    def _discardstages(self, request: pb.DiscardStagesRequest) -> pb.DiscardStagesReply:
        self.discarded += request.keys
        return pb.DiscardStagesReply()


@contextmanager
def staging_storage(topics: dict[str, int], **configs: str) -> Iterator[StagingStorage]:
    storage = StagingStorage(topics, **configs)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda request, context, name=name: storage.answer(name, request, context),
            request_deserializer=request.FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )
        for name, request in _METHODS.items()
    }
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kafscale.v1.SegmentStorage", handlers),))
    storage.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield storage
    finally:
        server.stop(None).wait()
