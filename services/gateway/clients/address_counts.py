"""How many connections each address has, so that one client cannot take those of all others."""

from collections import Counter
from collections.abc import Mapping


class AddressCounts:
    """``most``: the limit of an address; ``others``: those of single addresses. Addresses are in Kafka's notation."""

    def __init__(self, most: int, others: Mapping[str, int]) -> None:
        self._most = most
        self._others = others
        self._open: Counter[str] = Counter()

    def is_full(self, host: str) -> bool:
        """Whether an address may not open another connection."""
        return self._open[host] >= self._others.get(host, self._most)

    def enter(self, host: str) -> None:
        self._open[host] += 1

    def leave(self, host: str) -> None:
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]
