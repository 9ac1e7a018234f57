"""Follows a prefix of the metadata store for good: one read, then its changes, and all of it anew after a gap."""

import math
from collections.abc import Awaitable, Callable

import trio

from kafscale.errors import Refused
from kafscale.metadata.interface import Compacted, Event, MetadataStore, Snapshot
from kafscale.metadata.outage import STORE_FAILURES, Outage

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


async def follow(
    store: MetadataStore,
    prefix: str,
    *,
    reset: Callable[[Snapshot], None],
    apply: Callable[[tuple[Event, ...]], None],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Tell ``reset`` all there is and ``apply`` each change after that, until cancelled.

    Started when all was read once; raises Refused only before that. After a gap in the changes ``reset`` is told
    everything anew.
    """
    started = False
    read_at = math.inf
    outage = Outage("read again later", first=_FIRST_PAUSE_SECONDS, longest=_LONGEST_PAUSE_SECONDS)
    while True:
        try:
            snapshot = await store.read_prefix(prefix)
            reset(snapshot)
            if not started:
                task_status.started()
                started = True
            read_at = trio.current_time()
            async with store.watch(prefix, snapshot.revision + 1) as watch:
                while True:
                    apply(await watch.next())
        except Compacted:
            continue
        except STORE_FAILURES as error:
            if isinstance(error, Refused) and not started:
                raise
            if trio.current_time() - read_at > _LONGEST_PAUSE_SECONDS:
                # The watch has held: a store that refuses only watches is not read without a pause.
                outage.over()
            read_at = math.inf
            await outage.pause(error, prefix=prefix)


async def call_at_each(change: Callable[[], Awaitable[None]], call: Callable[[], None]) -> None:
    """Call after each change, until cancelled; of several at a time, once after the last. And once at first: what has
    changed before this runs is not waited for."""
    while True:
        call()
        await change()
