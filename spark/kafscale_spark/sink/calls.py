"""The calls that the sink makes to the storage service."""

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
    """What a topic is now; the client learns where all storage instances are.

    Where one does not know the topic, which may be behind, the others are asked too.
    """
    for reply in client.answers(TOPICS, pb.TopicsRequest(names=[name])):
        client.knows(reply.instances)
        for topic in reply.topics:
            if topic.name == name:
                return topic
    return None


class StageCalls:
    """Stages for several threads at a time, each by a connection of its own, spread over the instances."""

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
        """Repeated where the outcome is not known: that makes another object, and only the one told here counts.

        Raises Unavailable in the end, Refused when storage does not take it.
        """
        client = self._idle.get()
        try:
            reply = client.call(STAGE, request, again=_not_yet)
        finally:
            self._idle.put(client)
        if reply.status != OK:
            where = f"{request.partition.topic}-{request.partition.partition}"
            raise Refused(f"{where}: storage does not take this: {Status.Name(reply.status)} {reply.detail}".rstrip())
        return reply.stage


def _spread(connection: Connection) -> Connection:
    endpoints = list(connection.endpoints)
    random.shuffle(endpoints)
    return replace(connection, endpoints=tuple(endpoints))


def _not_yet(reply: pb.StageReply) -> str:
    return (reply.detail or "not available") if reply.status == UNAVAILABLE else ""
