"""A storage link with a fake storage, and appends for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import AppendRequest
from services.gateway.owners.link import AppendAtOnce, StorageLink
from services.gateway.owners.pending import PendingAppend
from services.gateway.pauses import Pauses
from services.gateway.settings import GatewaySettings
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import batch

T_ID = b"t" * 16
KIB = 1024


def ref(partition: int = 0, topic_id: bytes = T_ID) -> PartitionRef:
    return PartitionRef(topic="t", topic_id=topic_id, partition=partition)


class Appends:
    """The appends of one test, and those that finished, in order."""

    def __init__(self, link: StorageLink) -> None:
        self.link = link
        self.finished: list[PendingAppend] = []

    def put(
        self, partition: int = 0, *, value: bytes = b"v", acks_all: bool = True, timeout: float = 30
    ) -> PendingAppend:
        append = PendingAppend(
            ref(partition),
            (T_ID, partition),
            batch(value),
            acks=-1 if acks_all else 1,
            deadline=trio.current_time() + timeout,
            on_finish=self.finished.append,
        )
        self.link.send([append])
        return append


@asynccontextmanager
async def running_link(
    storage: FakeStorage,
    *,
    append_queue_bytes: int = 1 << 20,
    append_message_bytes: int = 1 << 20,
    append_messages: int = 2,
    append_gather_ms: int = 0,
    storage_timeout_ms: int = 30_000,
    append_at_once: AppendAtOnce | None = None,
) -> AsyncIterator[Appends]:
    link = StorageLink(
        storage,
        GatewaySettings(
            append_queue_bytes=append_queue_bytes,
            append_message_bytes=append_message_bytes,
            append_messages=append_messages,
            append_gather_ms=append_gather_ms,
            storage_timeout_ms=storage_timeout_ms,
        ),
        moved=lambda key, owner: None,
        pauses=Pauses(5.0, lambda: 0.0),
        append_at_once=append_at_once,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        await wait_all_tasks_blocked()
        yield Appends(link)
        nursery.cancel_scope.cancel()


def values(message: AppendRequest) -> list[tuple[int, bytes]]:
    return [(append.partition.partition, append.records[-2:-1]) for append in message.appends]


def gate(storage: FakeStorage, *sequences: int) -> list[trio.Event]:
    events = []
    for sequence in sequences:
        storage.gates[sequence] = trio.Event()
        events.append(storage.gates[sequence])
    return events
