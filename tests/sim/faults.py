"""What goes wrong in one simulation, and how often: drawn from its seed, counted by kind."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

OPERATIONS: dict[str, float] = {
    # Of each operation on a store: not done; done and its answer lost; given up by its caller and done later; slow on
    # its way there; of a read, slow on its way back, so that what it shows is old.
    "object-error": 0.03,
    "object-lost-answer": 0.04,
    "object-late": 0.03,
    "object-slow": 0.03,
    "object-slow-answer": 0.04,
    "delete-late": 0.05,
    # Accepted while its signature was valid, done long after that.
    "put-very-late": 0.01,
    # Of a DELETE of segments, between the proof of the lease and the date that the signature's life counts from.
    "pause-before-signing": 0.1,
    "listing-torn": 0.2,
    # A GET gives wrong bytes, once.
    "object-garbled": 0.004,
    "metadata-error": 0.02,
    "metadata-lost-answer": 0.03,
    "metadata-late": 0.02,
    "metadata-slow": 0.03,
    "metadata-slow-answer": 0.03,
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
    # What it was to store is stored long after its caller has given up.
    "indexer-stalled": 0.1,
    # At a named point of a process's way: right before or after something was done for it.
    "crash-at-point": 0.003,
    "pause-at-point": 0.006,
    # Where an owner is most in danger: an object is about to be stored; it is stored and the commit has not begun.
    "pause-before-put": 0.005,
    "crash-after-put": 0.01,
    "pause-after-put": 0.01,
    # Of a whole run: a topic of so many partitions that one owner commits them by several transactions.
    "wide-topic": 0.06,
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
    "bucket-empty": 0.3,
    "foreign-object": 0.5,
    "oldest-object-deleted": 0.3,
    "metadata-full": 0.5,
    "wall-clock-jump": 1.0,
    "compaction": 1.0,
    "gateway-crash": 1.0,
    "gateway-pause": 1.5,
    "gateway-cut-from-metadata": 0.7,
    "gateway-cut-from-peers": 0.7,
    "records-deleted": 2.0,
    "topic-deleted": 0.7,
    "partitions-added": 0.3,
    "config-changed": 0.7,
}
"""What befalls whole processes or everybody, by weight."""

KINDS = (*OPERATIONS, *EVENTS)

GATEWAYS_AND_METADATA = (
    "metadata-down",
    "metadata-full",
    "compaction",
    "gateway-crash",
    "gateway-pause",
    "gateway-cut-from-metadata",
    "gateway-cut-from-peers",
)
"""The events that need no storage processes."""


_LATENCIES = (0.0, 0.0, 0.0, 0.0, 0.005, 0.01)


class Faults:
    """Each seed has its own mix, so that some of them let one kind of trouble go far (swarm testing)."""

    def __init__(
        self,
        seed: int,
        boost: dict[str, float] | None = None,
        *,
        operations: dict[str, float] = OPERATIONS,
        events: dict[str, float] = EVENTS,
        name: str = "faults",
    ) -> None:
        self.dice = random.Random(f"{name} {seed}")
        self.counts: Counter[str] = Counter()
        self.calm = False
        self._connections = 0
        self._boost = boost or {}
        self._odds = {kind: chance * self._weight(kind) for kind, chance in operations.items()}
        self._weights = {kind: weight * self._weight(kind) for kind, weight in events.items()}
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
