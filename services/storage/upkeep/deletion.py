"""Delete the objects of deleted topics, then free their names.

Every instance drops its partitions of such a topic (`Assignment`). The instance to which the first partition is
assigned does the rest. It owns all partitions during the deletion, so that no other live instance deletes there, and
sends no delete without confirming its lease. If it dies, the next one continues.
"""

from collections.abc import Callable

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.follow import call_at_each
from kafscale.metadata.interface import Get, MetadataStore, Put, Unchanged
from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership
from kafscale.metadata.outage import Outage
from kafscale.metadata.topic_values import TopicInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectStore
from kafscale.rewritten.keys import parse_rewritten_key, rewritten_prefix, roots_prefix
from kafscale.v1.metadata_pb2 import PartitionState, Topic
from services.storage.owning.deletes import DELETED_TOGETHER
from services.storage.owning.owned import Key
from services.storage.upkeep.topic_objects import TopicObjects

log = structlog.get_logger()

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_PAGE = 1000


class _Done(Exception):
    """Another instance has deleted the topic. A new topic may already have its name."""


class TopicDeleter:
    """Watches for topics that are being deleted, including those of former runs and of other instances.

    A name is freed only when no request to the old topic's prefix can take effect any more. If an owner died or gave up
    with requests in progress, or the outcome of a delete is unknown, the store's settle time must have passed.
    ``holds`` returns whether this run still works on a partition.
    """

    def __init__(
        self,
        *,
        catalog: TopicCatalog,
        topic_objects: TopicObjects,
        members: Members,
        membership: Membership,
        metadata: MetadataStore,
        objects: ObjectStore,
        namespace: str,
        holds: Callable[[Key], bool],
    ) -> None:
        self._catalog = catalog
        self._topic_objects = topic_objects
        self._members = members
        self._membership = membership
        self._metadata = metadata
        self._objects = objects
        self._namespace = namespace
        self._holds = holds
        self._under_way: set[bytes] = set()
        self._wake = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call_at_each, self._members.changed, self._wake_up)
            nursery.start_soon(call_at_each, self._catalog.changed, self._wake_up)
            while True:
                self._wake = trio.Event()
                for topic in self._catalog.view.by_name.values():
                    if not topic.live and topic.id not in self._under_way and self._responsible(topic):
                        self._under_way.add(topic.id)
                        nursery.start_soon(self._delete, topic)
                await self._wake.wait()

    def _wake_up(self) -> None:
        self._wake.set()

    def _responsible(self, topic: TopicInfo) -> bool:
        assigned = self._members.view.owner(topic.id, 0)
        return assigned is not None and assigned.run_id == self._membership.run_id

    async def _delete(self, topic: TopicInfo) -> None:
        deletion = _Deletion(
            topic, self._membership, self._metadata, self._objects, namespace=self._namespace, holds=self._holds
        )
        outage = Outage("topic deletion failed, retrying", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        # Once begun it continues here regardless of assignment, because no other run can take the partitions.
        while deletion.began or self._responsible(topic):
            try:
                await self._topic_objects.leave(topic.id)
                highest = await deletion.run()
                await self._catalog.finish_delete(topic.name, topic.id, highest, deleter=self._membership.key)
                log.info("topic deleted", topic=topic.name)
                break
            except _Done:
                break
            except KafscaleError as error:
                await outage.pause(error, topic=topic.name)
        self._under_way.discard(topic.id)


class _Deletion:
    """The deletion of one topic, across all attempts. ``began``: this run owns some of its partitions."""

    def __init__(
        self,
        topic: TopicInfo,
        membership: Membership,
        metadata: MetadataStore,
        objects: ObjectStore,
        *,
        namespace: str,
        holds: Callable[[Key], bool],
    ) -> None:
        self.began = False
        self._topic = topic
        self._membership = membership
        self._metadata = metadata
        self._objects = objects
        self._namespace = namespace
        self._holds = holds
        self._settled_at = trio.current_time()
        # Partitions that ever had an owner. The others cannot have objects.
        self._used: set[int] = set()

    async def run(self) -> int:
        """Take and empty the partitions. Return their highest epoch. Raises KafscaleError, to be retried; _Done."""
        highest = self._topic.epoch_floor
        for index in range(self._topic.partitions):
            highest = max(highest, await self._take(index))
        await self._empty()
        if self._settled_at > trio.current_time():
            await trio.sleep_until(self._settled_at)
            await self._empty()
        return highest

    async def _take(self, index: int) -> int:
        """Become the owner in a new epoch, and return it. Raises Unavailable while another run is the owner; _Done."""
        topic_key = paths.topic_key(self._namespace, self._topic.name)
        key = paths.partition_state_key(self._namespace, self._topic.name, index)
        while True:
            topic, kv = (await self._metadata.txn((), [Get(topic_key), Get(key)])).reads
            if topic is None or Topic.FromString(topic.value).id != self._topic.id:
                raise _Done
            if kv is None:
                return 0
            state, me = PartitionState.FromString(kv.value), self._membership.run_id
            compares = [Unchanged(topic_key, topic.mod_revision), Unchanged(key, kv.mod_revision)]
            if state.owner == me and index in self._used:
                return state.epoch
            # Check this for any owner in the state, because this run's own take-over may be in progress.
            if self._holds((self._topic.id, index)):
                raise Unavailable(f"{self._topic.name}-{index} is still being released here")
            if state.owner not in ("", me):
                member_key = paths.member_key(self._namespace, "storage", state.owner)
                if await self._metadata.get(member_key) is not None:
                    raise Unavailable(f"run {state.owner} still owns {self._topic.name}-{index}")
                compares.append(Unchanged(member_key, 0))
            if state.unclean or state.owner:
                self._note_pending()
            self.began = True
            self._used.add(index)
            state.owner, state.epoch, state.unclean = me, state.epoch + 1, False
            if (await self._metadata.txn(compares, [Put(key, state.SerializeToString())])).succeeded:
                return state.epoch

    async def _empty(self) -> None:
        for index in self._used:
            for prefix in (
                paths.partition_prefix(self._namespace, self._topic.name, index),
                paths.producers_prefix(self._namespace, self._topic.name, index),
                paths.catalog_prefix(self._namespace, self._topic.name, index),
            ):
                after = ""
                while page := await self._objects.list_from(prefix, after, _PAGE):
                    after = page[-1].key
                    # Deeper keys belong to another cluster whose namespace begins with this topic's prefix.
                    doomed = [info.key for info in page if "/" not in info.key.removeprefix(prefix)]
                    if doomed:
                        await self._delete(doomed)
                    if len(page) < _PAGE:
                        break
            await self._empty_rewritten(index)
        await self._delete([paths.topic_object_key(self._namespace, self._topic.name)])

    async def _empty_rewritten(self, index: int) -> None:
        """Delete a partition's roots, then its rewritten objects, which nobody reads without a root."""
        name = self._topic.name
        for prefix in (roots_prefix(self._namespace, name, index), rewritten_prefix(self._namespace, name, index)):
            after = ""
            while page := await self._objects.list_from(prefix, after, _PAGE):
                after = page[-1].key
                keys = [key for info in page if (key := parse_rewritten_key(info.key)) is not None]
                doomed = [str(key) for key in keys if (key.namespace, key.topic) == (self._namespace, name)]
                if doomed:
                    await self._delete(doomed)
                if len(page) < _PAGE:
                    break

    async def _delete(self, keys: list[str]) -> None:
        for start in range(0, len(keys), DELETED_TOGETHER):
            await self._delete_together(keys[start : start + DELETED_TOGETHER])

    async def _delete_together(self, keys: list[str]) -> None:
        # Take the date first, so that the store refuses a delete sent by a process that was paused after the check.
        dated = self._objects.now()
        if not self._membership.proven:
            raise Unavailable("the lease cannot be confirmed at present")
        try:
            await self._objects.delete_many(keys, dated=dated)
        except KafscaleError:
            self._note_pending()
            raise

    def _note_pending(self) -> None:
        """Record that a request to the prefix may still take effect."""
        self._settled_at = trio.current_time() + self._objects.settle_seconds
