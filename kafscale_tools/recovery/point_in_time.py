"""Copies a topic, as it was at a point in time, to a new one: first objects, then the metadata in one transaction.

`kafscale_tools/recovery/claim.py` reserves the new name meanwhile. Existing objects and keys are never replaced.

What was rewritten is copied to rewritten objects, with a root of their own. If the source is rewritten meanwhile, and
its owner deletes objects that are still to be copied, the copy goes on with the objects of the new root.
"""

import secrets
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import trio

from kafscale import paths
from kafscale.catalog.page import SEGMENTS_PER_PAGE, build_page, describe
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.intake.format import Entry
from kafscale.metadata.interface import Get
from kafscale.metadata.topic_values import (
    INTAKE_STATE_FORMAT,
    ClusterInfo,
    InvalidTopicName,
    TopicExists,
    TopicInfo,
    TopicsView,
)
from kafscale.objects.interface import MAX_KEYS, ObjectNotFound, PreconditionFailed
from kafscale.records.batch import BatchHeader
from kafscale.records.checksum import Buffer
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.rewritten.object import parse_object
from kafscale.rewritten.root import Entry as RootEntry
from kafscale.rewritten.root import Root, build_root, stored_crc
from kafscale.segment.index import build_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment, build_segment
from kafscale.threads import RunSync, run_in_thread
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory, LastSegment, PartitionState, RootRef
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from kafscale_tools.recovery.backups import Advance, NotThisCluster, marked_cluster
from kafscale_tools.recovery.bucket import together
from kafscale_tools.recovery.claim import Claim, CopiedLog, NameTaken
from kafscale_tools.recovery.cut import CannotCopy, Kept, KeptObject, kept_until, object_until
from kafscale_tools.recovery.intakes import entries_of_topic, recovered
from kafscale_tools.recovery.stores import Stores
from services.storage.log.partition import history_of
from services.storage.log.producers import ProducerTable
from services.storage.log.rewritten import RewrittenLog
from services.storage.reading.roots import read_rewritten

_ID_BYTES = 16
_READS_PER_TXN = 64
_ATTEMPTS = 20


class NoSuchTopic(KafscaleError):
    """The topic to copy does not exist."""


class NothingLeft(KafscaleError):
    """No record is old enough. No topic was created."""


@dataclass(slots=True)
class SourceLog:
    """The committed log of a partition when it was read.

    ``rewritten`` is what precedes the segments, which have base offsets and sizes. ``tail`` has the batches behind
    ``segments_end``, of ``tail_epoch``, which are only in an intake. ``fault``: why these cannot be read.
    """

    partition: int
    epochs: list[tuple[int, int]]
    start: int
    segments_end: int
    rewritten: RewrittenLog | None = None
    segments: list[tuple[int, int]] = field(default_factory=list)
    tail: list[tuple[BatchHeader, memoryview]] = field(default_factory=list)
    tail_epoch: int = -1
    fault: CorruptData | None = None

    @property
    def end(self) -> int:
        """The high watermark."""
        return self.tail[-1][0].next_offset if self.tail else self.segments_end

    @property
    def size(self) -> int:
        objects = sum(entry.found.size for entry in self._entries(self.start) if entry.found is not None)
        return objects + sum(size for _, size in self.segments) + sum(len(batch) for _, batch in self.tail)

    @property
    def through(self) -> int:
        """Where the segments begin that were not rewritten."""
        return self.rewritten.through if self.rewritten is not None else 0

    def entry_with(self, offset: int) -> RootEntry | None:
        """Return the entry of the root that has ``offset``, or None if segments have it."""
        return next(self._entries(offset), None)

    def _entries(self, offset: int) -> Iterator[RootEntry]:
        root = self.rewritten.root if self.rewritten is not None else None
        return (entry for entry in (root.entries if root is not None else ()) if entry.end > offset)

    def epoch_of(self, base: int) -> int:
        """Return the epoch that the log's object at ``base`` must have, or -1 if no object there is the log's."""
        i = bisect_right(self.epochs, base, key=lambda entry: entry[1]) - 1
        return self.epochs[i][0] if i >= 0 else -1


class PointInTime:
    """Copies a topic: call `plan`, then `copy`.

    ``parallel`` partitions are copied at a time. Each needs memory for up to three copies of an object. Batches that
    are only in intakes are kept in memory, and become segments of about ``segment_bytes``.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        topic: str,
        until_ms: int,
        into: str,
        parallel: int,
        segment_bytes: int,
        index_interval: int,
        decode_bytes: int,
        now_ms: int,
        run_sync: RunSync = run_in_thread,
    ) -> None:
        self._stores = stores
        self._until_ms = until_ms
        self._into = into
        self._source = topic
        self._source_id = b""
        self._parallel = trio.CapacityLimiter(parallel)
        self._segment_bytes = segment_bytes
        self._index_interval = index_interval
        self._decode_bytes = decode_bytes
        self._run_sync = run_sync
        self._now_ms = now_ms
        self._made = TopicInfo(into, secrets.token_bytes(_ID_BYTES), 0, {}, True, 0, now_ms)
        self._claim = Claim(stores, self._made)
        self._stored = False

    async def plan(self) -> list[SourceLog]:
        """Read the source and change nothing.

        Raises NotThisCluster, NoSuchTopic, InvalidTopicName, TopicExists, CannotCopy, LeftOver, Unavailable, Refused.
        """
        metadata, namespace = self._stores.metadata, self._stores.namespace
        if not paths.is_topic_name(self._into):
            raise InvalidTopicName(f"{self._into!r} must have 1 to 249 letters, digits, '.', '_' or '-'")
        cluster = await metadata.get(paths.cluster_key(namespace))
        marked = await marked_cluster(self._stores.objects, namespace)
        if cluster is None or ClusterInfo.read(cluster).cluster_id != marked:
            raise NotThisCluster(f"the bucket belongs to cluster {marked}, which is not in the metadata store")
        found = await metadata.read_prefix(paths.topics_prefix(namespace))
        topics = TopicsView.of(found.revision, [TopicInfo.read(item) for item in found.items])
        source = topics.live(self._source)
        if source is None:
            raise NoSuchTopic(f"topic {self._source} does not exist")
        if (existing := topics.by_name.get(self._into)) is not None:
            state = "already exists" if existing.live else "is being deleted"
            raise TopicExists(f"topic {self._into} {state}: use another name")
        if (other := topics.collision(self._into)) is not None:
            raise InvalidTopicName(f"{self._into} differs from topic {other} only in '.' and '_'")
        self._source_id = source.id
        self._claim = Claim(self._stores, replace(self._made, partitions=source.partitions, configs=source.configs))
        await self._claim.check()
        logs = await self._logs(source)
        await together(self._parallel, [partial(self._list, log) for log in logs])
        return logs

    async def copy(self, logs: list[SourceLog], advance: Advance) -> list[CopiedLog]:
        """Create the topic and return its partitions. ``advance`` is called with the number of source bytes copied.

        Raises NothingLeft, NoSuchTopic, NameTaken, CorruptData, CannotCopy, Unavailable, Refused. After these, no topic
        was created, except that Unavailable in the last step may leave a complete topic. Stored objects are being
        deleted, if the metadata store answers. Once they are gone, the copy can be started again.
        """
        await self._claim.take()
        try:
            copied = [CopiedLog(log.partition, log.start, log.start, log.end) for log in logs]
            steps = [partial(self._copy_log, log, made, advance) for log, made in zip(logs, copied, strict=True)]
            await together(self._parallel, steps)
            if any(log.start < log.end for log in logs) and not any(made.start < made.end for made in copied):
                raise NothingLeft(f"no record of {self._source} is old enough: {self._into} was not created")
            await self._claim.publish(copied)
        except BaseException:
            await self._claim.give_up(stored=self._stored)
            raise
        return copied

    async def _logs(self, source: TopicInfo) -> list[SourceLog]:
        """Read the states of all partitions and their tails. Raises NoSuchTopic, Unavailable, Refused."""
        read: dict[str, dict[int, list[tuple[str, Entry]]] | CorruptData] = {}
        for _ in range(_ATTEMPTS):
            found: list[tuple[SourceLog, PartitionState]] = []
            for first in range(0, source.partitions, _READS_PER_TXN):
                numbers = range(first, min(first + _READS_PER_TXN, source.partitions))
                found += await self._states(source, numbers)
            runs = {run_id for _, state in found for run_id in _runs(state)}
            # A state that is newer than what was read of an intake has all below its end in segments.
            if runs <= read.keys():
                for log, state in found:
                    _add_tail(log, [read[run_id] for run_id in _runs(state)])
                return [log for log, _ in found]
            for run_id in sorted(runs - read.keys()):
                try:
                    read[run_id] = await entries_of_topic(
                        self._stores.objects, self._stores.namespace, run_id, source.id, now_ms=self._now_ms
                    )
                except CorruptData as error:
                    read[run_id] = error
        raise Unavailable(f"the owners of {source.name} keep changing")

    async def _states(self, source: TopicInfo, numbers: range) -> list[tuple[SourceLog, PartitionState]]:
        """Read the states of some partitions. Raises NoSuchTopic, Unavailable."""
        namespace = self._stores.namespace
        make = (paths.partition_state_key, paths.epoch_history_key)
        keys = [key(namespace, source.name, number) for number in numbers for key in make]
        reads = iter((await self._stores.metadata.txn((), [Get(key) for key in keys])).reads)
        found = []
        for number, state_item, history_item in zip(numbers, reads, reads, strict=False):
            # A partition without a state never had an owner.
            state = PartitionState.FromString(state_item.value) if state_item else PartitionState(topic_id=source.id)
            if state.topic_id != source.id:
                raise NoSuchTopic(f"topic {source.name} was deleted meanwhile")
            epochs = history_of(EpochHistory.FromString(history_item.value)) if history_item else []
            found.append((SourceLog(number, epochs, state.log_start, state.high_watermark), state))
        return found

    async def _list(self, log: SourceLog) -> None:
        if log.start < log.segments_end:
            await self._refresh(log)
        prefix = paths.partition_prefix(self._stores.namespace, self._source, log.partition)
        after = ""
        while page := await self._stores.objects.list_from(prefix, after, MAX_KEYS):
            for info in page:
                key = paths.parse_segment_key_in(prefix, info.key)
                if key is not None and key.kind == "kfs" and log.through <= key.base_offset < log.segments_end:
                    log.segments.append((key.base_offset, info.size))
            after = page[-1].key
            last = paths.parse_segment_key_in(prefix, after)
            if len(page) < MAX_KEYS or (last is not None and last.base_offset >= log.segments_end):
                return

    async def _refresh(self, log: SourceLog) -> PartitionState:
        """Read the current state of a partition, and its root if it is another one.

        Raises NoSuchTopic, CorruptData, Unavailable, Refused.
        """
        fault = ""
        for _ in range(_ATTEMPTS):
            state = await self._state(log.partition)
            if log.rewritten is not None and log.rewritten.ref == state.root:
                return state
            ref = PartitionRef(topic=self._source, topic_id=self._source_id, partition=log.partition)
            found = await read_rewritten(self._stores.objects, self._stores.namespace, ref, state)
            if found is None or found.root is not None:
                log.rewritten = found
                return state
            if found.fault == fault:
                raise CorruptData(fault)
            # The root may have been deleted since the state was read.
            fault = found.fault
        raise Unavailable(f"the log of {self._source}-{log.partition} keeps changing")

    async def _copy_log(self, log: SourceLog, made: CopiedLog, advance: Advance) -> None:
        progress = _Progress(log.size, advance)
        if await self._copy_rewritten(log, made, progress):
            await self._copy_segments(log, made, progress)
        progress.end()
        made.start = min(made.start, made.end)
        if made.start < made.end:
            # Producers of the source start again here, as with any new topic.
            await self._put(self._claim.snapshot_key(made), ProducerTable(0).dump())

    async def _copy_rewritten(self, log: SourceLog, made: CopiedLog, progress: "_Progress") -> bool:
        """Copy the rewritten objects, and store a root. Return whether the segments that follow are to be copied."""
        entries: list[RootEntry] = []
        # What is not stored yet: the last part with batches, and those without any that follow.
        pending: list[KeptObject] = []
        whole = True
        while whole and made.end < log.segments_end:
            if log.entry_with(made.end) is None:
                # What follows may have been rewritten meanwhile.
                await self._refresh(log)
            entry = log.entry_with(made.end)
            if entry is None:
                break
            kept = await self._kept_object(log, entry, made.end)
            if kept is None:
                log_start = await self._moved(log, made.end)
                if log_start > made.end:
                    entries, pending, made.start, made.end = [], [], log_start, log_start
                continue
            if kept.builder is not None:
                entries += [await self._put_object(made, part) for part in pending]
                pending = []
            pending.append(kept)
            made.end, whole = kept.end, kept.whole
            progress.add(entry.found.size if entry.found is not None else 0)
        if not whole:
            # Clients that read to the end of a log need a record there.
            pending = [replace(part, end=part.batches_end) for part in pending if part.builder is not None]
            made.end = pending[-1].end if pending else made.start
        entries += [await self._put_object(made, part) for part in pending]
        if entries:
            await self._put_root(made, entries)
        return whole

    async def _put_object(self, made: CopiedLog, part: KeptObject) -> RootEntry:
        """Store an object and its index, and return its entry in the root. Raises NameTaken, Unavailable, Refused."""
        built = part.builder.finish(part.end) if part.builder is not None else None
        if built is None:
            return RootEntry(part.start, part.end, None)
        key = RewrittenKey.of(built.entry, self._stores.namespace, self._into, made.partition)
        await self._put(str(key), built.data)
        await self._put(str(key.index), built.index)
        made.segments, made.size = made.segments + 1, made.size + len(built.data)
        return RootEntry(part.start, part.end, built.entry)

    async def _kept_object(self, log: SourceLog, entry: RootEntry, start: int) -> KeptObject | None:
        """Return what to keep of an entry from ``start`` on, or None if its object is missing.

        Raises CorruptData, Unavailable, Refused.
        """
        end, found = min(entry.end, log.segments_end), entry.found
        if found is None:
            return KeptObject(start, end, None, start, whole=True)
        key = str(RewrittenKey.of(found, self._stores.namespace, self._source, log.partition))
        try:
            body = (await self._stores.objects.get(key)).body
        except ObjectNotFound:
            return None
        try:
            return await self._run_sync(partial(self._cut_object, found, body, start, end))
        except CorruptData as error:
            raise CorruptData(f"object {key}: {error}") from error

    def _cut_object(self, found: RewrittenEntry, body: Buffer, start: int, end: int) -> KeptObject:
        return object_until(
            parse_object(found, body),
            start,
            end,
            until_ms=self._until_ms,
            epoch=self._claim.epoch,
            created_ms=found.created_ms,
            max_bytes=self._decode_bytes,
        )

    async def _moved(self, log: SourceLog, offset: int) -> int:
        """Return the log start of the source, because the object that has ``offset`` is missing.

        Raises CorruptData if neither retention nor a new root explains it, NoSuchTopic, Unavailable, Refused.
        """
        before = log.rewritten
        state = await self._refresh(log)
        if log.rewritten is before and state.log_start <= offset:
            raise CorruptData(f"{self._source}-{log.partition}: the object with offset {offset} is missing")
        return state.log_start

    async def _put_root(self, made: CopiedLog, entries: list[RootEntry]) -> None:
        """Store the root of a new partition. Raises NameTaken, Unavailable, Refused."""
        epoch = self._claim.epoch
        root = Root(self._made.id, 1, entries, [EpochHistory.Entry(epoch=epoch, first_offset=0)])
        data = build_root(root)
        await self._put(str(RootKey(self._stores.namespace, self._into, made.partition, 1, epoch, 1)), data)
        made.root = RootRef(number=1, epoch=epoch, attempt=1, crc=stored_crc(data), through=root.through)

    async def _copy_segments(self, log: SourceLog, made: CopiedLog, progress: "_Progress") -> None:
        page: list[CatalogSegment] = []
        expected = made.end if made.end > made.start else -1
        async with aclosing(self._pieces(log, made)) as pieces:
            async for base, size, kept in pieces:
                progress.add(size)
                if kept is None:
                    continue
                if base > (made.start if expected < 0 else expected):
                    await self._skip_to(made, base)
                    await self._put_page(made, page)
                if kept.segment is not None:
                    await self._put_segment(made.partition, kept.segment)
                    page.append(describe(kept.segment.data, kept.segment.positions, kept.segment.next_offset))
                    made.segments, made.size = made.segments + 1, made.size + len(kept.segment.data)
                    made.last_end = kept.segment.next_offset
                    made.last = LastSegment(
                        base_offset=kept.segment.base_offset, size=len(kept.segment.data), crc=kept.segment.crc
                    )
                made.end = expected = kept.end
                if len(page) == SEGMENTS_PER_PAGE:
                    await self._put_page(made, page)
                if not kept.whole:
                    break
            else:
                if max(expected, made.start) < log.end:
                    await self._skip_to(made, log.end)
                    made.end = log.end
                if log.fault is not None:
                    raise log.fault
        await self._put_page(made, page)

    async def _pieces(self, log: SourceLog, made: CopiedLog) -> AsyncGenerator[tuple[int, int, Kept | None], None]:
        """Yield the base offset and size of each object, then of parts of the tail, and what of it to keep.

        That is None for an object that is missing or not the log's. Raises CorruptData, CannotCopy.
        """
        namespace = self._stores.namespace
        for base, size in log.segments:
            if base < log.through:
                continue
            key, kept = paths.segment_key(namespace, self._source, log.partition, base), None
            with suppress(ObjectNotFound):
                body = (await self._stores.objects.get(key)).body
                kept = await self._kept(f"object {key}", body, base, log.epoch_of(base), made.start)
            yield base, size, kept
        name = f"{self._source}-{log.partition}"
        for batches in _parts(log.tail, self._segment_bytes):
            pieces = [(batch[:PREFIX_SIZE], batch[PREFIX_SIZE:]) for _, batch in batches]
            data = build_segment(pieces, epoch=log.tail_epoch, created_ms=self._now_ms).data
            base, size = batches[0][0].base_offset, sum(len(batch) for _, batch in batches)
            yield base, size, await self._kept(f"{name} at offset {base}", data, base, log.tail_epoch, made.start)

    async def _kept(self, name: str, body: Buffer, base: int, epoch: int, start: int) -> Kept | None:
        """Return the part of a segment to keep, or None if it is not the log's. Raises CorruptData, CannotCopy."""

        def cut() -> Kept | None:
            source = parse_segment(body)
            if source.header.epoch != epoch or source.next_offset <= start or source.header.base_offset != base:
                return None
            return kept_until(
                source,
                until_ms=self._until_ms,
                log_start=start,
                epoch=self._claim.epoch,
                max_bytes=self._decode_bytes,
            )

        try:
            return await self._run_sync(cut)
        except CorruptData as error:
            raise CorruptData(f"{name}: {error}") from error
        except CannotCopy as error:
            raise CannotCopy(f"{name}: {error}") from error

    async def _skip_to(self, made: CopiedLog, base: int) -> None:
        """Move the start of ``made`` because offsets below ``base`` are missing, after retention has deleted them.

        Raises CorruptData if the log start is lower; Unavailable if they were rewritten; NoSuchTopic.
        """
        state = await self._state(made.partition)
        if state.log_start < base:
            if state.root.through >= base:
                raise Unavailable(f"{self._source}-{made.partition} was rewritten meanwhile: start the copy again")
            raise CorruptData(
                f"{self._source}-{made.partition}: no object has the offsets before {base}: they are lost, or KafScale "
                "1 never assigned them"
            )
        made.start = state.log_start

    async def _state(self, partition: int) -> PartitionState:
        """Read the current state of a partition of the source. Raises NoSuchTopic, Unavailable."""
        item = await self._stores.metadata.get(
            paths.partition_state_key(self._stores.namespace, self._source, partition)
        )
        state = PartitionState.FromString(item.value) if item is not None else PartitionState()
        if state.topic_id != self._source_id:
            raise NoSuchTopic(f"topic {self._source} was deleted meanwhile")
        return state

    async def _put_segment(self, partition: int, segment: BuiltSegment) -> None:
        """Store a segment and its index. Raises NameTaken, Unavailable, Refused."""
        namespace, base = self._stores.namespace, segment.base_offset
        await self._put(paths.segment_key(namespace, self._into, partition, base), segment.data)
        index = build_index(segment.offsets, segment.positions, self._index_interval)
        await self._put(paths.index_key(namespace, self._into, partition, base), index)

    async def _put_page(self, made: CopiedLog, page: list[CatalogSegment]) -> None:
        if page:
            ref = PartitionRef(topic=self._into, topic_id=self._made.id, partition=made.partition)
            base, epoch = page[0].base_offset, self._claim.epoch
            key = paths.catalog_page_key(self._stores.namespace, self._into, made.partition, base, epoch)
            await self._put(key, build_page(ref, epoch, page))
            page.clear()

    async def _put(self, key: str, body: Buffer) -> None:
        """Store an object. Raises NameTaken, Unavailable, Refused."""
        self._stored = True
        try:
            await self._stores.objects.put_if_absent(key, body)
        except PreconditionFailed:
            # If the answer to an earlier attempt was lost, the object is our own.
            with suppress(ObjectNotFound):
                if (await self._stores.objects.get(key)).body == body:
                    return
            raise NameTaken(f"object {key} was stored by others meanwhile") from None


@dataclass(slots=True)
class _Progress:
    """The bytes of a partition that are still to be copied. ``advance`` is called with those that were copied."""

    remaining: int
    advance: Advance

    def add(self, size: int) -> None:
        # A log that is rewritten meanwhile has other sizes.
        size = min(size, self.remaining)
        self.remaining -= size
        self.advance(size)

    def end(self) -> None:
        self.add(self.remaining)


def _runs(state: PartitionState) -> list[str]:
    """Return the runs whose intakes may have records behind the segments of a partition."""
    return [run_id for run_id in (state.owner, state.tail.run_id) if run_id and state.format >= INTAKE_STATE_FORMAT]


def _add_tail(log: SourceLog, intakes: Sequence[dict[int, list[tuple[str, Entry]]] | CorruptData]) -> None:
    """Add the batches behind the segments to ``log``, from the intakes of the runs that its state names."""
    entries: list[tuple[str, Entry]] = []
    for intake in intakes:
        if isinstance(intake, CorruptData):
            log.fault = intake
            return
        entries += intake.get(log.partition, ())
    try:
        found = recovered(entries, log.segments_end)
    except CorruptData as error:
        log.fault = error
        return
    if found is not None:
        log.tail, log.tail_epoch = found.tail.batches, found.epoch


def _parts(
    batches: Sequence[tuple[BatchHeader, memoryview]], most_bytes: int
) -> Iterator[list[tuple[BatchHeader, memoryview]]]:
    """Yield consecutive batches of about ``most_bytes`` together."""
    part: list[tuple[BatchHeader, memoryview]] = []
    size = 0
    for each in batches:
        part.append(each)
        size += len(each[1])
        if size >= most_bytes:
            yield part
            part, size = [], 0
    if part:
        yield part
