"""Empties the prefixes of deleted topics, then frees their names.

Every instance gives up what it owns of such a topic (`Assignment`). One instance does the rest: the one that the first
partition is given to. It owns all partitions while it deletes, so that nobody else deletes there while it lives, and
begins nothing that it cannot prove its lease for; when it dies, the next one goes on.
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
from kafscale.v1.metadata_pb2 import PartitionState, Topic
from services.storage.owning.owned import Key
from services.storage.upkeep.topic_objects import TopicObjects

log = structlog.get_logger()

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_PAGE = 1000


class _Done(Exception):
    """Another instance has deleted the topic; the name may be a new topic's by now."""


class TopicDeleter:
    """Watches for topics that are being deleted, those of former runs and of other instances included.

    A name is free only when nothing that was sent to the old topic's prefix can land any more: where an owner died, or
    gave up while something was under way, or a delete's outcome is unknown, the store's settle time has passed.
    ``holds`` tells whether this run still has something to do with a partition.
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
            nursery.start_soon(call_at_each, self._members.changed, self._look_again)
            nursery.start_soon(call_at_each, self._catalog.changed, self._look_again)
            while True:
                self._wake = trio.Event()
                for topic in self._catalog.view.by_name.values():
                    if not topic.live and topic.id not in self._under_way and self._responsible(topic):
                        self._under_way.add(topic.id)
                        nursery.start_soon(self._delete, topic)
                await self._wake.wait()

    def _look_again(self) -> None:
        self._wake.set()

    def _responsible(self, topic: TopicInfo) -> bool:
        assigned = self._members.view.owner(topic.id, 0)
        return assigned is not None and assigned.run_id == self._membership.run_id

    async def _delete(self, topic: TopicInfo) -> None:
        deletion = _Deletion(
            topic, self._membership, self._metadata, self._objects, namespace=self._namespace, holds=self._holds
        )
        outage = Outage("topic deletion goes on later", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        # Once it has begun it goes on here, whoever is responsible by then: nobody else gets at the partitions.
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
    """One topic's, over all its attempts. ``began``: this run owns some of its partitions."""

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
        # Partitions that ever had an owner: nobody can have written to the others.
        self._used: set[int] = set()

    async def run(self) -> int:
        """Take the partitions and empty them; gives their highest epoch. Raises KafscaleError (repeat it), _Done."""
        highest = self._topic.epoch_floor
        for index in range(self._topic.partitions):
            highest = max(highest, await self._take(index))
        await self._empty()
        if self._settled_at > trio.current_time():
            await trio.sleep_until(self._settled_at)
            await self._empty()
        return highest

    async def _take(self, index: int) -> int:
        """Own the partition in an epoch of its own, as soon as no live run does; gives that epoch. Raises _Done."""
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
            # Also where the state has no owner or another: this run's own take-over may be under way.
            if self._holds((self._topic.id, index)):
                raise Unavailable(f"{self._topic.name}-{index} is still being given up here")
            if state.owner not in ("", me):
                member_key = paths.member_key(self._namespace, "storage", state.owner)
                if await self._metadata.get(member_key) is not None:
                    raise Unavailable(f"run {state.owner} still owns {self._topic.name}-{index}")
                compares.append(Unchanged(member_key, 0))
            if state.unclean or state.owner:
                self._will_land()
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
                    # What lies deeper is another cluster's, whose namespace begins with this topic's prefix.
                    doomed = [info.key for info in page if "/" not in info.key.removeprefix(prefix)]
                    if doomed:
                        await self._delete(doomed)
                    if len(page) < _PAGE:
                        break
        await self._delete([paths.topic_object_key(self._namespace, self._topic.name)])

    async def _delete(self, keys: list[str]) -> None:
        # The date first: whoever is stopped after the proof sends a delete that the store refuses.
        dated = self._objects.now()
        if not self._membership.proven:
            raise Unavailable("the lease cannot be confirmed at present")
        try:
            await self._objects.delete_many(keys, dated=dated)
        except KafscaleError:
            self._will_land()
            raise

    def _will_land(self) -> None:
        """Something that was sent to the prefix may still take effect."""
        self._settled_at = trio.current_time() + self._objects.settle_seconds
