"""Reads the intakes of former owners for take-overs, each once for all partitions that are taken over."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.intake.format import Entry
from kafscale.intake.listing import Span
from kafscale.intake.tail import Tail, tail_of
from kafscale.metadata.interface import MetadataStore
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from services.storage.counters import StorageCounters
from services.storage.intake.chain import Chain, DamagedChain
from services.storage.intake.register import seal_register
from services.storage.reading.single_flight import SingleFlight

log = structlog.get_logger()

Key = tuple[bytes, int]
_KEPT_SECONDS = 30.0
_ATTEMPTS = 20
_EMPTY: Mapping[Key, list[Entry]] = {}


class IntakeRecovery:
    """Returns tails of partitions. What was read is kept for a while after its last use.

    All methods raise TailContradicts and DamagedChain if the metadata was rolled back or objects are damaged;
    RegisterMissing; StillMember; Unavailable, Refused.
    """

    def __init__(
        self,
        objects: ObjectStore,
        metadata: MetadataStore,
        *,
        nursery: trio.Nursery,
        namespace: str,
        now_ms: Callable[[], int],
        counters: StorageCounters,
        quiet: Callable[[Key], Awaitable[None]],
    ) -> None:
        self._objects = objects
        self._metadata = metadata
        self._namespace = namespace
        self._now_ms = now_ms
        self._counters = counters
        self.quiet = quiet
        """Wait until no intake object of this run with records of the partition is on its way."""
        self._reads: SingleFlight[str, Mapping[Key, list[Entry]]] = SingleFlight(nursery)
        # Entries of sealed chains by run, and when they were last used.
        self._kept: dict[str, tuple[float, Mapping[Key, list[Entry]]]] = {}

    async def of_dead_owner(self, run_id: str, key: Key, *, epoch: int, start: int) -> Tail:
        """Seal the intake of a run whose member key is gone. Return what it has of a partition from ``start`` on."""
        self._forget_old()
        kept = self._kept.get(run_id)
        entries = kept[1] if kept else await self._reads.do(run_id, partial(self._sealed, run_id))
        self._kept[run_id] = trio.current_time(), entries
        return tail_of(entries.get(key, ()), epoch=epoch, start=start)

    async def of_released(self, run_id: str, key: Key, *, epoch: int, start: int) -> Tail:
        """Return what the intake of a run, which may go on for other partitions, has of one that it released."""
        # Not shared: a read that began before the last object counted would lack its records.
        entries = await self._so_far(run_id)
        return tail_of(entries.get(key, ()), epoch=epoch, start=start)

    async def _sealed(self, run_id: str) -> Mapping[Key, list[Entry]]:
        if not await seal_register(self._metadata, self._namespace, run_id):
            return _EMPTY
        chain = self._chain(run_id)
        span = await chain.seal()
        if (await chain.listing()).removed:
            # That was done when no state named the run any more.
            raise DamagedChain(f"the intake of run {run_id} was removed, so the metadata was rolled back")
        entries = await _read(chain, span)
        self._counters.intakes_sealed += 1
        log.info("intake sealed", run=run_id, first=span.start, objects=span.end - span.start)
        return entries

    async def _so_far(self, run_id: str) -> Mapping[Key, list[Entry]]:
        chain = self._chain(run_id)
        for _ in range(_ATTEMPTS):
            try:
                return await _read(chain, await chain.span())
            except ObjectNotFound:
                # The run has moved its checkpoint; what a released partition needs stays.
                continue
        raise Unavailable(f"the intake of run {run_id} keeps changing")

    def _chain(self, run_id: str) -> Chain:
        return Chain(self._objects, self._namespace, run_id, now_ms=self._now_ms)

    def _forget_old(self) -> None:
        since = trio.current_time() - _KEPT_SECONDS
        self._kept = {run_id: kept for run_id, kept in self._kept.items() if kept[0] >= since}


async def _read(chain: Chain, span: Span) -> Mapping[Key, list[Entry]]:
    if span.start == span.end:
        return _EMPTY
    found: dict[Key, list[Entry]] = defaultdict(list)
    async for one in chain.read(span):
        for entry in one.entries:
            found[entry.partition.topic_id, entry.partition.partition].append(entry)
    return found
