"""What goes wrong in one simulation, and how often: drawn from its seed, counted by kind."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

OPERATIONS: dict[str, float] = {
    # Of each operation on a store: not done; done and its answer lost; given up by its caller and done later; slow.
    "object-error": 0.03,
    "object-lost-answer": 0.04,
    "object-late": 0.03,
    "object-slow": 0.03,
    "delete-late": 0.05,
    "listing-torn": 0.2,
    "metadata-error": 0.02,
    "metadata-lost-answer": 0.03,
    "metadata-late": 0.02,
    "metadata-slow": 0.03,
    "commit-late": 0.02,
    "watch-gap": 0.02,
    "watch-broken": 0.02,
    "watch-slow": 0.05,
    # Of each call between services, and each message of a commit stream.
    "call-error": 0.02,
    "call-lost-answer": 0.02,
    "call-late": 0.02,
    "call-slow": 0.03,
    "stream-broken": 0.005,
    "stream-silent": 0.003,
    "indexer-error": 0.1,
    # At a named point of a process's way: right before or after something was done for it.
    "crash-at-point": 0.003,
    "pause-at-point": 0.006,
    # Where an owner is most in danger: an object is about to be stored; it is stored and the commit has not begun.
    "pause-before-put": 0.005,
    "crash-after-put": 0.01,
    "pause-after-put": 0.01,
    # Of each reply to a client: its connection breaks before it; it reads everything again after it.
    "connection-lost": 0.01,
    "reader-begins-anew": 0.01,
}
"""Chances, before a seed makes some of them larger and others zero."""

EVENTS: dict[str, float] = {
    "crash": 3.0,
    "pause": 3.0,
    "leave": 1.5,
    "come-and-go": 0.5,
    "ping-pong": 1.0,
    "lease-lost": 1.0,
    "clock-jump": 1.0,
    "cut-from-metadata": 1.0,
    "cut-from-objects": 1.0,
    "cut-from-peers": 1.0,
    "metadata-down": 0.5,
    "objects-down": 0.5,
    "compaction": 1.0,
    "gateway-crash": 1.0,
    "records-deleted": 2.0,
    "topic-deleted": 0.7,
}
"""What befalls whole processes or everybody, by weight."""

KINDS = (*OPERATIONS, *EVENTS)


_LATENCIES = (0.0, 0.0, 0.0, 0.0, 0.005, 0.01)


class Faults:
    """Each seed has its own mix, so that some of them let one kind of trouble go far (swarm testing)."""

    def __init__(self, seed: int, boost: dict[str, float] | None = None) -> None:
        self.dice = random.Random(f"faults {seed}")
        self.counts: Counter[str] = Counter()
        self.calm = False
        self._connections = 0
        self._boost = boost or {}
        self._odds = {kind: chance * self._weight(kind) for kind, chance in OPERATIONS.items()}
        self._weights = {kind: weight * self._weight(kind) for kind, weight in EVENTS.items()}
        self.seconds_between_events = self.dice.choice([0.2, 0.4, 0.8])

    def _weight(self, kind: str) -> float:
        drawn = self.dice.choice([0.0, 0.3, 1.0, 1.0, 2.5])
        # No seed does without what a variant needs to be found.
        return max(drawn, 1.0) * self._boost[kind] if kind in self._boost else drawn

    def connection_number(self) -> int:
        """For the trace."""
        self._connections += 1
        return self._connections

    def hits(self, kind: str) -> bool:
        """Whether this one operation meets this kind of fault; counted when it does."""
        if self.calm or self.dice.random() >= self._odds[kind]:
            return False
        self.counts[kind] += 1
        return True

    def event(self) -> str | None:
        """What happens next; None: nothing in this seed."""
        kinds = [kind for kind, weight in self._weights.items() if weight]
        if not kinds:
            return None
        return self.dice.choices(kinds, [self._weights[kind] for kind in kinds])[0]

    def latency(self) -> float:
        """Of a message on its way, in seconds: few different ones, so that much happens at the same time."""
        return self.dice.choice(_LATENCIES)

    def between(self, low: float, high: float) -> float:
        return self.dice.uniform(low, high)

    def one_of(self, things: Sequence[T]) -> T:
        return self.dice.choice(things)
