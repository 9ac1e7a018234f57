"""Topics in the metadata store: a watched view for reads, and compare-and-set steps for changes.

A topic's life cycle: `TopicCatalog.create` creates it, `mark_deleting` hides it while its owners empty its prefixes,
and `finish_delete` frees the name. The epochs of a name never decrease: a new topic starts above the cluster's epoch
floor, and `finish_delete` raises the floor to the old topic's highest epoch before it deletes any key.
"""

import base64
import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog
import trio

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import (
    Delete,
    Event,
    Get,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Snapshot,
    Unchanged,
)
from kafscale.metadata.topic_values import (
    NEW_CLUSTER_STATE_FORMAT,
    ClusterInfo,
    DeleterGone,
    InvalidTopicName,
    TopicDeleting,
    TopicExists,
    TopicInfo,
    TopicsView,
    UnknownTopic,
)

_FIRST_RETRY_SECONDS = 0.05
_LONGEST_RETRY_SECONDS = 2.0
_DELETES_PER_TXN = 128

_log = structlog.get_logger(__name__)


class _Change(Protocol):
    """Returns the changed topic. ``unsure`` is true if ``found`` may be the result of an earlier attempt."""

    def __call__(self, found: TopicInfo, *, unsure: bool) -> TopicInfo: ...


class TopicCatalog:
    """All topics of a namespace. `run` must be running, because a change returns only when it is in `view`.

    Changes are retried while the store is unavailable, until their outcome is known. Callers set the deadline.
    """

    def __init__(
        self, store: MetadataStore, namespace: str, *, random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._prefix = paths.topics_prefix(namespace)
        self._cluster_key = paths.cluster_key(namespace)
        self._random_bytes = random_bytes
        self._view = TopicsView.of(0, ())
        self._changed = trio.Event()

    @property
    def view(self) -> TopicsView:
        return self._view

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the view current until cancelled. Started after the first read; raises Refused only before that."""
        await follow(self._store, self._prefix, reset=self._reset, apply=self._follow, task_status=task_status)

    async def changed(self) -> None:
        """Wait for the next change of the view."""
        await self._changed.wait()

    async def wait_change(self, seen: TopicsView) -> TopicsView:
        """Wait until the view is no longer ``seen``, and return it."""
        while self._view is seen:
            await self.changed()
        return self._view

    async def wait_free(self, name: str) -> None:
        """Wait until no topic has this name, not even one that is being deleted."""
        while name in self._view.by_name:
            await self._changed.wait()

    async def live_ids(self) -> set[bytes]:
        """Return the ids of all live topics from the store, because the view may lag. Raises as `live_topic_ids`."""
        return await live_topic_ids(self._store, self._namespace)

    async def cluster(self) -> ClusterInfo:
        """Return the cluster's id and epoch floor; create them in a new namespace."""
        return ClusterInfo.read(await self._cluster_item())

    async def create(
        self, name: str, partitions: int, configs: Mapping[str, str], *, now_ms: int, topic_id: bytes
    ) -> TopicInfo:
        """Create a topic with validated configs and 16 new random bytes as its id.

        Raises InvalidTopicName, TopicExists, TopicDeleting (wait with `wait_free` and retry), and Unavailable if the
        topic may have been created, and deleted by others, while the outcome was unknown.
        """
        if partitions < 1 or len(topic_id) != 16:
            raise ValueError("a topic must have at least one partition and a 16-byte id")
        if not paths.is_topic_name(name):
            raise InvalidTopicName(f"Topic name {name!r} is not 1 to 249 of letters, digits, '.', '_' and '-'")
        collision = self._view.collision(name)
        if collision is not None:
            raise InvalidTopicName(f"Topic '{name}' collides with existing topic: {collision}")
        return await self._make(name, partitions, configs, now_ms, topic_id)

    async def mark_deleting(self, topic: str | bytes) -> TopicInfo:
        """Hide a live topic, identified by name or id, as the first step of its deletion. Raises UnknownTopic."""
        name = self._name_of(topic)
        key = paths.topic_key(self._namespace, name)
        retry = _Retry()
        tried: TopicInfo | None = None
        while True:
            try:
                item = await self._store.get(key)
                found = TopicInfo.read(item) if item else None
                if tried is not None and (found is None or not found.live or found.id != tried.id):
                    return await self._hidden(tried)
                if found is None or not found.live or topic not in (found.name, found.id):
                    raise UnknownTopic(name)
                tried = found.deleting()
                await self._store.txn([Unchanged(key, found.mod_revision)], [Put(key, tried.value())])
            except Unavailable as error:
                await retry.pause(error)

    async def grow(self, topic_id: bytes, partitions: int) -> TopicInfo:
        """Add partitions to a live topic. Raises UnknownTopic, NotMorePartitions."""

        def grown(found: TopicInfo, *, unsure: bool) -> TopicInfo:
            # An earlier attempt may have added them.
            return found if unsure and found.partitions >= partitions else found.grown(partitions)

        return await self._change(topic_id, grown)

    async def configure(self, topic_id: bytes, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> TopicInfo:
        """Change a live topic's configs. ``change`` returns the new, validated configs for the stored ones.

        It may be called several times, also with its own earlier result. Raises UnknownTopic and the errors of
        ``change``.
        """
        return await self._change(topic_id, lambda found, *, unsure: found.configured(change(found.configs)))

    async def finish_delete(self, name: str, topic_id: bytes, highest_epoch: int, *, deleter: str) -> None:
        """Free the name of a topic that is being deleted and whose prefixes are empty. No error if it is free already.

        ``highest_epoch`` is the highest epoch of its partitions. ``deleter`` is the member key of the run that emptied
        the prefixes. Raises DeleterGone if that key is gone, because another run may be deleting the topic then, and
        ValueError for a live topic.
        """
        key = paths.topic_key(self._namespace, name)
        retry = _Retry()
        while True:
            try:
                item = await self._store.get(key)
                found = TopicInfo.read(item) if item else None
                if found is None or found.id != topic_id:
                    break
                if found.live:
                    raise ValueError(f"topic {name} is not being deleted")
                member = await self._store.get(deleter)
                if member is None:
                    raise DeleterGone(name)
                there = Unchanged(deleter, member.mod_revision)
                if await self._forget(found, max(highest_epoch, found.epoch_floor), there):
                    break
            except Unavailable as error:
                await retry.pause(error)
        await self._unseen(name, topic_id)

    async def _change(self, topic_id: bytes, change: _Change) -> TopicInfo:
        name = self._name_of(topic_id)
        key = paths.topic_key(self._namespace, name)
        retry = _Retry()
        while True:
            try:
                item = await self._store.get(key)
                found = TopicInfo.read(item) if item else None
                if found is None or not found.live or found.id != topic_id:
                    raise UnknownTopic(name)
                changed = change(found, unsure=retry.unknown_outcome)
                if changed == found:
                    return await self._seen(found)
                result = await self._store.txn([Unchanged(key, found.mod_revision)], [Put(key, changed.value())])
                if result.succeeded:
                    return await self._seen(changed.at(result.revision))
            except Unavailable as error:
                await retry.pause(error)

    async def _make(
        self, name: str, partitions: int, configs: Mapping[str, str], now_ms: int, topic_id: bytes
    ) -> TopicInfo:
        key = paths.topic_key(self._namespace, name)
        retry = _Retry()
        cluster = await self._cluster_item()
        while True:
            floor = ClusterInfo.read(cluster).epoch_floor
            made = TopicInfo(name, topic_id, partitions, dict(configs), True, floor, now_ms)
            try:
                result = await self._store.txn(
                    [Unchanged(self._cluster_key, cluster.mod_revision), Unchanged(key, 0)],
                    [Put(key, made.value())],
                    [Get(self._cluster_key), Get(key)],
                )
            except Unavailable as error:
                # Compare the same again: if the topic was created and deleted since, the cluster's value has changed.
                await retry.pause(error)
                continue
            if result.succeeded:
                return await self._seen(made.at(result.revision))
            now_cluster, existing = result.reads
            if existing is not None:
                found = TopicInfo.read(existing)
                if found.id == topic_id:
                    return await self._seen(found)
                raise TopicExists(name) if found.live else TopicDeleting(name)
            if retry.unknown_outcome:
                raise Unavailable(f"topic {name} may have been created and deleted again")
            cluster = now_cluster or await self._cluster_item()

    async def _forget(self, topic: TopicInfo, highest_epoch: int, there: Unchanged) -> bool:
        """Raise the floor, delete the partitions' keys, free the name. Return False if a key changed: retry then."""
        # The floor goes first: a retry of an unfinished deletion may no longer find the states that hold the epochs.
        cluster_item = await self._cluster_item()
        if not await self._lift_floor(cluster_item, highest_epoch, [], []):
            return False
        key = paths.topic_key(self._namespace, topic.name)
        unmoved = [Unchanged(key, topic.mod_revision), there]
        keys = [
            make(self._namespace, topic.name, partition)
            for partition in range(topic.partitions)
            for make in (paths.partition_state_key, paths.epoch_history_key)
        ]
        for start in range(0, len(keys), _DELETES_PER_TXN):
            deletes = [Delete(gone) for gone in keys[start : start + _DELETES_PER_TXN]]
            if not (await self._store.txn(unmoved, deletes)).succeeded:
                return False
        # Write the cluster's value even if the floor is unchanged: by this, `create` detects that names were freed.
        return await self._lift_floor(await self._cluster_item(), highest_epoch, unmoved, [Delete(key)])

    async def _lift_floor(
        self, item: KeyValue, epoch: int, compares: list[Unchanged], operations: list[Operation]
    ) -> bool:
        lifted = ClusterInfo.read(item).lifted_to(epoch)
        result = await self._store.txn(
            [Unchanged(self._cluster_key, item.mod_revision), *compares],
            [Put(self._cluster_key, lifted.value()), *operations],
        )
        return result.succeeded

    async def _cluster_item(self) -> KeyValue:
        new_id = base64.urlsafe_b64encode(self._random_bytes(16)).decode().rstrip("=")
        retry = _Retry()
        while True:
            try:
                item = await self._store.get(self._cluster_key)
                if item is not None:
                    return item
                put = Put(self._cluster_key, ClusterInfo(new_id, 0, NEW_CLUSTER_STATE_FORMAT).value())
                await self._store.txn([Unchanged(self._cluster_key, 0)], [put])
            except Unavailable as error:
                await retry.pause(error)

    def _name_of(self, topic: str | bytes) -> str:
        if isinstance(topic, str):
            return topic
        found = self._view.by_id.get(topic)
        if found is None:
            raise UnknownTopic(topic.hex())
        return found.name

    async def _seen(self, topic: TopicInfo) -> TopicInfo:
        while self._view.revision < topic.mod_revision:
            await self._changed.wait()
        return topic

    async def _hidden(self, topic: TopicInfo) -> TopicInfo:
        while self._view.live_by_id(topic.id) is not None:
            await self._changed.wait()
        return self._view.by_id.get(topic.id, topic)

    async def _unseen(self, name: str, topic_id: bytes) -> None:
        while (found := self._view.by_name.get(name)) is not None and found.id == topic_id:
            await self._changed.wait()

    def _reset(self, snapshot: Snapshot) -> None:
        self._show(TopicsView.of(snapshot.revision, [TopicInfo.read(item) for item in snapshot.items]))

    def _follow(self, events: tuple[Event, ...]) -> None:
        topics = dict(self._view.by_name)
        for event in events:
            name = event.key.removeprefix(self._prefix)
            topics.pop(name, None)
            if event.value is not None:
                topics[name] = TopicInfo.read(event.value)
        self._show(TopicsView.of(events[0].revision, topics.values()))

    def _show(self, view: TopicsView) -> None:
        self._view = view
        changed, self._changed = self._changed, trio.Event()
        changed.set()


async def live_topic_ids(store: MetadataStore, namespace: str) -> set[bytes]:
    """Return the ids of all live topics, read from the store. Raises Unavailable, Refused, CorruptData."""
    topics = [TopicInfo.read(item) for item in (await store.read_prefix(paths.topics_prefix(namespace))).items]
    return {topic.id for topic in topics if topic.live}


class _Retry:
    """Pauses between retries, and records that an earlier attempt had an unknown outcome."""

    def __init__(self) -> None:
        self.unknown_outcome = False
        self._seconds = _FIRST_RETRY_SECONDS

    async def pause(self, error: Unavailable) -> None:
        self.unknown_outcome = True
        _log.info("metadata operation retried", reason=str(error))
        await trio.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, _LONGEST_RETRY_SECONDS)
