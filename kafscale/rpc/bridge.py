"""Where Trio and asyncio meet: one asyncio loop in a thread of its own, and a way to await in Trio what others finish.

grpc.aio wants one loop for all that it does in a process, so the thread is started once, by whoever needs it first.
"""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import cache
from typing import Any, Protocol, TypeVar

import trio

_END_SECONDS = 1.0

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Future(Protocol[T_co]):
    """What ``concurrent.futures`` and ``grpc`` call a future; its callbacks run in whatever thread finished it."""

    def add_done_callback(self, fn: Callable[[Any], None], /) -> object: ...
    def cancel(self) -> object: ...
    def result(self) -> T_co: ...


async def finished(future: Future[object], on_cancel: Callable[[], object]) -> None:
    """Wait in a Trio task until ``future`` is done. Cancelled, the task calls ``on_cancel`` and waits no longer."""
    task = trio.lowlevel.current_task()
    token = trio.lowlevel.current_trio_token()
    waiting = True

    def wake() -> None:
        if waiting:
            trio.lowlevel.reschedule(task)

    def wake_from_any_thread(_: object) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(wake)

    def abort(_: Callable[[], object]) -> trio.lowlevel.Abort:
        nonlocal waiting
        waiting = False
        on_cancel()
        return trio.lowlevel.Abort.SUCCEEDED

    future.add_done_callback(wake_from_any_thread)
    await trio.lowlevel.wait_task_rescheduled(abort)


async def result_of(future: Future[T]) -> T:
    """What ``future`` gives or raises; cancelling the Trio task cancels it."""
    await finished(future, future.cancel)
    return future.result()


async def in_asyncio(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in the asyncio thread; cancelling the Trio task cancels it there."""
    return await result_of(asyncio.run_coroutine_threadsafe(work, asyncio_loop()))


async def _end_tasks() -> None:
    """A loop that is closed with tasks of grpc.aio's complains of each."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@cache
def asyncio_loop() -> asyncio.AbstractEventLoop:
    """The process's asyncio loop, running in its thread until the interpreter ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kafscale-rpc", daemon=True)
    thread.start()

    def stop() -> None:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(_END_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    # A daemon thread inside gRPC's C++ while the interpreter goes away can abort the process.
    atexit.register(stop)
    return loop
