"""Keep the topic objects, `~topics/{topic}.json`, up to date: copies of topic metadata next to the segments.

A topic's object is written by the member to which its partition 0 is assigned, some time after a change. Two members
may do this for a moment, so each object has the metadata revision that it was made from, and an older one never
replaces a newer one. A put may take effect after the topic was deleted, so the object is checked again some time after
a deletion. An object is not deleted just because its topic is unknown.
"""

import math

import structlog
import trio

from kafscale import paths
from kafscale.catalog.topic_object import CorruptTopicObject, TopicObject, parse_topic_object
from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.interface import Get, KeyValue, MetadataStore
from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership
from kafscale.metadata.topic_values import TopicInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import Object, ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.log.commit import Commit

log = structlog.get_logger()

SECONDS_BETWEEN = 5.0
"""Between two writes for one topic. Changes in between share a write."""
_AT_THE_SAME_TIME = 4
_ATTEMPTS = 4
_LATE_SECONDS = 60.0
"""How long a member that has not seen the deletion of a topic may retry a put."""
_MAX_GONE = 10_000
_READS_PER_TXN = 128


class TopicObjects:
    """Writes topic objects while `run` is running. Checks for log starts moved by others every ``check_seconds``."""

    def __init__(
        self,
        *,
        catalog: TopicCatalog,
        members: Members,
        membership: Membership,
        metadata: MetadataStore,
        objects: ObjectStore,
        namespace: str,
        check_seconds: float,
    ) -> None:
        self._catalog = catalog
        self._members = members
        self._membership = membership
        self._metadata = metadata
        self._objects = objects
        self._namespace = namespace
        self._check_seconds = check_seconds
        # By topic id, only those assigned to this run: the revision seen, the stored object, when to write next.
        self._seen: dict[bytes, int] = {}
        self._stored: dict[bytes, TopicObject] = {}
        self._not_before: dict[bytes, float] = {}
        self._due: dict[bytes, float] = {}
        self._under_way: dict[bytes, trio.Event] = {}
        # Deleted topics, by name and time of deletion, whose objects are checked once more.
        self._gone: dict[bytes, tuple[str, float]] = {}
        self._wake = trio.Event()

    def committed(self, commit: Commit) -> None:
        """Schedule a write of the topic's object if the log start has moved."""
        topic_id = commit.partition.topic.id
        if commit.former.log_start != commit.partition.state.log_start and topic_id in self._seen:
            self._schedule(topic_id)
            self._wake.set()

    async def leave(self, topic_id: bytes) -> None:
        """Wait until no object of a deleted topic is being written here."""
        while (event := self._under_way.get(topic_id)) is not None:
            await event.wait()

    async def run(self) -> None:
        check_at = trio.current_time() + self._check_seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_topics)
            nursery.start_soon(self._follow_members)
            while True:
                with trio.move_on_at(min([check_at, *self._due.values()])):
                    await self._wake.wait()
                self._wake = trio.Event()
                self._refresh()
                if trio.current_time() >= check_at:
                    check_at = trio.current_time() + self._check_seconds
                    for topic_id in self._seen:
                        self._schedule(topic_id)
                    await self._sweep()
                await self._write_due()

    async def _follow_topics(self) -> None:
        view = self._catalog.view
        while True:
            self._wake.set()
            before, view = view, await self._catalog.wait_change(view)
            for topic in before.by_name.values():
                if not topic.live and topic.id not in view.by_id and len(self._gone) < _MAX_GONE:
                    self._gone[topic.id] = topic.name, trio.current_time()

    async def _follow_members(self) -> None:
        view = self._members.view
        while True:
            self._wake.set()
            view = await self._members.wait_change(view)

    def _refresh(self) -> None:
        """Update the set of topics assigned to this run, and schedule the changed ones."""
        topics = {
            topic.id: topic.mod_revision
            for topic in self._catalog.view.by_name.values()
            if topic.live and self._is_assigned(topic.id)
        }
        for kept in (self._seen, self._stored, self._not_before, self._due):
            for topic_id in kept.keys() - topics.keys():
                del kept[topic_id]
        for topic_id, revision in topics.items():
            if self._seen.get(topic_id) != revision:
                self._seen[topic_id] = revision
                self._schedule(topic_id)

    def _is_assigned(self, topic_id: bytes) -> bool:
        """Return whether this run must maintain the topic's object."""
        assigned = self._members.view.owner(topic_id, 0)
        return assigned is not None and assigned.run_id == self._membership.run_id

    def _schedule(self, topic_id: bytes) -> None:
        self._due.setdefault(topic_id, self._not_before.get(topic_id, -math.inf))

    async def _write_due(self) -> None:
        now = trio.current_time()
        due = [topic_id for topic_id, at in self._due.items() if at <= now][:_AT_THE_SAME_TIME]
        async with trio.open_nursery() as nursery:
            for topic_id in due:
                del self._due[topic_id]
                self._not_before[topic_id] = now + SECONDS_BETWEEN
                nursery.start_soon(self._write, topic_id)

    async def _write(self, topic_id: bytes) -> None:
        topic = self._catalog.view.live_by_id(topic_id)
        if topic is None:
            return
        done = self._under_way[topic_id] = trio.Event()
        try:
            current = await self._current(topic)
            stored = self._stored.get(topic_id)
            if current is not None and (stored is None or not stored.same_as(current)):
                self._stored[topic_id] = await self._put(current)
        except KafscaleError as error:
            log.warning("topic object not stored, retrying later", topic=topic.name, error=str(error))
            self._schedule(topic_id)
        finally:
            del self._under_way[topic_id]
            done.set()

    async def _current(self, topic: TopicInfo) -> TopicObject | None:
        """Return the object to be stored, or None if the topic is no longer live. Raises Unavailable."""
        keys = [
            paths.topic_key(self._namespace, topic.name),
            *(paths.partition_state_key(self._namespace, topic.name, index) for index in range(topic.partitions)),
        ]
        found: list[KeyValue | None] = []
        revision = 0
        for start in range(0, len(keys), _READS_PER_TXN):
            result = await self._metadata.txn((), [Get(key) for key in keys[start : start + _READS_PER_TXN]])
            found += result.reads
            # The revision of the first read, because later reads are newer.
            revision = revision or result.revision
        item, *states = found
        now = TopicInfo.read(item) if item is not None else None
        if now is None or now.id != topic.id or not now.live:
            return None
        return TopicObject(
            name=now.name,
            id=now.id,
            configs=now.configs,
            epoch_floor=now.epoch_floor,
            created_ms=now.created_ms,
            log_starts=tuple(PartitionState.FromString(kv.value).log_start if kv is not None else 0 for kv in states),
            metadata_revision=revision,
        )

    async def _put(self, current: TopicObject) -> TopicObject:
        """Store the object unless a newer one is stored. Return the stored one. Raises Unavailable, Refused."""
        key = paths.topic_object_key(self._namespace, current.name)
        for _ in range(_ATTEMPTS):
            there = await self._stored_object(key)
            found = _parsed(key, there)
            if found is not None and (found.same_as(current) or found.metadata_revision > current.metadata_revision):
                return found
            # No await between these checks and the request, so that a deleted object does not come back.
            if not self._membership.proven or self._catalog.view.live_by_id(current.id) is None:
                raise Unavailable("the topic is deleted, or the lease cannot be confirmed at present")
            try:
                if there is None:
                    await self._objects.put_if_absent(key, current.encode())
                else:
                    await self._objects.replace_if_match(key, current.encode(), there.etag)
            except PreconditionFailed:
                continue
            return current
        raise Unavailable(f"object {key} keeps changing")

    async def _sweep(self) -> None:
        """Delete objects that were written after the deletion of their topics."""
        late = trio.current_time() - _LATE_SECONDS - self._objects.settle_seconds
        for topic_id, name in [(topic_id, name) for topic_id, (name, at) in self._gone.items() if at <= late]:
            try:
                if self._is_assigned(topic_id):
                    await self._delete_late(name, topic_id)
            except KafscaleError as error:
                log.warning("check for late topic object failed, retrying later", topic=name, error=str(error))
                return
            del self._gone[topic_id]

    async def _delete_late(self, name: str, topic_id: bytes) -> None:
        """Delete the object of one deleted topic. Raises Unavailable, Refused, to be retried."""
        key, topic_key = paths.topic_object_key(self._namespace, name), paths.topic_key(self._namespace, name)
        found = _parsed(key, await self._stored_object(key))
        if found is not None and found.id == topic_id and await self._metadata.get(topic_key) is None:
            # Take the date first, so that the store refuses a delete sent by a process that was paused after the check.
            dated = self._objects.now()
            if not self._membership.proven:
                raise Unavailable("the lease cannot be confirmed at present")
            await self._objects.delete_many([key], dated=dated)
            log.info("late topic object deleted", topic=name)
        # This may have deleted the object of a new topic with the same name, so store that again.
        item = await self._metadata.get(topic_key)
        again = await self._current(TopicInfo.read(item)) if item is not None else None
        if again is not None:
            await self._put(again)

    async def _stored_object(self, key: str) -> Object | None:
        try:
            return await self._objects.get(key)
        except ObjectNotFound:
            return None


def _parsed(key: str, there: Object | None) -> TopicObject | None:
    try:
        return parse_topic_object(there.body) if there is not None else None
    except CorruptTopicObject as error:
        log.warning("damaged topic object, replacing it", key=key, error=str(error))
        return None
