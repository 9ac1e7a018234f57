"""Copies a topic, as it was at a point in time, to a new one: first objects, then the metadata in one transaction.

`kafscale_tools/recovery/claim.py` reserves the new name meanwhile. Existing objects and keys are never replaced.
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
from kafscale.objects.interface import MAX_KEYS, Body, ObjectNotFound, PreconditionFailed
from kafscale.records.batch import BatchHeader
from kafscale.segment.index import build_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.writer import PREFIX_SIZE, BuiltSegment, build_segment
from kafscale.threads import RunSync, run_in_thread
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory, LastSegment, PartitionState
from kafscale_tools.recovery.backups import Advance, NotThisCluster, marked_cluster
from kafscale_tools.recovery.bucket import together
from kafscale_tools.recovery.claim import Claim, CopiedLog, NameTaken
from kafscale_tools.recovery.cut import CannotCopy, Kept, kept_until
from kafscale_tools.recovery.intakes import entries_of_topic, recovered
from kafscale_tools.recovery.stores import Stores
from services.storage.log.partition import history_of
from services.storage.log.producers import ProducerTable

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

    ``segments`` has base offsets and sizes. ``tail`` has the batches behind ``segments_end``, of ``tail_epoch``, which
    are only in an intake. ``fault``: why these cannot be read.
    """

    partition: int
    epochs: list[tuple[int, int]]
    start: int
    segments_end: int
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
        return sum(size for _, size in self.segments) + sum(len(batch) for _, batch in self.tail)

    def epoch_of(self, base: int) -> int:
        """Return the epoch that the log's object at ``base`` must have, or -1 if no object there is the log's."""
        i = bisect_right(self.epochs, base, key=lambda entry: entry[1]) - 1
        return self.epochs[i][0] if i >= 0 else -1


class PointInTime:
    """Copies a topic: call `plan`, then `copy`.

    ``parallel`` partitions are copied at a time. Each needs memory for up to three copies of a segment. Batches that
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
        prefix = paths.partition_prefix(self._stores.namespace, self._source, log.partition)
        after = ""
        while page := await self._stores.objects.list_from(prefix, after, MAX_KEYS):
            for info in page:
                key = paths.parse_segment_key_in(prefix, info.key)
                if key is not None and key.kind == "kfs" and key.base_offset < log.segments_end:
                    log.segments.append((key.base_offset, info.size))
            after = page[-1].key
            last = paths.parse_segment_key_in(prefix, after)
            if len(page) < MAX_KEYS or (last is not None and last.base_offset >= log.segments_end):
                return

    async def _copy_log(self, log: SourceLog, made: CopiedLog, advance: Advance) -> None:
        page: list[CatalogSegment] = []
        expected, remaining = -1, log.size
        async with aclosing(self._pieces(log, made)) as pieces:
            async for base, size, kept in pieces:
                remaining -= size
                advance(size)
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
                    advance(remaining)
                    break
            else:
                if max(expected, made.start) < log.end:
                    await self._skip_to(made, log.end)
                    made.end = log.end
                if log.fault is not None:
                    raise log.fault
        await self._put_page(made, page)
        made.start = min(made.start, made.end)
        if made.start < made.end:
            # Producers of the source start again here, as with any new topic.
            await self._put(self._claim.snapshot_key(made), ProducerTable(0).dump())

    async def _pieces(self, log: SourceLog, made: CopiedLog) -> AsyncGenerator[tuple[int, int, Kept | None], None]:
        """Yield the base offset and size of each object, then of parts of the tail, and what of it to keep.

        That is None for an object that is missing or not the log's. Raises CorruptData, CannotCopy.
        """
        namespace = self._stores.namespace
        for base, size in log.segments:
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

    async def _kept(self, name: str, body: Body, base: int, epoch: int, start: int) -> Kept | None:
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

        Raises CorruptData if the log start is lower, and NoSuchTopic.
        """
        key = paths.partition_state_key(self._stores.namespace, self._source, made.partition)
        item = await self._stores.metadata.get(key)
        state = PartitionState.FromString(item.value) if item is not None else PartitionState()
        if state.topic_id != self._source_id:
            raise NoSuchTopic(f"topic {self._source} was deleted meanwhile")
        if state.log_start < base:
            raise CorruptData(
                f"{self._source}-{made.partition}: no object has the offsets before {base}: they are lost, or KafScale "
                "1 never assigned them"
            )
        made.start = state.log_start

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

    async def _put(self, key: str, body: Body) -> None:
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
