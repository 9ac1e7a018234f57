"""The leaders of a topic's partitions, refreshed after errors."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import trio

from kafscale.errors import Unavailable
from kafscale.kafka_client.client import Brokers
from kafscale.kafka_client.requests import Refusal

_PAUSE_SECONDS = 0.3


class Leaders:
    """The current leaders. Call `find` first. ``seconds``: how long failed requests are retried."""

    def __init__(self, brokers: Brokers, topic: str, *, seconds: float) -> None:
        self._brokers = brokers
        self._topic = topic
        self._seconds = seconds
        self._known: dict[int, int] = {}

    async def find(self) -> list[int]:
        """Look up the leaders and return the partitions. Raises Refusal, Unavailable."""
        self._known = await self._brokers.leaders(self._topic)
        return sorted(self._known)

    def of(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Return the partitions by leader, which is -1 if they have none at present."""
        found: dict[int, list[int]] = defaultdict(list)
        for partition in sorted(partitions):
            found[self._known.get(partition, -1)].append(partition)
        return found

    def deadline(self) -> float:
        """Return the time until which an operation that begins now is retried with `again`."""
        return trio.current_time() + self._seconds

    async def again(self, deadline: float, failures: Sequence[Refusal | Unavailable]) -> None:
        """Pause and look up the leaders. Raises a failure that is not retriable, or Unavailable after ``deadline``."""
        for failure in failures:
            if isinstance(failure, Refusal) and not failure.retriable:
                raise failure
        if trio.current_time() + _PAUSE_SECONDS > deadline:
            raise Unavailable(f"not done within {self._seconds:g} s: {'; '.join(dict.fromkeys(map(str, failures)))}")
        await trio.sleep(_PAUSE_SECONDS)
        try:
            await self.find()
        except Unavailable:
            return
