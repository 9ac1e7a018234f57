"""One commit stream, and the replies that report events in its place."""

from dataclasses import dataclass, field

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import CommitsEvent, Committed
from services.storage.log.partition import CommitEvent
from services.storage.writing.commit_streams import CommitStream

_KEY = (b"t" * 16, 0)
_REF = PartitionRef(topic="t", topic_id=_KEY[0], partition=_KEY[1])


def _event(high_watermark: int) -> CommitEvent:
    return CommitEvent(_REF, epoch=1, high_watermark=high_watermark, log_start=0, lost=False, in_memory=0)


@dataclass
class Reply:
    """A reply that waits for a high watermark of 1."""

    stream: CommitStream
    reached: bool = False
    events: list[Committed] | None = None
    sent: list[CommitsEvent] = field(default_factory=list)

    async def wait(self) -> None:
        self.events = await self.stream.events_for(lambda: self.reached, seconds=1000)

    async def send(self, event: CommitsEvent) -> None:
        self.sent.append(event)


async def _begin(nursery: trio.Nursery) -> Reply:
    reply = Reply(CommitStream())
    nursery.start_soon(reply.stream.pump, reply.send)
    reply.stream.subscribe(_KEY, lambda: _event(0))
    await wait_all_tasks_blocked()
    reply.sent.clear()
    nursery.start_soon(reply.wait)
    await wait_all_tasks_blocked()
    return reply


async def test_events_that_no_reply_waits_for_are_sent(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    reply = await _begin(nursery)
    reply.stream.notify(_KEY, _event(1))
    await wait_all_tasks_blocked()
    assert reply.events is None
    assert [event.committed[0].high_watermark for event in reply.sent] == [1]


async def test_a_heartbeat_is_sent_although_a_reply_takes_the_events(nursery: trio.Nursery) -> None:
    reply = await _begin(nursery)
    reply.reached = True
    reply.stream.notify(_KEY, _event(1))
    reply.stream.beat()
    await wait_all_tasks_blocked()
    assert reply.events is not None
    assert len(reply.sent) == 1


async def test_a_stream_that_ends_lets_all_replies_go_and_sends_what_is_pending(nursery: trio.Nursery) -> None:
    reply = await _begin(nursery)
    reply.stream.notify(_KEY, _event(1))
    reply.stream.end()
    await wait_all_tasks_blocked()
    assert reply.events == []
    assert [event.committed[0].high_watermark for event in reply.sent] == [1]
    assert await reply.stream.events_for(lambda: False, seconds=1000) == []


async def test_a_reply_goes_when_its_partition_is_not_owned_any_more(nursery: trio.Nursery) -> None:
    reply = await _begin(nursery)
    reply.reached = True
    reply.stream.forget(_KEY)
    await wait_all_tasks_blocked()
    assert reply.events == []
