"""Follows a prefix of the metadata store for good: one read, then its changes, and all of it anew after a gap."""

from collections.abc import Callable

import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.metadata.interface import Compacted, Event, MetadataStore, Snapshot

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0

_log = structlog.get_logger(__name__)


async def follow(
    store: MetadataStore,
    prefix: str,
    *,
    reset: Callable[[Snapshot], None],
    apply: Callable[[tuple[Event, ...]], None],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Tell ``reset`` all there is and ``apply`` each change after that, until cancelled.

    Started when all was read once; raises Unavailable only before that. After a gap in the changes ``reset`` is told
    everything anew.
    """
    started = False
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            snapshot = await store.read_prefix(prefix)
            reset(snapshot)
            if not started:
                task_status.started()
                started = True
            pause = _FIRST_PAUSE_SECONDS
            async with store.watch(prefix, snapshot.revision + 1) as watch:
                while True:
                    apply(await watch.next())
        except Compacted:
            continue
        except Unavailable as error:
            if not started:
                raise
            _log.warning("read again later", prefix=prefix, reason=str(error))
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
