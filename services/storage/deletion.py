"""Empties the prefixes of deleted topics, then frees their names."""

from collections.abc import Callable

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.interface import Get, MetadataStore, Put, Unchanged
from kafscale.metadata.topic_values import TopicInfo
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectStore
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.owned import OwnedPartitions
from services.storage.partition import Partition

log = structlog.get_logger()

_RETRY = 1.0
_PAGE = 1000


class TopicDeleter:
    """Watches for topics that are being deleted, those of a former run included.

    A name is free only when nothing that was sent to the old topic's prefix can land any more: our own uploads have
    ended, and where a former owner died, or an upload's outcome is unknown, the store's settle time has passed.
    """

    def __init__(
        self,
        *,
        catalog: TopicCatalog,
        owned: OwnedPartitions,
        metadata: MetadataStore,
        objects: ObjectStore,
        namespace: str,
        run_id: str,
        closed: Callable[[Partition], None],
    ) -> None:
        self._catalog = catalog
        self._owned = owned
        self._metadata = metadata
        self._objects = objects
        self._namespace = namespace
        self._run_id = run_id
        self._closed = closed
        self._under_way: set[bytes] = set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            view = self._catalog.view
            while True:
                for topic in view.by_name.values():
                    if not topic.live and topic.id not in self._under_way:
                        self._under_way.add(topic.id)
                        nursery.start_soon(self._delete, topic)
                view = await self._catalog.wait_change(view)

    async def _delete(self, topic: TopicInfo) -> None:
        while True:
            try:
                await self._try_delete(topic)
                break
            except KafscaleError as error:
                log.warning("topic deletion goes on later", topic=topic.name, error=str(error))
                await trio.sleep(_RETRY)
        self._under_way.discard(topic.id)

    async def _try_delete(self, topic: TopicInfo) -> None:
        began = trio.current_time()
        settle_until = began
        for partition in [p for p in self._owned if p.topic.id == topic.id]:
            self._owned.drop(partition)
            self._closed(partition)
            await partition.idle.wait()
            settle_until = max(settle_until, partition.last_unknown_request + self._objects.settle_seconds)
            if partition.unclean:
                settle_until = max(settle_until, partition.taken_at + self._objects.settle_seconds)
        highest, unclean = await self._raise_epochs(topic)
        if unclean:
            settle_until = max(settle_until, trio.current_time() + self._objects.settle_seconds)
        await self._empty(topic)
        if settle_until > trio.current_time():
            await trio.sleep_until(settle_until)
            await self._empty(topic)
        await self._catalog.finish_delete(topic.name, topic.id, highest)
        log.info("topic deleted", topic=topic.name)

    async def _raise_epochs(self, topic: TopicInfo) -> tuple[int, bool]:
        """Fence every partition's owner; the highest epoch, and whether one had died without releasing."""
        highest, unclean = topic.epoch_floor, False
        for index in range(topic.partitions):
            key = paths.partition_state_key(self._namespace, topic.name, index)
            while True:
                kv = (await self._metadata.txn((), [Get(key)])).reads[0]
                if kv is None:
                    break
                state = PartitionState.FromString(kv.value)
                former = state.owner
                if former and former != self._run_id:
                    if await self._metadata.get(paths.member_key(self._namespace, "storage", former)) is not None:
                        raise Unavailable(f"run {former} still owns {topic.name}-{index}")
                    unclean = True
                state.owner, state.epoch = self._run_id, state.epoch + 1
                done = await self._metadata.txn(
                    [Unchanged(key, kv.mod_revision)], [Put(key, state.SerializeToString())]
                )
                if done.succeeded:
                    highest = max(highest, state.epoch)
                    break
        return highest, unclean

    async def _empty(self, topic: TopicInfo) -> None:
        for index in range(topic.partitions):
            for prefix in (
                paths.partition_prefix(self._namespace, topic.name, index),
                paths.producers_prefix(self._namespace, topic.name, index),
            ):
                while page := await self._objects.list_from(prefix, "", _PAGE):
                    await self._objects.delete_many(info.key for info in page)
