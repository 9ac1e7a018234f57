"""Connects Trio and asyncio: an asyncio loop in a separate thread, and functions to await its futures in Trio.

grpc.aio needs a single loop per process, so the thread is started once, when it is first needed.
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
    """A future of ``concurrent.futures`` or ``grpc``. Its callbacks run in the thread that completes it."""

    def add_done_callback(self, fn: Callable[[Any], None], /) -> object: ...
    def cancel(self) -> object: ...
    def result(self) -> T_co: ...


async def finished(future: Future[object], on_cancel: Callable[[], object]) -> None:
    """Wait in a Trio task until ``future`` is done. If the task is cancelled, call ``on_cancel`` and stop waiting."""
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
    """Return the result of ``future`` or raise its error. Cancelling the Trio task cancels the future."""
    await finished(future, future.cancel)
    return future.result()


async def in_asyncio(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` in the asyncio thread. Cancelling the Trio task cancels it there."""
    return await result_of(asyncio.run_coroutine_threadsafe(work, asyncio_loop()))


async def _end_tasks() -> None:
    """Cancel the tasks of grpc.aio. A loop that is closed while they run logs an error for each."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@cache
def asyncio_loop() -> asyncio.AbstractEventLoop:
    """Return the asyncio loop of the process. It runs in its thread until the interpreter exits."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kafscale-rpc", daemon=True)
    thread.start()

    def stop() -> None:
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result(_END_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    # A daemon thread that is inside gRPC's C++ code while the interpreter exits can abort the process.
    atexit.register(stop)
    return loop
