"""Whether the wall clock can be trusted, for decisions that remove records."""

from collections.abc import Callable
from contextlib import suppress

from kafscale import paths
from kafscale.objects.interface import ObjectNotFound, ObjectStore, clocks_agree


async def clock_was_right(objects: ObjectStore, namespace: str, now_ms: Callable[[], int], *, at_ms: int) -> bool:
    """Return whether the clock was right when it showed ``at_ms``. Asks the object store now. Raises Unavailable."""
    with suppress(ObjectNotFound):
        await objects.head(paths.cluster_mark_key(namespace))
    # A clock that agrees now but shows an earlier time was ahead and has been set back.
    return clocks_agree(objects.clock_skew_seconds) and now_ms() >= at_ms
