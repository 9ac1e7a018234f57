import trio
import trio.testing
from trio.testing import MockClock

from services.operator.queue import Key, WorkQueue

ORDERS, BILLS = Key("KafscaleTopic", "orders"), Key("KafscaleTopic", "bills")


async def test_a_key_added_several_times_is_taken_once(autojump_clock: MockClock) -> None:
    queue = WorkQueue(longest_retry=60)
    for _ in range(3):
        queue.add(ORDERS)
    queue.add(BILLS)
    assert queue.waiting == 2
    assert [await queue.take(), await queue.take()] == [ORDERS, BILLS]
    assert queue.waiting == 0


async def test_each_added_key_wakes_one_waiting_worker(autojump_clock: MockClock) -> None:
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


async def test_a_key_added_during_its_work_is_taken_again_afterwards(autojump_clock: MockClock) -> None:
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


async def test_an_idle_key_comes_again_after_the_interval_and_a_changed_one_immediately(
    autojump_clock: MockClock,
) -> None:
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


async def test_retry_pauses_double_up_to_a_limit_and_start_again_after_a_success(
    autojump_clock: MockClock,
) -> None:
    queue = WorkQueue(longest_retry=10)
    queue.add(ORDERS)
    pauses = [queue.failed(await queue.take()) for _ in range(7)]
    assert pauses == [0.5, 1, 2, 4, 8, 10, 10]
    queue.done(await queue.take(), again=1)
    assert queue.failed(await queue.take()) == 0.5


async def test_a_waiting_worker_is_woken_by_a_new_key(autojump_clock: MockClock) -> None:
    queue = WorkQueue(longest_retry=60)
    queue.add(BILLS, after=100)
    async with trio.open_nursery() as nursery:

        async def add_later() -> None:
            await trio.sleep(1)
            queue.add(ORDERS)

        nursery.start_soon(add_later)
        assert await queue.take() == ORDERS
    assert await queue.take() == BILLS
