"""Have indexers compact the logs of owned partitions, and commit the results.

A rewrite is a call to an indexer, which stores objects that nothing refers to. The owner of the partition then stores a
root that names them, and commits it with the partition's state. A rewrite ends without effect if the partition is
handed over or deleted, and continues with another owner after the last step that was committed.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Unavailable
from kafscale.objects.interface import ObjectStore, clocks_agree
from kafscale.objects.puts import put_own
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.root import Root, build_root, stored_crc
from kafscale.rpc.generated import IndexerClient
from kafscale.rpc.interface import MessageStream
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import (
    CompactionRules,
    LastBatch,
    RewriteEvent,
    RewriteInput,
    RewriteRequest,
    RewrittenStep,
)
from kafscale.v1.metadata_pb2 import RootRef
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.storage.counters import StorageCounters
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog, Partition
from services.storage.log.rewriting import MOST_PARTS, Part, dirty, is_due, next_root, parts_of, steps_of
from services.storage.log.rewritten import RewrittenLog
from services.storage.owning.owned import OwnedPartitions
from services.storage.reading.catalogs import Catalogs
from services.storage.reading.finder import Damaged
from services.storage.reading.reader import Reader
from services.storage.reading.roots import read_rewritten, root_key
from services.storage.rewriting.obsolete import Obsolete
from services.storage.settings import StorageSettings

log = structlog.get_logger()

_LONGEST_MS = 3_600_000
"""How long a call may take until its last step is committed. The delete horizon of tombstones includes this time."""
_PAUSE_AFTER_FAILURE = 60.0
"""Seconds."""


class _NoRoom(KafscaleError):
    """The keys of the pass do not fit in memory, or the request has another fault."""


class Rewrites:
    """Checks the owned partitions periodically, and rewrites a bounded number of logs at a time.

    ``enabled`` returns whether this run may write states with roots. ``has_sink_epoch``: whether a partition waits for
    records of a sink, or its state has the progress of one. ``cover`` makes sure that the next state of a
    partition refers to a producer snapshot with all batches below an offset. ``ready`` has the next state written, and
    ``moved`` waits until any partition's state was written.
    """

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        owned: OwnedPartitions,
        reader: Reader,
        catalogs: Catalogs,
        obsolete: Obsolete,
        objects: ObjectStore,
        indexer: IndexerClient,
        settings: StorageSettings,
        namespace: str,
        now_ms: Callable[[], int],
        enabled: Callable[[], bool],
        has_sink_epoch: Callable[[Partition], bool],
        cover: Callable[[Partition, int], Awaitable[None]],
        ready: Callable[[Partition], None],
        moved: Callable[[], Awaitable[None]],
        counters: StorageCounters,
    ) -> None:
        self._nursery = nursery
        self._owned = owned
        self._reader = reader
        self._catalogs = catalogs
        self._obsolete = obsolete
        self._objects = objects
        self._indexer = indexer
        self._settings = settings
        self._namespace = namespace
        self._now_ms = now_ms
        self._enabled = enabled
        self._has_sink_epoch = has_sink_epoch
        self._cover = cover
        self._ready = ready
        self._moved = moved
        self._counters = counters
        self._turns = trio.CapacityLimiter(settings.rewrites_in_flight)
        # When segments of unknown timestamps were written, by base offset, for the partitions that are checked.
        self._written_ms: dict[Partition, dict[int, int]] = {}
        # Until when partitions are not checked because a rewrite failed (Trio time).
        self._not_before: dict[Partition, float] = {}
        # Partitions whose pass of compaction must begin anew, because its keys do not fit in memory any more.
        self._anew: set[Partition] = set()

    async def run(self) -> None:
        while True:
            await trio.sleep(self._settings.rewrite_check_ms / 1000)
            concerned = [partition for partition in self._owned if self._concerns(partition)]
            self._written_ms = {one: self._written_ms.get(one, {}) for one in concerned}
            self._anew.intersection_update(concerned)
            now = trio.current_time()
            self._not_before = {one: until for one, until in self._not_before.items() if until > now}
            if self._enabled():
                for partition in concerned:
                    if partition.rewriting is None and not partition.moving and partition not in self._not_before:
                        partition.rewriting = trio.CancelScope()
                        self._nursery.start_soon(self._check, partition, partition.rewriting)

    def _concerns(self, partition: Partition) -> bool:
        return not partition.offline and (partition.config.compacted or partition.log.segments.rewritten is not None)

    async def _check(self, partition: Partition, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with self._turns:
                    await self._keep_up(partition)
        except KafscaleError as error:
            log.warning("log not rewritten, retrying later", partition=partition.name, error=str(error))
            self._not_before[partition] = trio.current_time() + _PAUSE_AFTER_FAILURE
            self._counters.rewrites_failed += 1
        finally:
            partition.rewriting = None

    async def _keep_up(self, partition: Partition) -> None:
        view = partition.log
        rewritten = view.segments.rewritten
        if rewritten is not None and rewritten.fault:
            view.segments.rewrite(await read_rewritten(self._objects, self._namespace, partition.ref, partition.state))
            if view.segments.rewritten is None or view.segments.rewritten.fault:
                return
        await self._obsolete.sweep(partition)
        if partition.config.compacted:
            await self._compact(partition)
        if self._has_leftovers(partition):
            await self._commit(partition)

    def _has_leftovers(self, partition: Partition) -> bool:
        """Return whether objects can be deleted once a root is committed that does not list them any more."""
        rewritten = partition.log.segments.rewritten
        if rewritten is None or rewritten.root is None:
            return False
        first = rewritten.root.entries[0]
        # A former root alone is not worth another one.
        past = [key for key in self._past_grace(partition) if "/roots/" not in key]
        return bool(past) or (first.found is not None and first.end <= partition.log.log_start)

    def _past_grace(self, partition: Partition) -> list[str]:
        latest = trio.current_time() - self._settings.rewrite_grace_ms / 1000
        return [key for key, known_at in partition.obsolete.items() if known_at < latest]

    async def _compact(self, partition: Partition) -> None:
        view, config, state = partition.log, partition.config, partition.state
        limit = state.last_segment.base_offset if state.HasField("last_segment") else 0
        rewritten = view.segments.rewritten
        root = rewritten.root if rewritten is not None else None
        parts = await self._parts(partition, limit)
        if not parts:
            return
        now_ms = self._now_ms()
        found = dirty(
            parts, config, first_dirty=root.first_dirty if root is not None else 0, limit=limit, now_ms=now_ms
        )
        partition.dirty_bytes, partition.dirty_since_ms = found.bytes, found.oldest_ms if found.bytes else None
        resumed = root.compaction if root is not None and partition not in self._anew else None
        if resumed is None and not is_due(found, config, now_ms=now_ms):
            return
        if self._has_sink_epoch(partition):
            # A restored sink continues by what the log has of its epoch.
            return
        end, begin = (found.end, parts[0].start) if resumed is None else (resumed.end, resumed.next_offset)
        # A new owner must not need batches that are removed to know the producers.
        await self._cover(partition, end)
        kept_ms = config.delete_retention_ms + self._settings.rewrite_grace_ms + _LONGEST_MS
        first_dirty = root.first_dirty if root is not None else 0
        rules = CompactionRules(
            dirty=[part.as_input() for part in parts if first_dirty < part.end <= end],
            end=end,
            resumed=resumed is not None,
            horizon_ms=now_ms + kept_ms,
            memory_bytes=self._settings.compaction_memory,
            batch_bytes=self._settings.compaction_batch_bytes,
            producers=[
                LastBatch(producer_id=producer_id, epoch=epoch, last_offset=last_offset)
                for producer_id, epoch, last_offset in partition.committed_producers.last_batches()
            ],
        )
        if clocks_agree(self._objects.clock_skew_seconds):
            rules.now_ms = now_ms
        chosen = [part for part in parts if begin <= part.start and part.end <= end]
        await self._rewrite(partition, chosen, rules)

    async def _parts(self, partition: Partition, limit: int) -> list[Part]:
        """Return the parts of the log up to ``limit``, in order, at most MOST_PARTS. Raises Damaged, Unavailable."""
        view = partition.log
        rewritten = view.segments.rewritten
        root = rewritten.root if rewritten is not None else None
        parts = [part for part in parts_of(root) if part.end > view.log_start] if root is not None else []
        written = self._written_ms.setdefault(partition, {})
        offset = max(view.log_start, view.segments.through)
        while offset < limit and len(parts) < MOST_PARTS:
            segment = await self._reader.holding(view, offset) if offset not in written else None
            segment = segment or await self._reader.finder.holding(view, offset)
            following = await self._reader.finder.after(view, segment)
            end = view.segments_end if following is None else following.base_offset
            time_ms = await self._time_of(view, segment, written)
            parts.append(
                Part(segment.base_offset, end, segment.size, time_ms, epoch=view.epoch_of(segment.base_offset))
            )
            offset = end
        for base in [base for base in written if base < view.segments.through]:
            del written[base]
        return parts

    async def _time_of(self, view: CommittedLog, segment: KnownSegment, written: dict[int, int]) -> int:
        """Return the largest timestamp in a segment if it is known, otherwise when the segment was written."""
        if segment.max_timestamp >= 0:
            return segment.max_timestamp
        known = written.get(segment.base_offset)
        if known is None:
            age = await self._catalogs.age_from(view, segment) if segment.max_timestamp == UNKNOWN_TIME else -1
            known = age if age >= 0 else (await self._reader.header(view, segment)).created_ms
            written[segment.base_offset] = known
        return known

    async def _rewrite(self, partition: Partition, parts: Sequence[Part], rules: CompactionRules) -> None:
        """Call an indexer, and commit each step that it finishes. Raises KafscaleError."""
        partition.attempts += 1
        attempt, began_ms = partition.attempts, self._now_ms()
        request = RewriteRequest(
            partition=partition.ref,
            epoch=partition.epoch,
            attempt=attempt,
            steps=steps_of(parts, self._settings.rewrite_bytes),
            target_bytes=self._settings.rewrite_bytes,
            compaction=rules,
        )
        inputs = [one for step in request.steps for one in step.inputs]
        committed, begin, end = 0, inputs[0].start, inputs[-1].end
        log.info("compaction begins", partition=partition.name, start=begin, end=end, objects=len(inputs))
        try:
            with trio.fail_after(_LONGEST_MS / 1000):
                async with self._indexer.rewrite(request) as events:
                    reached = begin
                    while reached < end:
                        step = await self._next_step(events)
                        # The clock also advances while a machine is suspended.
                        late = self._now_ms() - began_ms > _LONGEST_MS
                        if late or not await self._commit(partition, step, self._replaced(partition, inputs, step)):
                            return
                        committed += 1
                        self._counters.rewrite_steps += 1
                        self._counters.rewrite_read_bytes += step.bytes_in
                        self._counters.rewrite_written_bytes += step.bytes_out
                        reached, end = step.end, min(step.pass_end, end)
            self._anew.discard(partition)
            log.info("compaction finished", partition=partition.name, end=end, steps=committed)
        except trio.TooSlowError:
            log.info("compaction continues later", partition=partition.name, end=end, steps=committed)
        except _NoRoom as error:
            if rules.resumed:
                self._anew.add(partition)
            raise Unavailable(str(error)) from error
        except Damaged:
            if inputs[0].end <= partition.log.log_start:
                # The objects were deleted because the log start moved.
                return
            raise
        finally:
            partition.ended_attempts.add(attempt)
            if committed < len(request.steps):
                partition.unswept = True
                partition.last_unknown_request = trio.current_time()

    async def _next_step(self, events: MessageStream[RewriteEvent]) -> RewrittenStep:
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

    def _replaced(self, partition: Partition, inputs: Sequence[RewriteInput], step: RewrittenStep) -> list[str]:
        """Return the keys of the segments, and their indexes, that the result of the step replaces."""
        ref = partition.ref
        return [
            key(self._namespace, ref.topic, ref.partition, one.start)
            for one in inputs
            if not one.HasField("rewritten") and step.start <= one.start and one.end <= step.end
            for key in (paths.segment_key, paths.index_key)
        ]

    async def _commit(
        self, partition: Partition, step: RewrittenStep | None = None, replaced: Sequence[str] = ()
    ) -> bool:
        """Store the next root and commit it. Then delete what it does not list any more, as its grace is over.

        Return False if the step does not fit the log any more, or the partition is closed or being handed over. Raises
        KafscaleError.
        """
        ref, past = partition.ref, self._past_grace(partition)
        root = next_root(partition, step=step, compacts=step is not None)
        if root is None or partition.closed or partition.moving:
            return False
        obsolete = [key for key in partition.obsolete if key not in past]
        root = replace(root, obsolete=[*obsolete, *replaced, *self._not_in(partition, root)])
        partition.attempts += 1
        attempt = partition.attempts
        key, data = (
            RootKey(self._namespace, ref.topic, ref.partition, root.number, partition.epoch, attempt),
            build_root(root),
        )
        await self._put_root(partition, key, data)
        if partition.closed or partition.moving:
            partition.ended_attempts.add(attempt)
            return False
        stated = RootRef(
            number=root.number, epoch=partition.epoch, attempt=attempt, crc=stored_crc(data), through=root.through
        )
        rewritten = partition.next_root = RewrittenLog(stated, root)
        self._ready(partition)
        while partition.log.segments.rewritten is not rewritten and not partition.closed:
            await self._moved()
        if partition.closed:
            return False
        now = trio.current_time()
        partition.obsolete = {one: partition.obsolete.get(one, now) for one in root.obsolete}
        await self._obsolete.delete(partition, past)
        return True

    def _not_in(self, partition: Partition, following: Root) -> list[str]:
        """Return the keys of the partition's root and of the objects that ``following`` does not name, with indexes."""
        ref, rewritten = partition.ref, partition.log.segments.rewritten
        if rewritten is None or rewritten.root is None:
            return []
        keys = [root_key(self._namespace, ref, rewritten.ref)]
        kept = {_identity(one.found) for one in following.entries if one.found is not None}
        for entry in rewritten.root.entries:
            if entry.found is not None and _identity(entry.found) not in kept:
                key = RewrittenKey.of(entry.found, self._namespace, ref.topic, ref.partition)
                keys += [str(key), str(key.index)]
        return keys

    async def _put_root(self, partition: Partition, key: RootKey, data: bytes) -> None:
        answered = False
        partition.under_way += 1
        try:
            there = await put_own(self._objects, str(key), data)
            answered = True
        finally:
            if not answered:
                partition.ended_attempts.add(key.attempt)
                partition.unswept = True
                partition.last_unknown_request = trio.current_time()
            partition.request_ended()
        if there is not None:
            raise Unavailable(f"{key}: another object has this key")


def _identity(entry: RewrittenEntry) -> tuple[int, int, int]:
    return entry.base_offset, entry.epoch, entry.attempt
