"""The sink's calls to the storage service."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from queue import SimpleQueue

from kafscale.errors import Refused
from kafscale.v1 import storage_pb2 as pb
from kafscale.v1.common_pb2 import OK, UNAVAILABLE, Status
from kafscale_spark.client import TOPICS, Client, Rpc
from kafscale_spark.connection import Connection

STAGE = Rpc("Stage", pb.StageRequest, pb.StageReply)
COMMIT_SINK = Rpc("CommitSink", pb.CommitSinkRequest, pb.CommitSinkReply)
DISCARD_STAGES = Rpc("DiscardStages", pb.DiscardStagesRequest, pb.DiscardStagesReply)


def find_topic(client: Client, name: str) -> pb.TopicDescription | None:
    """Return a topic's description, or None. The client learns the addresses of all storage instances.

    If an instance does not know the topic, its metadata may be old, and the others are asked too.
    """
    for reply in client.answers(TOPICS, pb.TopicsRequest(names=[name])):
        client.knows(reply.instances)
        for topic in reply.topics:
            if topic.name == name:
                return topic
    return None


class StageCalls:
    """Stages for several threads at once. Each call has its own connection, and they are spread over the instances."""

    def __init__(self, clients: list[Client]) -> None:
        self._idle: SimpleQueue[Client] = SimpleQueue()
        for client in clients:
            self._idle.put(client)

    @classmethod
    @contextmanager
    def open(cls, connection: Connection, most: int) -> Iterator["StageCalls"]:
        with ExitStack() as opened:
            yield cls([opened.enter_context(Client(_spread(connection))) for _ in range(most)])

    def stage(self, request: pb.StageRequest) -> pb.Stage:
        """Store a stage. A call with an unknown outcome is repeated, which may leave an extra, unused object.

        Raises Unavailable when retries are exhausted, and Refused if storage rejects the stage.
        """
        client = self._idle.get()
        try:
            reply = client.call(STAGE, request, again=_not_yet)
        finally:
            self._idle.put(client)
        if reply.status != OK:
            where = f"{request.partition.topic}-{request.partition.partition}"
            raise Refused(f"{where}: storage rejected the records: {Status.Name(reply.status)} {reply.detail}".rstrip())
        return reply.stage


def _spread(connection: Connection) -> Connection:
    endpoints = list(connection.endpoints)
    random.shuffle(endpoints)
    return replace(connection, endpoints=tuple(endpoints))


def _not_yet(reply: pb.StageReply) -> str:
    return (reply.detail or "not available") if reply.status == UNAVAILABLE else ""
