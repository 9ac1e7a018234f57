"""Reads topics and their logs from the objects in the bucket."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from kafscale import paths
from kafscale.catalog.topic_object import TopicObject, parse_topic_object
from kafscale.errors import CorruptData, KafscaleError, leaves
from kafscale.objects.interface import MAX_KEYS, ObjectInfo, ObjectNotFound, ObjectStore
from kafscale.records.batch import peek
from kafscale.rewritten.keys import RewrittenKey, RootKey, all_rewritten_prefix, parse_rewritten_key, rewritten_prefix
from kafscale.rewritten.object import parse_object, verify_object
from kafscale.rewritten.root import parse_root, stored_crc
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, SegmentFooter, SegmentHeader
from kafscale.segment.reader import START_SIZE, parse_start
from kafscale_tools.recovery.backups import Advance
from kafscale_tools.recovery.chain import Found
from kafscale_tools.recovery.intakes import TopicSeen
from kafscale_tools.recovery.rewritten import Described, RewrittenObjects, RootFound, StoredObject
from services.storage.log.producers import ProducerTable

_LAST = "~"  # sorts after all names
T = TypeVar("T")


@dataclass(slots=True)
class PartitionObjects:
    """The objects of a partition.

    ``segments`` are sorted by base offset. ``unreadable`` has the keys, by base offset, of segments without a valid
    header or footer. ``producers`` has the high watermark, epoch and key of each producer snapshot, sorted.
    ``highest_epoch`` is that of all objects, -1 if there are none.
    """

    segments: list[Found] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)
    rewritten: RewrittenObjects = field(default_factory=RewrittenObjects)
    producers: list[tuple[int, int, str]] = field(default_factory=list)
    highest_epoch: int = -1


class Bucket:
    """The objects of a namespace. ``parallel`` limits the segments, and the partitions, that are read concurrently."""

    def __init__(self, objects: ObjectStore, namespace: str, *, parallel: int) -> None:
        self._objects = objects
        self.namespace = namespace
        self._reads = trio.CapacityLimiter(parallel)
        self.partitions = trio.CapacityLimiter(parallel)

    async def topic_objects(self) -> tuple[dict[str, TopicObject], list[str]]:
        """Return the topic objects by name, and the errors of unreadable ones. Raises Unavailable, Refused."""
        found: dict[str, TopicObject] = {}
        faults: list[str] = []
        for info in await self._all(paths.topic_objects_prefix(self.namespace)):
            try:
                topic = parse_topic_object((await self._objects.get(info.key)).body)
            except CorruptData as error:
                faults.append(f"object {info.key}: {error}")
                continue
            if info.key == paths.topic_object_key(self.namespace, topic.name):
                found[topic.name] = topic
        return found, faults

    async def topics_with_segments(self) -> dict[str, int]:
        """Return the names of topics with segments, and the highest partition with any."""
        return {
            name: max(partitions)
            for name in await self._children(f"{self.namespace}/")
            if paths.is_topic_name(name) and (partitions := await self._partitions(name))
        }

    async def topics_with_rewritten_objects(self) -> dict[str, TopicSeen]:
        """Return the topics with rewritten objects, by their newest readable root. Raises Unavailable, Refused.

        Without such a root the topic's id is empty.
        """
        partitions: dict[str, int] = {}
        roots: dict[str, list[RootKey]] = {}
        async with aclosing(self._pages(all_rewritten_prefix(self.namespace))) as pages:
            async for page in pages:
                for key in (parse_rewritten_key(info.key) for info in page):
                    if key is not None and key.namespace == self.namespace:
                        partitions[key.topic] = max(partitions.get(key.topic, 0), key.partition + 1)
                        if isinstance(key, RootKey):
                            roots.setdefault(key.topic, []).append(key)
        found: dict[str, TopicSeen] = {}
        for name, count in partitions.items():
            found[name] = TopicSeen(b"", count, -1)
            for key in sorted(roots.get(name, ()), key=lambda key: key.epoch, reverse=True):
                root = await self._root(key)
                if isinstance(root, RootFound):
                    found[name] = TopicSeen(root.root.topic_id, count, key.epoch)
                    break
        return found

    async def partition(self, topic: str, partition: int, advance: Advance) -> PartitionObjects:
        """Read a partition. ``advance`` is called with the number of segments read. Raises Unavailable, Refused."""
        objects = PartitionObjects()
        prefix = paths.partition_prefix(self.namespace, topic, partition)
        async with aclosing(self._pages(prefix)) as pages:
            async for page in pages:
                advance(await self._read_page(prefix, page, objects))
        await self._read_rewritten(topic, partition, objects)
        prefix = paths.producers_prefix(self.namespace, topic, partition)
        for info in await self._all(prefix):
            epoch = paths.producer_snapshot_epoch(info.key)
            if epoch >= 0:
                end = int(info.key.removeprefix(prefix).partition("-")[0])
                objects.producers.append((end, epoch, info.key))
                objects.highest_epoch = max(objects.highest_epoch, epoch)
        for info in await self._all(paths.catalog_prefix(self.namespace, topic, partition)):
            page_key = paths.parse_catalog_page_key(info.key)
            if page_key is not None:
                objects.highest_epoch = max(objects.highest_epoch, page_key.epoch)
        return objects

    async def is_producer_snapshot(self, key: str) -> bool:
        """Return whether the object is a valid producer snapshot. Raises Unavailable, Refused."""
        try:
            ProducerTable.load((await self._objects.get(key)).body, 0)
        except (CorruptData, ObjectNotFound):
            return False
        return True

    async def described(self, key: RewrittenKey) -> Described:
        """Read and verify a rewritten object. Raises CorruptData, ObjectNotFound, Unavailable, Refused."""
        body = (await self._objects.get(str(key))).body
        entry = verify_object(key, body, check_batches=True)
        epochs: list[tuple[int, int]] = []
        for position in parse_object(entry, body).positions:
            batch = peek(body, position)
            # Batches that KafScale 1 wrote may have epoch -1.
            epoch = max(batch.leader_epoch, 0)
            if not epochs or epoch > epochs[-1][0]:
                epochs.append((epoch, batch.base_offset))
        return Described(entry, tuple(epochs))

    async def _read_rewritten(self, topic: str, partition: int, objects: PartitionObjects) -> None:
        keys: list[tuple[RewrittenKey, int]] = []
        roots: list[RootKey] = []
        for info in await self._all(rewritten_prefix(self.namespace, topic, partition)):
            key = parse_rewritten_key(info.key)
            if key is None or (key.namespace, key.topic) != (self.namespace, topic):
                continue
            objects.highest_epoch = max(objects.highest_epoch, key.epoch)
            if isinstance(key, RootKey):
                roots.append(key)
            elif key.kind == "kfs":
                keys.append((key, info.size))
        found = await self._together([partial(self._rewritten_object, key, size) for key, size in keys])
        for (key, _), stored in zip(keys, found, strict=True):
            if stored is not None:
                objects.rewritten.objects[key] = stored
            else:
                objects.rewritten.unreadable.add(key)
        for key, root in zip(roots, await self._together([partial(self._root, key) for key in roots]), strict=True):
            if isinstance(root, RootFound):
                objects.rewritten.roots.append(root)
            elif root:
                objects.rewritten.damaged[key] = root

    async def _root(self, key: RootKey) -> RootFound | str:
        """Return the root, or why it cannot be read. The reason is empty if it does not exist any more."""
        try:
            data = (await self._objects.get(str(key))).body
            root = parse_root(data)
        except ObjectNotFound:
            return ""
        except CorruptData as error:
            return str(error)
        if root.number != key.number:
            return f"it is root {root.number}"
        return RootFound(key, stored_crc(data), root)

    async def _rewritten_object(self, key: RewrittenKey, size: int) -> StoredObject | None:
        """Return the object, or None if its header or footer is invalid, or it does not exist any more."""
        try:
            header = SegmentHeader.parse(await self._objects.get_range(str(key), 0, HEADER_SIZE), may_be_empty=True)
            tail = await self._objects.get_range(str(key), max(size - FOOTER_SIZE, 0), FOOTER_SIZE)
            footer = SegmentFooter.parse(tail)
        except (CorruptData, ObjectNotFound):
            return None
        stated = (header.base_offset, footer.last_offset + 1, header.epoch)
        if stated != (key.base_offset, key.next_offset, key.epoch):
            return None
        return StoredObject(size, footer.crc, header.created_ms)

    async def _read_page(self, prefix: str, page: list[ObjectInfo], objects: PartitionObjects) -> int:
        """Read the segments in a page of keys below ``prefix`` and return their number."""
        keys = [(paths.parse_segment_key_in(prefix, info.key), info.size) for info in page]
        segments = [(key, size) for key, size in keys if key is not None and key.kind == "kfs"]
        read = await self._together([_reading(self._objects, str(key), size) for key, size in segments])
        for (key, _), found in zip(segments, read, strict=True):
            if found is None or found.base != key.base_offset:
                objects.unreadable[key.base_offset] = str(key)
            else:
                objects.segments.append(found)
                objects.highest_epoch = max(objects.highest_epoch, found.epoch)
        return len(segments)

    async def _partitions(self, topic: str) -> list[int]:
        found = []
        for name in await self._children(f"{self.namespace}/{topic}/"):
            for info in await self._objects.list_from(f"{self.namespace}/{topic}/{name}/", "", 1):
                key = paths.parse_segment_key(info.key)
                if key is not None and (key.namespace, key.topic) == (self.namespace, topic):
                    found.append(key.partition)
        return found

    async def _children(self, prefix: str) -> list[str]:
        """Return the names directly below a prefix that ends with a slash, except those that begin with ``~``."""
        names: list[str] = []
        after = prefix
        while listed := await self._objects.list_from(prefix, after, 1):
            name = listed[0].key.removeprefix(prefix).partition("/")[0]
            if name.startswith(_LAST):
                break
            if listed[0].key != f"{prefix}{name}":
                names.append(name)
            after = max(f"{prefix}{name}/{_LAST}", listed[0].key)
        return names

    async def _all(self, prefix: str) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        async with aclosing(self._pages(prefix)) as pages:
            async for page in pages:
                found += page
        return found

    async def _pages(self, prefix: str) -> AsyncGenerator[list[ObjectInfo], None]:
        after, page = "", [ObjectInfo("", 0, "")] * MAX_KEYS
        while len(page) == MAX_KEYS:
            page = await self._objects.list_from(prefix, after, MAX_KEYS)
            if page:
                yield page
                after = page[-1].key

    async def _together(self, steps: list[Callable[[], Awaitable[T]]]) -> list[T]:
        results: dict[int, T] = {}

        async def one(number: int) -> None:
            results[number] = await steps[number]()

        await together(self._reads, (partial(one, number) for number in range(len(steps))))
        return [results[number] for number in range(len(steps))]


def _reading(objects: ObjectStore, key: str, size: int) -> Callable[[], Awaitable[Found | None]]:
    async def read() -> Found | None:
        """Return the segment, or None if the object is not a valid one."""
        try:
            header = parse_start(await objects.get_range(key, 0, START_SIZE))
            footer = SegmentFooter.parse(await objects.get_range(key, max(size - FOOTER_SIZE, 0), FOOTER_SIZE))
        except (CorruptData, ObjectNotFound):
            return None
        following = footer.last_offset + 1
        if following <= header.base_offset:
            return None
        return Found(header.base_offset, following, header.epoch, size, footer.crc, header.created_ms)

    return read


async def together(limit: trio.CapacityLimiter, steps: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Run ``steps`` concurrently, as far as ``limit`` allows. Raises the error of a step that fails."""

    async def one(step: Callable[[], Awaitable[None]]) -> None:
        async with limit:
            await step()

    try:
        async with trio.open_nursery() as nursery:
            for step in steps:
                nursery.start_soon(one, step)
    # Not except*, because Python before 3.11.4 puts what such a clause raises into a group.
    except ExceptionGroup as group:
        errors = list(leaves(group))
        if not all(isinstance(error, KafscaleError) for error in errors):
            raise
        raise errors[0] from group
