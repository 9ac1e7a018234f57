"""The clock for the retention of committed offsets. It is kept in the metadata store, independent of wall clocks.

With a wall clock that is days ahead, a coordinator would delete the offsets of every empty group. Coordinators
therefore share a clock: each continues from the stored time with the boot clock of its machine, and stores the time
periodically. A wall clock only sets the time once, in a new cluster; later steps of it have no effect. Time in which no
coordinator runs does not count, so offsets are kept longer, never shorter.
"""

from collections.abc import Callable

from kafscale import paths
from kafscale.errors import Refused, Unavailable
from kafscale.metadata.interface import MetadataStore, Put, Unchanged
from kafscale.v1.groups_pb2 import GroupClock as Stored

_FORMAT = 1
_ATTEMPTS = 8


class GroupClock:
    """The shared clock. `store` must have succeeded once.

    ``clock`` returns the seconds since boot. ``wall_ms`` returns the wall clock time, used in a new cluster.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        namespace: str,
        *,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._key = paths.group_clock_key(namespace)
        self._clock = clock
        self._wall_ms = wall_ms
        self._base_ms: int | None = None
        self._since = 0.0

    @property
    def now_ms(self) -> int:
        """The current time in milliseconds since 1970. It never goes back."""
        if self._base_ms is None:
            raise RuntimeError("the group clock has not been read yet")
        return self._base_ms + int((self._clock() - self._since) * 1000)

    async def store(self) -> None:
        """Continue from the stored time if it is later than ours, else store ours. Raises Unavailable, Refused."""
        for _ in range(_ATTEMPTS):
            kv = await self._metadata.get(self._key)
            if kv is not None:
                stored = self._parsed(kv.value)
                if self._base_ms is None or stored >= self.now_ms:
                    self._continue_from(stored)
                    return
            now_ms = self._wall_ms() if self._base_ms is None else self.now_ms
            value = Stored(format=_FORMAT, now_ms=now_ms)
            compares = [Unchanged(self._key, kv.mod_revision if kv else 0)]
            result = await self._metadata.txn(compares, [Put(self._key, value.SerializeToString())])
            if result.succeeded:
                if self._base_ms is None:
                    self._continue_from(now_ms)
                return
        raise Unavailable(f"{self._key} keeps changing")

    def _parsed(self, value: bytes) -> int:
        stored = Stored.FromString(value)
        if stored.format != _FORMAT:
            raise Refused(f"{self._key} has format {stored.format}, this release reads {_FORMAT}")
        return stored.now_ms

    def _continue_from(self, now_ms: int) -> None:
        self._base_ms, self._since = now_ms, self._clock()
