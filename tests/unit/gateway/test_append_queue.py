"""Which appends share a message to a storage instance."""

import math

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.kafka.wire import Buffer
from kafscale.v1.common_pb2 import PartitionRef
from services.gateway.owners.appends import AppendQueue
from services.gateway.owners.pending import PendingAppend

_GATHER = 0.003
_MESSAGE_BYTES = 1500


def _queue() -> AppendQueue:
    return AppendQueue(max_bytes=1 << 20, message_bytes=_MESSAGE_BYTES, gather=_GATHER)


def _append(records: Buffer = bytes(100)) -> PendingAppend:
    return PendingAppend(
        PartitionRef(topic="t"), (b"t", 0), records, acks=-1, deadline=math.inf, on_finish=lambda _: None
    )


async def _taken(queue: AppendQueue, *, apart: float, count: int) -> tuple[int, float]:
    """Put appends one after the other. Return the number in the first message, and the seconds until it was taken."""
    began = trio.current_time()

    async def put_all() -> None:
        for _ in range(count):
            queue.put(_append())
            await trio.sleep(apart)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put_all)
        await queue.wait_for_work()
        result = len(queue.take()), round(trio.current_time() - began, 6)
        nursery.cancel_scope.cancel()
    return result


async def test_a_message_waits_for_the_producers_that_were_answered(autojump_clock: MockClock) -> None:
    queue = _queue()
    assert await _taken(queue, apart=0.0005, count=5) == (1, 0.0)
    queue.answered(5)
    assert await _taken(queue, apart=0.0005, count=5) == (5, 0.002)
    assert await _taken(queue, apart=0.0005, count=5) == (1, 0.0)


async def test_messages_do_not_wait_for_long_nor_again_soon_for_producers_that_do_not_return(
    autojump_clock: MockClock,
) -> None:
    queue = _queue()
    queue.answered(5)
    assert await _taken(queue, apart=0.001, count=2) == (2, _GATHER)
    queue.answered(5)
    assert await _taken(queue, apart=0.0005, count=5) == (1, 0.0)
    queue.answered(5)
    assert await _taken(queue, apart=0.0005, count=5) == (5, 0.002)


async def test_producers_that_are_answered_meanwhile_are_waited_for_too(autojump_clock: MockClock) -> None:
    queue = _queue()
    for count in (5, 1):
        queue.answered(count)
    assert await _taken(queue, apart=0.0004, count=6) == (6, 0.002)
    async with trio.open_nursery() as nursery:
        queue.answered(5)

        async def answer_later() -> None:
            await trio.sleep(0.0015)
            queue.answered(5)

        nursery.start_soon(answer_later)
        assert await _taken(queue, apart=0.0004, count=11) == (10, 0.0036)


async def test_a_message_waits_for_twice_the_usual_time_at_most(autojump_clock: MockClock) -> None:
    queue = _queue()
    async with trio.open_nursery() as nursery:

        async def answer_again_and_again() -> None:
            for _ in range(10):
                queue.answered(5)
                await trio.sleep(0.002)

        nursery.start_soon(answer_again_and_again)
        await wait_all_tasks_blocked()
        assert await _taken(queue, apart=1.0, count=1) == (1, 2 * _GATHER)


async def test_a_full_message_does_not_wait(autojump_clock: MockClock) -> None:
    queue = _queue()
    queue.answered(50)
    assert await _taken(queue, apart=0.0001, count=50) == (11, 0.0011)


def _memory_of(append: PendingAppend) -> object:
    return append.records.obj if isinstance(append.records, memoryview) else append.records


async def test_records_are_copied_if_a_view_would_keep_much_that_was_received_with_them() -> None:
    request, several = bytearray(1000), bytes(1000)
    most, few, first = (_append(memoryview(of)[at:]) for of, at in ((request, 100), (request, 500), (several, 100)))
    for append in (most, few, first):
        _queue().put(append)
    assert _memory_of(most) is request
    assert (_memory_of(few), _memory_of(first)) == (bytes(500), bytes(900))
