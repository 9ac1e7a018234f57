"""The faults of a simulation: drawn from its seed, and counted by kind."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

OPERATIONS: dict[str, float] = {
    # For each operation on a store: not executed; executed with a lost answer; given up by the caller and executed
    # later; a slow request; for reads, a slow response, which is stale.
    "object-error": 0.03,
    "object-lost-answer": 0.04,
    "object-late": 0.03,
    "object-slow": 0.03,
    "object-slow-answer": 0.04,
    "delete-late": 0.05,
    # Accepted with a valid signature, but executed long after that.
    "put-very-late": 0.01,
    # For a DELETE of segments, between the proof of the lease and the date of the signature.
    "pause-before-signing": 0.4,
    "listing-torn": 0.2,
    # A GET returns wrong bytes once.
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
    # For each call between services, and each message of a commit stream.
    "call-error": 0.02,
    "call-lost-answer": 0.02,
    "call-late": 0.02,
    "call-slow": 0.03,
    "stream-broken": 0.005,
    "stream-silent": 0.003,
    "indexer-error": 0.1,
    # The indexer stores its object long after the caller has given up.
    "indexer-stalled": 0.1,
    # At a named point of a process, right before or after an operation on a store.
    "crash-at-point": 0.003,
    "pause-at-point": 0.006,
    # The riskiest points of an owner: right before a PUT, and between a PUT and its commit.
    "pause-before-put": 0.005,
    "crash-after-put": 0.01,
    "pause-after-put": 0.01,
    # For a whole run: a topic with so many partitions that an owner commits them in several transactions.
    "wide-topic": 0.1,
    # For each reply to a client: the connection breaks before it; the client reads everything again after it.
    "connection-lost": 0.01,
    "reader-restarts": 0.01,
}
"""Probabilities, before a seed raises some and sets others to zero."""

REWRITE_OPERATIONS: dict[str, float] = {
    # For each event of a call that rewrites a log.
    "rewrite-slow": 0.1,
    "rewrite-broken": 0.05,
    # For the end of each of these calls: the indexer does not notice it, and continues.
    "rewrite-goes-on": 0.3,
}
"""If logs are rewritten."""

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
    "oldest-object-deleted": 0.6,
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
"""Faults of whole processes or of all, by weight."""

KINDS = (*OPERATIONS, *EVENTS)

NOT_WITH_REWRITES = ("oldest-object-deleted",)
"""The events that are omitted if logs are rewritten, because a missing object that a root names is damage."""

GATEWAYS_AND_METADATA = (
    "metadata-down",
    "metadata-full",
    "compaction",
    "gateway-crash",
    "gateway-pause",
    "gateway-cut-from-metadata",
    "gateway-cut-from-peers",
)
"""The events that do not need storage processes."""


_LATENCIES = (0.0, 0.0, 0.0, 0.0, 0.005, 0.01)


class Faults:
    """The mix of faults of a seed. Seeds differ, so that some exercise one kind of fault heavily (swarm testing)."""

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
        # Every seed has the faults that a variant needs.
        return max(drawn, 1.0) * self._boost[kind] if kind in self._boost else drawn

    def connection_number(self) -> int:
        """Return a number for the trace."""
        self._connections += 1
        return self._connections

    def hits(self, kind: str) -> bool:
        """Return whether an operation gets this kind of fault. Count it if so."""
        if self.calm or self.dice.random() >= self._odds[kind]:
            return False
        self.counts[kind] += 1
        return True

    def event(self) -> str | None:
        """Return the next event, or None if this seed has none."""
        kinds = [kind for kind, weight in self._weights.items() if weight]
        if not kinds:
            return None
        return self.dice.choices(kinds, [self._weights[kind] for kind in kinds])[0]

    def latency(self) -> float:
        """Return the latency of a message in seconds, one of few values, so that many events coincide."""
        return self.dice.choice(_LATENCIES)

    def between(self, low: float, high: float) -> float:
        return self.dice.uniform(low, high)

    def one_of(self, things: Sequence[T]) -> T:
        return self.dice.choice(things)
