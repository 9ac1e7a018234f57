"""Keeps a shared store's history from growing without end: of its revisions, one per write, the last are needed."""

from collections import deque
from collections.abc import Callable

import structlog
import trio

from kafscale.errors import Refused, Unavailable
from kafscale.metadata.interface import Get, MetadataStore

_SAMPLES_PER_SPAN = 20

_log = structlog.get_logger(__name__)


async def compact_history(store: MetadataStore, key: str, kept_seconds: float, *, random: Callable[[], float]) -> None:
    """Compact, until cancelled, what is older than ``kept_seconds``; nothing is written.

    Any number of processes may do it: each compacts what it has itself seen to be so old. ``key`` is one that may be
    read. ``random`` (0 to 1) keeps the processes apart. A store that refuses is asked again too; etcd lets only users
    with its root role compact.
    """
    # When (on this process's clock) a revision was the newest, the oldest first.
    seen: deque[tuple[float, int]] = deque()
    told = ""
    while True:
        try:
            revision = (await store.txn([], [Get(key)])).revision
            seen.append((trio.current_time(), revision))
            await _compact_older(store, seen, trio.current_time() - kept_seconds)
            told = ""
        except (Unavailable, Refused) as error:
            if told != str(error):
                told = str(error)
                _log.warning("the metadata store's history could not be compacted", error=told)
        await trio.sleep(kept_seconds / _SAMPLES_PER_SPAN * (0.75 + random() / 2))


async def _compact_older(store: MetadataStore, seen: deque[tuple[float, int]], limit: float) -> None:
    while len(seen) > 1 and seen[1][0] <= limit:
        seen.popleft()
    if seen[0][0] <= limit:
        await store.compact(seen[0][1])
        seen.popleft()
