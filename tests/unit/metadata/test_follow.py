"""`call_at_each`: a call after each change."""

import trio
from trio.testing import wait_all_tasks_blocked

from kafscale.metadata.follow import call_at_each


async def test_changes_before_it_ran_are_reported_too() -> None:
    calls: list[int] = []
    changed = trio.Event()

    async def change() -> None:
        await changed.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_at_each, change, lambda: calls.append(1))
        # No task waits for this change yet.
        changed.set()
        changed = trio.Event()
        await wait_all_tasks_blocked()
        assert calls == [1]
        changed.set()
        changed = trio.Event()
        await wait_all_tasks_blocked()
        assert calls == [1, 1]
        nursery.cancel_scope.cancel()
