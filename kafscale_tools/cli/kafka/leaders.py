"""Which broker has which partition of a topic, asked anew where that may help."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import trio

from kafscale.errors import Unavailable
from kafscale_tools.cli.kafka.client import Brokers, Refusal

_PAUSE_SECONDS = 0.3


class Leaders:
    """`find` comes first. ``seconds``: how long what fails is tried again."""

    def __init__(self, brokers: Brokers, topic: str, *, seconds: float) -> None:
        self._brokers = brokers
        self._topic = topic
        self._seconds = seconds
        self._known: dict[int, int] = {}

    async def find(self) -> list[int]:
        """The partitions. Raises Refusal, Unavailable."""
        self._known = await self._brokers.leaders(self._topic)
        return sorted(self._known)

    def of(self, partitions: Iterable[int]) -> dict[int, list[int]]:
        """Partitions by leader; -1 is the leader of those that have none at present."""
        found: dict[int, list[int]] = defaultdict(list)
        for partition in sorted(partitions):
            found[self._known.get(partition, -1)].append(partition)
        return found

    def deadline(self) -> float:
        """Until when to try `again` what begins now."""
        return trio.current_time() + self._seconds

    async def again(self, deadline: float, failures: Sequence[Refusal | Unavailable]) -> None:
        """Pause, and look who leads now. Raises the failure that lasts, Unavailable after ``deadline``."""
        for failure in failures:
            if isinstance(failure, Refusal) and not failure.passing:
                raise failure
        if trio.current_time() + _PAUSE_SECONDS > deadline:
            raise Unavailable(f"not done within {self._seconds:g} s: {'; '.join(dict.fromkeys(map(str, failures)))}")
        await trio.sleep(_PAUSE_SECONDS)
        try:
            await self.find()
        except Unavailable:
            return
