"""Follows a prefix of the metadata store: reads it once, then watches its changes, and reads it again after a gap."""

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
    """Call ``reset`` with all keys and then ``apply`` with each change, until cancelled.

    The task counts as started after the first read; Refused is raised only before that. After a gap in the changes,
    ``reset`` is called again with all keys.
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
                # Reset only after a watch that lasted, so that a store that refuses only watches is not read in a loop.
                outage.over()
            read_at = math.inf
            await outage.pause(error, prefix=prefix)


async def call_at_each(change: Callable[[], Awaitable[None]], call: Callable[[], None]) -> None:
    """Call ``call`` at once, because changes before this runs are not waited for, and then after each change, until
    cancelled. Several changes at once cause one call after the last."""
    while True:
        call()
        await change()
