"""A limit of what rewrites read and store, as log.cleaner.io.max.bytes.per.second of Kafka."""

import trio


class IoRate:
    """``per_second``: the limit in bytes for all users of this object together; 0: none."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._free_at = 0.0

    async def spent(self, size: int) -> None:
        """To be called after ``size`` bytes were read or stored. Wait until the limit allows the next ones."""
        if self._per_second:
            self._free_at = max(trio.current_time(), self._free_at) + size / self._per_second
            await trio.sleep_until(self._free_at)
