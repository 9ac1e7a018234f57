import trio
import trio.testing
from trio.testing import MockClock

from services.operator.queue import Key, WorkQueue

ORDERS, BILLS = Key("KafscaleTopic", "orders"), Key("KafscaleTopic", "bills")


async def test_a_thing_is_looked_at_once_however_often_it_is_added(autojump_clock: MockClock) -> None:
    queue = WorkQueue(longest_retry=60)
    for _ in range(3):
        queue.add(ORDERS)
    queue.add(BILLS)
    assert queue.waiting == 2
    assert [await queue.take(), await queue.take()] == [ORDERS, BILLS]
    assert queue.waiting == 0


async def test_all_who_wait_are_woken_for_what_there_is(autojump_clock: MockClock) -> None:
    queue = WorkQueue(longest_retry=60)
    taken: list[Key] = []

    async def work() -> None:
        taken.append(await queue.take())
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(work)
        await trio.testing.wait_all_tasks_blocked()
        queue.add(ORDERS)
        queue.add(BILLS)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert taken == [ORDERS, BILLS]


async def test_what_is_added_while_it_is_worked_on_is_looked_at_again_after_that(autojump_clock: MockClock) -> None:
    queue = WorkQueue(longest_retry=60)
    queue.add(ORDERS)
    await queue.take()
    queue.add(ORDERS)
    with trio.move_on_after(5) as scope:
        await queue.take()
    assert scope.cancelled_caught
    queue.done(ORDERS, again=60)
    assert await queue.take() == ORDERS
    queue.gone(ORDERS)
    assert queue.waiting == 0


async def test_what_is_in_line_comes_again_and_what_is_changed_comes_at_once(autojump_clock: MockClock) -> None:
    queue = WorkQueue(longest_retry=60, spread=lambda: 1.1)
    queue.add(ORDERS)
    queue.done(await queue.take(), again=60)
    began = trio.current_time()
    assert await queue.take() == ORDERS
    assert round(trio.current_time() - began) == 66
    queue.done(ORDERS, again=60)
    queue.add(ORDERS)
    began = trio.current_time()
    assert await queue.take() == ORDERS
    assert trio.current_time() == began


async def test_pauses_before_retries_double_up_to_a_bound_and_begin_anew_after_success(
    autojump_clock: MockClock,
) -> None:
    queue = WorkQueue(longest_retry=10)
    queue.add(ORDERS)
    pauses = [queue.failed(await queue.take()) for _ in range(7)]
    assert pauses == [0.5, 1, 2, 4, 8, 10, 10]
    queue.done(await queue.take(), again=1)
    assert queue.failed(await queue.take()) == 0.5


async def test_one_that_waits_is_woken_by_what_comes(autojump_clock: MockClock) -> None:
    queue = WorkQueue(longest_retry=60)
    queue.add(BILLS, after=100)
    async with trio.open_nursery() as nursery:

        async def add_later() -> None:
            await trio.sleep(1)
            queue.add(ORDERS)

        nursery.start_soon(add_later)
        assert await queue.take() == ORDERS
    assert await queue.take() == BILLS
