"""Copies a topic, as it was at a point in time, to a new one: first objects, then the metadata in one transaction.

`kafscale_tools/recovery/claim.py` reserves the new name meanwhile. Existing objects and keys are never replaced.
"""

import secrets
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import trio

from kafscale import paths
from kafscale.catalog.page import SEGMENTS_PER_PAGE, build_page, describe
from kafscale.errors import CorruptData, KafscaleError
from kafscale.metadata.interface import Get
from kafscale.metadata.topic_values import ClusterInfo, InvalidTopicName, TopicExists, TopicInfo, TopicsView
from kafscale.objects.interface import MAX_KEYS, Body, ObjectNotFound, PreconditionFailed
from kafscale.segment.index import build_index
from kafscale.segment.reader import parse_segment
from kafscale.segment.writer import BuiltSegment
from kafscale.threads import RunSync, run_in_thread
from kafscale.v1.catalog_pb2 import CatalogSegment
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import EpochHistory, LastSegment, PartitionState
from kafscale_tools.recovery.backups import Advance, NotThisCluster, marked_cluster
from kafscale_tools.recovery.bucket import together
from kafscale_tools.recovery.claim import Claim, CopiedLog, NameTaken
from kafscale_tools.recovery.cut import CannotCopy, Kept, kept_until
from kafscale_tools.recovery.stores import Stores
from services.storage.log.partition import history_of
from services.storage.log.producers import ProducerTable

_ID_BYTES = 16
_READS_PER_TXN = 64


class NoSuchTopic(KafscaleError):
    """The topic to copy does not exist."""


class NothingLeft(KafscaleError):
    """No record is old enough. No topic was created."""


@dataclass(slots=True)
class SourceLog:
    """The committed log of a partition when it was read. ``segments`` has base offsets and sizes."""

    partition: int
    epochs: list[tuple[int, int]]
    start: int
    end: int
    segments: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(size for _, size in self.segments)

    def epoch_of(self, base: int) -> int:
        """Return the epoch that the log's object at ``base`` must have, or -1 if no object there is the log's."""
        i = bisect_right(self.epochs, base, key=lambda entry: entry[1]) - 1
        return self.epochs[i][0] if i >= 0 else -1


class PointInTime:
    """Copies a topic: call `plan`, then `copy`.

    ``parallel`` partitions are copied at a time. Each needs memory for up to three copies of a segment.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        topic: str,
        until_ms: int,
        into: str,
        parallel: int,
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
        self._index_interval = index_interval
        self._decode_bytes = decode_bytes
        self._run_sync = run_sync
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
        logs: list[SourceLog] = []
        for first in range(0, source.partitions, _READS_PER_TXN):
            numbers = range(first, min(first + _READS_PER_TXN, source.partitions))
            logs += await self._logs(source, numbers)
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

    async def _logs(self, source: TopicInfo, numbers: range) -> list[SourceLog]:
        """Read the state of some partitions. Raises NoSuchTopic, Unavailable."""
        namespace = self._stores.namespace
        make = (paths.partition_state_key, paths.epoch_history_key)
        keys = [key(namespace, source.name, number) for number in numbers for key in make]
        reads = iter((await self._stores.metadata.txn((), [Get(key) for key in keys])).reads)
        logs = []
        for number, state_item, history_item in zip(numbers, reads, reads, strict=False):
            # A partition without a state never had an owner.
            state = PartitionState.FromString(state_item.value) if state_item else PartitionState(topic_id=source.id)
            if state.topic_id != source.id:
                raise NoSuchTopic(f"topic {source.name} was deleted meanwhile")
            epochs = history_of(EpochHistory.FromString(history_item.value)) if history_item else []
            logs.append(SourceLog(number, epochs, state.log_start, state.high_watermark))
        return logs

    async def _list(self, log: SourceLog) -> None:
        prefix = paths.partition_prefix(self._stores.namespace, self._source, log.partition)
        after = ""
        while page := await self._stores.objects.list_from(prefix, after, MAX_KEYS):
            for info in page:
                key = paths.parse_segment_key_in(prefix, info.key)
                if key is not None and key.kind == "kfs" and key.base_offset < log.end:
                    log.segments.append((key.base_offset, info.size))
            after = page[-1].key
            last = paths.parse_segment_key_in(prefix, after)
            if len(page) < MAX_KEYS or (last is not None and last.base_offset >= log.end):
                return

    async def _copy_log(self, log: SourceLog, made: CopiedLog, advance: Advance) -> None:
        page: list[CatalogSegment] = []
        expected, remaining = -1, log.size
        for base, size in log.segments:
            kept = await self._kept(log, base, made.start)
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
        await self._put_page(made, page)
        made.start = min(made.start, made.end)
        if made.start < made.end:
            # Producers of the source start again here, as with any new topic.
            await self._put(self._claim.snapshot_key(made), ProducerTable(0).dump())

    async def _kept(self, log: SourceLog, base: int, start: int) -> Kept | None:
        """Return the part of an object to keep, or None if it is missing or not the log's.

        Raises CorruptData, CannotCopy.
        """
        key = paths.segment_key(self._stores.namespace, self._source, log.partition, base)
        try:
            body = (await self._stores.objects.get(key)).body
        except ObjectNotFound:
            return None

        def cut() -> Kept | None:
            source = parse_segment(body)
            if source.header.epoch != log.epoch_of(base):
                return None
            if source.next_offset <= start or source.header.base_offset != base:
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
            raise CorruptData(f"object {key}: {error}") from error
        except CannotCopy as error:
            raise CannotCopy(f"object {key}: {error}") from error

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
