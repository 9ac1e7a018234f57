"""A wrapper of a metadata store that records operations, their outcomes, and how long the store has not answered."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import trio

from kafscale.errors import Refused, Unavailable
from kafscale.metadata.interface import (
    Compacted,
    Event,
    KeyValue,
    LeaseNotFound,
    MetadataStore,
    Operation,
    Page,
    Snapshot,
    TooLarge,
    TxnResult,
    Unchanged,
    Watch,
)
from kafscale.telemetry import HEALTHY, Family, Finding, Histogram, State

T = TypeVar("T")

_PATIENCE_SECONDS = 5.0
_ANSWERS = (Compacted, LeaseNotFound, TooLarge)


class MetadataHealth:
    """The health of one store over all its callers: degraded after one failed operation, unavailable after 5 seconds.

    The renewal of leases ensures that there are always operations.
    """

    def __init__(self, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._failing_since: float | None = None
        self._last_error = ""
        self.operations: Counter[tuple[str, str]] = Counter()  # by name and outcome
        self.seconds: dict[str, Histogram] = {}  # by name

    def answered(self, operation: str, seconds: float, outcome: str = "ok") -> None:
        self._count(operation, seconds, outcome)
        self._failing_since = None

    def failed(self, operation: str, seconds: float | None, outcome: str, error: str) -> None:
        """Record a failure. ``seconds`` is None for a watch, which waits for changes and has no duration."""
        self._count(operation, seconds, outcome)
        self._last_error = error
        if self._failing_since is None:
            self._failing_since = self._clock()

    def finding(self) -> Finding:
        if self._failing_since is None:
            return HEALTHY
        seconds = self._clock() - self._failing_since
        state = State.DEGRADED if seconds < _PATIENCE_SECONDS else State.UNAVAILABLE
        return Finding(state, f"no answer for {seconds:.0f} s: {self._last_error}")

    def families(self) -> list[Family]:
        return [
            Family(
                "kafscale_etcd_operations_total",
                "counter",
                "The number of metadata store operations.",
                lambda: {labels: count for labels, count in self.operations.items()},  # noqa: C416 - its type widens
                ("operation", "outcome"),
            ),
            Family(
                "kafscale_etcd_operation_seconds",
                "histogram",
                "The duration of metadata store operations.",
                lambda: {(name,): histogram for name, histogram in self.seconds.items()},
                ("operation",),
            ),
        ]

    def _count(self, operation: str, seconds: float | None, outcome: str) -> None:
        self.operations[operation, outcome] += 1
        if seconds is None:
            return
        histogram = self.seconds.get(operation)
        if histogram is None:
            histogram = self.seconds[operation] = Histogram()
        histogram.observe(seconds)


class ObservedMetadataStore:
    """Forwards all operations and reports them to ``health``. Of watches, which only wait, it reports failures."""

    def __init__(
        self, inner: MetadataStore, health: MetadataHealth, *, clock: Callable[[], float] = trio.current_time
    ) -> None:
        self._inner = inner
        self._health = health
        self._clock = clock

    async def get(self, key: str) -> KeyValue | None:
        return await self._observe("get", self._inner.get(key))

    async def read_prefix(self, prefix: str) -> Snapshot:
        return await self._observe("read_prefix", self._inner.read_prefix(prefix))

    async def read_page(self, prefix: str, *, after: str = "", revision: int = 0) -> Page:
        return await self._observe("read_page", self._inner.read_page(prefix, after=after, revision=revision))

    async def txn(
        self, compares: Sequence[Unchanged], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnResult:
        return await self._observe("txn", self._inner.txn(compares, then, otherwise))

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Watch]:
        async with self._inner.watch(prefix, from_revision) as watch:
            yield _ObservedWatch(watch, self._health)

    async def grant_lease(self, ttl_seconds: int) -> int:
        return await self._observe("grant_lease", self._inner.grant_lease(ttl_seconds))

    async def keep_alive(self, lease: int) -> int:
        return await self._observe("keep_alive", self._inner.keep_alive(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._observe("revoke_lease", self._inner.revoke_lease(lease))

    async def compact(self, revision: int) -> None:
        await self._observe("compact", self._inner.compact(revision))

    async def _observe(self, operation: str, call: Awaitable[T]) -> T:
        started = self._clock()
        try:
            result = await call
        except _ANSWERS:
            self._health.answered(operation, self._clock() - started, "refused")
            raise
        except (Unavailable, Refused) as error:
            outcome = "unavailable" if isinstance(error, Unavailable) else "refused"
            self._health.failed(operation, self._clock() - started, outcome, str(error))
            raise
        self._health.answered(operation, self._clock() - started)
        return result


@dataclass(frozen=True, slots=True)
class _ObservedWatch:
    inner: Watch
    health: MetadataHealth

    async def next(self) -> tuple[Event, ...]:
        try:
            return await self.inner.next()
        except Unavailable as error:
            self.health.failed("watch", None, "unavailable", str(error))
            raise
