"""Have indexers merge and compact the logs of owned partitions, and commit the results.

A rewrite is a call to an indexer, which stores objects that nothing refers to. The owner of the partition then stores a
root that names them, and commits it with the partition's state. A rewrite ends without effect if the partition is
handed over or deleted, and continues with another owner after the last step that was committed.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Unavailable
from kafscale.objects.interface import ObjectStore
from kafscale.rewritten.root import MAX_ENTRIES
from kafscale.rpc.generated import IndexerClient
from kafscale.rpc.interface import MessageStream
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import (
    CompactionRules,
    LastBatch,
    RewriteEvent,
    RewriteInput,
    RewriteRequest,
    RewriteStep,
    RewrittenStep,
)
from services.storage.counters import StorageCounters
from services.storage.log.partition import Partition
from services.storage.log.rewriting import (
    MERGED_SEGMENTS,
    Part,
    dirty,
    has_bounds,
    is_due,
    merges_of,
    pass_end,
    steps_of,
    within_retention,
)
from services.storage.owning.owned import OwnedPartitions
from services.storage.owning.wall_clock import clock_was_right
from services.storage.reading.finder import Damaged
from services.storage.reading.roots import read_rewritten
from services.storage.rewriting.merge_pace import MergePace
from services.storage.rewriting.obsolete import Obsolete
from services.storage.rewriting.parts import LogParts
from services.storage.rewriting.roots import Roots
from services.storage.settings import StorageSettings

log = structlog.get_logger()

_LONGEST_MS = 3_600_000
"""How long a call may take until its last step is committed. The delete horizon of tombstones includes this time."""
_PAUSE_AFTER_FAILURE = 60.0
"""Seconds."""
_LONGEST_MERGE_SECONDS = 300
"""Of a call with a limited pace, so that others have their turn and the pace follows the producers."""
_IO_OF_A_BYTE = 3
"""A byte is read, stored and read back to be merged."""
_STEPS_OF_A_PASS = 16
"""The keys of at most so many times KAFSCALE_REWRITE_BYTES are collected for one pass, so that it ends in time."""


class _NoRoom(KafscaleError):
    """The keys of the pass do not fit in memory, or the request has another fault."""


class Rewrites:
    """Checks the owned partitions periodically, and rewrites a bounded number of logs at a time.

    ``enabled`` returns whether this run may write states with roots. ``has_sink_epoch``: whether a partition waits for
    records of a sink, or its state has the progress of one. ``cover`` makes sure that the next state of a partition
    refers to a producer snapshot with all batches below an offset.
    """

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        owned: OwnedPartitions,
        parts: LogParts,
        roots: Roots,
        obsolete: Obsolete,
        pace: MergePace,
        objects: ObjectStore,
        indexer: IndexerClient,
        settings: StorageSettings,
        namespace: str,
        now_ms: Callable[[], int],
        enabled: Callable[[], bool],
        has_sink_epoch: Callable[[Partition], bool],
        cover: Callable[[Partition, int], Awaitable[None]],
        counters: StorageCounters,
    ) -> None:
        self._nursery = nursery
        self._owned = owned
        self._parts = parts
        self._roots = roots
        self._obsolete = obsolete
        self._objects = objects
        self._indexer = indexer
        self._settings = settings
        self._namespace = namespace
        self._now_ms = now_ms
        self._enabled = enabled
        self._has_sink_epoch = has_sink_epoch
        self._cover = cover
        self._counters = counters
        self._pace = pace
        self._turns = trio.CapacityLimiter(settings.rewrites_in_flight)
        self._slow_turn = trio.Lock()
        self._merged_bytes = min(settings.merge_bytes, settings.rewrite_bytes)
        # Until when partitions are not checked because a rewrite failed (Trio time).
        self._not_before: dict[Partition, float] = {}
        # Partitions whose pass of compaction must begin anew, because its keys do not fit in memory any more.
        self._anew: set[Partition] = set()

    async def run(self) -> None:
        self._pace.note(self._counters.mergeable_bytes, trio.current_time())
        while True:
            await trio.sleep(self._settings.rewrite_check_ms / 1000)
            concerned = [partition for partition in self._owned if self._concerns(partition)]
            self._parts.keep(concerned)
            self._anew.intersection_update(concerned)
            now = trio.current_time()
            self._pace.note(self._counters.mergeable_bytes, now)
            self._not_before = {one: until for one, until in self._not_before.items() if until > now}
            for partition in concerned:
                # A root may be committed later than the rewrite ended.
                waits = partition.rewriting is not None or partition.next_root is not None
                if not waits and not partition.moving and partition not in self._not_before:
                    partition.rewriting = trio.CancelScope()
                    self._nursery.start_soon(self._check, partition, partition.rewriting)

    def _concerns(self, partition: Partition) -> bool:
        rewrites = partition.config.compacted or partition.config.merges
        return not partition.offline and (rewrites or partition.log.segments.rewritten is not None)

    async def _check(self, partition: Partition, scope: trio.CancelScope) -> None:
        try:
            with scope:
                if await self._has_root(partition) and self._enabled():
                    async with self._turns:
                        await self._keep_up(partition)
                        slow = self._pace.limited and await self._may_merge(partition)
                    # It takes long, and must not delay compactions. A log that waited would not be checked meanwhile.
                    if slow and not self._slow_turn.locked():
                        async with self._slow_turn:
                            await self._merge(partition)
        except KafscaleError as error:
            log.warning("log not rewritten, retrying later", partition=partition.name, error=str(error))
            self._not_before[partition] = trio.current_time() + _PAUSE_AFTER_FAILURE
            self._counters.rewrites_failed += 1
        finally:
            partition.rewriting = None

    async def _has_root(self, partition: Partition) -> bool:
        """Return whether the partition's root is known, after reading it again if it is not. Raises KafscaleError."""
        rewritten = partition.log.segments.rewritten
        if rewritten is not None and rewritten.fault:
            found = await read_rewritten(self._objects, self._namespace, partition.ref, partition.state)
            if found is None or found.fault:
                return False
            partition.found_root(found)
        return True

    async def _keep_up(self, partition: Partition) -> None:
        if partition.undeleted:
            await self._obsolete.delete_replaced(partition, [])
        await self._obsolete.sweep(partition)
        try:
            if partition.config.compacted:
                await self._compact(partition)
            else:
                partition.dirty_bytes, partition.dirty_since_ms = 0, None
                if not self._pace.limited and await self._may_merge(partition):
                    await self._merge(partition)
        finally:
            # What was replaced before is deleted although this may fail again and again.
            if self._roots.due(partition):
                await self._roots.commit(partition)

    async def _may_merge(self, partition: Partition) -> bool:
        """Return whether there are enough segments for a merge. They may be too young."""
        if partition.config.compacted or not partition.config.merges:
            return False
        _, least = within_retention(partition.config, self._merged_bytes)
        return await self._parts.has_segments(partition, _limit(partition), number=MERGED_SEGMENTS, size=least)

    async def _merge(self, partition: Partition) -> None:
        limit, size = _limit(partition), self._merged_bytes
        parts = await self._parts.read(partition, limit)
        merges = merges_of(parts, partition.config, limit=limit, now_ms=self._now_ms(), target_bytes=size)
        if merges and len(parts) <= MAX_ENTRIES:
            pace = self._pace.bytes_per_second
            if pace:
                merges = _first_of(merges, pace * _LONGEST_MERGE_SECONDS // _IO_OF_A_BYTE)
            await self._cover(partition, merges[-1][-1].end)
            steps = [RewriteStep(inputs=[part.as_input() for part in parts]) for parts in merges]
            await self._rewrite(partition, steps, None, pace)

    async def _compact(self, partition: Partition) -> None:
        view, config, limit, now_ms = partition.log, partition.config, _limit(partition), self._now_ms()
        rewritten = view.segments.rewritten
        root = rewritten.root if rewritten is not None else None
        first_dirty = root.first_dirty if root is not None else 0
        parts = await self._parts.read(partition, limit)
        found = dirty(parts, config, first_dirty=first_dirty, limit=limit, now_ms=now_ms)
        partition.dirty_bytes, partition.dirty_since_ms = found.bytes, found.oldest_ms if found.bytes else None
        resumed = root.compaction if root is not None and partition not in self._anew else None
        if resumed is not None and not has_bounds(parts, resumed.next_offset, resumed.end):
            # The log start has passed it, or the log was merged in between.
            resumed = None
        if not parts or (resumed is None and not is_due(found, config, now_ms=now_ms)):
            return
        if self._has_sink_epoch(partition):
            # A restored sink continues by what the log has of its epoch.
            return
        if not await clock_was_right(self._objects, self._namespace, self._now_ms, at_ms=now_ms):
            log.warning("compaction skipped, clock differs from object store", partition=partition.name)
            return
        most_bytes = _STEPS_OF_A_PASS * self._settings.rewrite_bytes
        end, begin = (pass_end(parts, first_dirty, found.end, most_bytes), parts[0].start)
        if resumed is not None:
            end, begin = resumed.end, resumed.next_offset
        # A new owner must not need batches that are removed to know the producers.
        await self._cover(partition, end)
        kept_ms = config.delete_retention_ms + self._settings.rewrite_grace_ms + _LONGEST_MS
        rules = CompactionRules(
            dirty=[part.as_input() for part in parts if first_dirty < part.end <= end],
            end=end,
            resumed=resumed is not None,
            now_ms=now_ms,
            horizon_ms=now_ms + kept_ms,
            memory_bytes=self._settings.compaction_memory,
            batch_bytes=self._settings.compaction_batch_bytes,
            producers=[
                LastBatch(producer_id=producer_id, epoch=epoch, last_offset=last_offset)
                for producer_id, epoch, last_offset in partition.committed_producers.last_batches()
            ],
        )
        chosen = [part for part in parts if begin <= part.start and part.end <= end]
        await self._rewrite(partition, steps_of(chosen, config, self._settings.rewrite_bytes), rules)

    async def _rewrite(
        self, partition: Partition, steps: Sequence[RewriteStep], rules: CompactionRules | None, pace: int = 0
    ) -> None:
        """Call an indexer, and commit each step that it finishes. It merges if there are no ``rules``. ``pace``: how
        many bytes per second it reads and stores; 0: no limit.

        Raises KafscaleError.
        """
        partition.attempts += 1
        attempt, kind, began_ms = partition.attempts, "merge" if rules is None else "compaction", self._now_ms()
        request = RewriteRequest(
            partition=partition.ref,
            epoch=partition.epoch,
            attempt=attempt,
            steps=steps,
            target_bytes=self._settings.rewrite_bytes,
            compaction=rules,
            bytes_per_second=pace,
        )
        inputs = [one for step in steps for one in step.inputs]
        begin, end = inputs[0].start, inputs[-1].end
        log.info("rewrite begins", kind=kind, partition=partition.name, start=begin, end=end, objects=len(inputs))
        committed = 0
        try:
            with trio.fail_after(_LONGEST_MS / 1000):
                async with self._indexer.rewrite(request) as events:
                    while begin < end:
                        step = _checked(request, await _next_step(events))
                        # The clock also advances while a machine is suspended.
                        late = self._now_ms() - began_ms > _LONGEST_MS
                        replaced = self._segments(partition, inputs, step)
                        if late or not _wanted(partition, rules):
                            return
                        if not await self._roots.commit(partition, step, replaced, compacts=rules is not None):
                            return
                        committed += 1
                        self._count(kind, step)
                        begin, end = step.end, min(step.pass_end or end, end)
            self._anew.discard(partition)
            log.info("rewrite finished", kind=kind, partition=partition.name, steps=committed)
        except trio.TooSlowError:
            if not committed:
                raise Unavailable("no step of the rewrite was finished within an hour") from None
            log.info("rewrite continues later", kind=kind, partition=partition.name, steps=committed)
        except _NoRoom as error:
            if rules is not None and rules.resumed:
                self._anew.add(partition)
            raise Unavailable(str(error)) from error
        except Damaged:
            if inputs[0].end <= partition.log.log_start:
                # The objects were deleted because the log start moved.
                return
            raise
        finally:
            if committed < len(steps):
                partition.ended_attempts.add(attempt)
                partition.unswept = True
                partition.last_unknown_request = trio.current_time()

    def _segments(self, partition: Partition, inputs: Sequence[RewriteInput], step: RewrittenStep) -> list[str]:
        """Return the keys of the segments, and their indexes, that the result of the step replaces."""
        ref = partition.ref
        return [
            key(self._namespace, ref.topic, ref.partition, one.start)
            for one in inputs
            if not one.HasField("rewritten") and step.start <= one.start and one.end <= step.end
            for key in (paths.segment_key, paths.index_key)
        ]

    def _count(self, kind: str, step: RewrittenStep) -> None:
        self._counters.rewrite_steps[kind] += 1
        self._counters.rewrite_read_bytes += step.bytes_in
        self._counters.rewrite_written_bytes += step.bytes_out


async def _next_step(events: MessageStream[RewriteEvent]) -> RewrittenStep:
    while True:
        event = await events.receive()
        if event.status == Status.DAMAGED:
            raise Damaged(event.detail)
        if event.status == Status.INVALID:
            raise _NoRoom(event.detail)
        if event.status != Status.OK:
            raise Unavailable(event.detail)
        if event.HasField("step"):
            return event.step


def _checked(request: RewriteRequest, step: RewrittenStep) -> RewrittenStep:
    """Return the step. Raises Unavailable if it cannot be the result of the request."""
    # A rewritten object of which all stays is returned as it is.
    there = [one.rewritten for each in request.steps for one in each.inputs if one.start == step.start]
    added = [entry for entry in step.entries if entry.epoch and entry not in there]
    attempt = request.epoch, request.attempt
    if any((entry.epoch, entry.attempt) != attempt for entry in added) or step.records_out > step.records_in:
        raise Unavailable(f"the indexer's step from {step.start} to {step.end} is not that of the request")
    if not request.HasField("compaction") and step.records_in != step.records_out:
        raise Unavailable(f"the indexer merged {step.records_in} records into {step.records_out}")
    return step


def _first_of(merges: list[list[Part]], most_bytes: int) -> list[list[Part]]:
    """Return the first merges up to a size in total, at least one."""
    for number, parts in enumerate(merges):
        most_bytes -= sum(part.size for part in parts)
        if most_bytes < 0 and number:
            return merges[:number]
    return merges


def _wanted(partition: Partition, rules: CompactionRules | None) -> bool:
    """Return whether the configs of the topic still ask for a rewrite that has begun."""
    config = partition.config
    return config.merges and not config.compacted if rules is None else config.compacted


def _limit(partition: Partition) -> int:
    """Return the offset up to which a log may be rewritten: where its last segment begins."""
    state = partition.state
    return state.last_segment.base_offset if state.HasField("last_segment") else 0
