"""Delete what rewritten objects have replaced, and what attempts to rewrite a log have left.

A root lists the keys that it and the roots before it have replaced. Readers that know an earlier root may need these
objects for the grace. After that, the next root leaves them out of its list, and when that is committed they are
deleted. So the objects of the last root but one are always whole, and metadata that was rolled back further is noticed
(`services.storage.owning.takeover`).
"""

from collections.abc import Callable
from itertools import islice

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.objects.interface import ObjectStore
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key, rewritten_prefix
from services.storage.log.partition import Partition
from services.storage.owning.deletes import DELETED_TOGETHER, OwnerDeletes
from services.storage.reading.roots import root_key

_PAGE = 1000
_FEW = 8
"""Objects that are deleted at the same time if there is no hurry."""
_REST = 4
"""How many times as long as that takes the next ones wait, so that other requests to the store are not delayed."""
_LONGEST_REST = 1.0
_MANY = 10_000
"""More objects than that are not deleted slowly, because as many may be replaced meanwhile."""

log = structlog.get_logger()


class Obsolete:
    """Deletes objects that no root of a partition names any more, or that none ever named.

    ``hurries`` returns whether the deletes must keep up with fast merges. Slow ones run in ``nursery``.
    """

    def __init__(
        self,
        objects: ObjectStore,
        deletes: OwnerDeletes,
        namespace: str,
        *,
        nursery: trio.Nursery,
        hurries: Callable[[], bool],
    ) -> None:
        self._objects = objects
        self._deletes = deletes
        self._namespace = namespace
        self._nursery = nursery
        self._hurries = hurries
        # Partitions whose objects are deleted slowly.
        self._slow: set[Partition] = set()

    async def delete_replaced(self, partition: Partition, keys: list[str]) -> None:
        """Delete objects that the committed root does not list any more, and those of earlier calls that failed.

        If there is no hurry, what merges replaced is deleted later, a few objects at a time. Raises KafscaleError.
        """
        partition.undeleted.update(dict.fromkeys(keys))
        if partition.config.compacted or self._hurries() or len(partition.undeleted) > _MANY:
            await self.delete(partition, [])
        elif partition.undeleted and partition not in self._slow:
            self._slow.add(partition)
            self._nursery.start_soon(self._delete_slowly, partition)

    async def delete(self, partition: Partition, keys: list[str]) -> bool:
        """Delete objects, and those of earlier calls that failed.

        Return False if not all are deleted, because this run cannot prove that it is the owner. Raises KafscaleError.
        """
        partition.undeleted.update(dict.fromkeys(keys))
        # The index of a segment may still be on its way.
        await partition.indexed(partition.log.segments.through)
        while partition.undeleted:
            if not await self._delete_first(partition, DELETED_TOGETHER):
                return False
        return True

    async def _delete_slowly(self, partition: Partition) -> None:
        try:
            await partition.indexed(partition.log.segments.through)
            while partition.undeleted:
                began = trio.current_time()
                if not await self._delete_first(partition, _FEW):
                    return
                await trio.sleep(min(_REST * (trio.current_time() - began), _LONGEST_REST))
        except KafscaleError as error:
            log.warning("replaced objects not deleted, retrying later", partition=partition.name, error=str(error))
        finally:
            self._slow.discard(partition)

    async def _delete_first(self, partition: Partition, count: int) -> bool:
        batch = list(islice(partition.undeleted, count))
        if not await self._deletes.delete(partition, batch):
            return False
        for key in batch:
            # A sweep may delete it at the same time.
            partition.undeleted.pop(key, None)
        return True

    async def sweep(self, partition: Partition) -> None:
        """Delete what dead owners and ended attempts left. Raises KafscaleError.

        An owner commits only attempts of its own epoch. So what the state's root does not name now is never named later
        if it is of a lower epoch.
        """
        rewritten = partition.log.segments.rewritten
        if not partition.unswept or (rewritten is not None and rewritten.root is None):
            return
        ended = set(partition.ended_attempts)
        named = self._named(partition)
        roots: list[str] = []
        others: list[str] = []
        for listed in await self._list(rewritten_prefix(self._namespace, partition.ref.topic, partition.ref.partition)):
            key = parse_rewritten_key(listed)
            if key is None or not self._is_of(key, partition) or listed in named:
                continue
            if key.epoch < partition.epoch or (key.epoch == partition.epoch and key.attempt in ended):
                (roots if isinstance(key, RootKey) else others).append(listed)
        # A root without its objects could be taken for one whose objects retention has deleted.
        for keys in (roots, others, await self._replaced_segments(partition, named)):
            if not await self.delete(partition, keys):
                return
        partition.ended_attempts -= ended
        partition.unswept = bool(partition.ended_attempts)

    def _is_of(self, key: RewrittenKey | RootKey, partition: Partition) -> bool:
        # The prefix of another cluster may begin with that of this partition.
        ref = partition.ref
        return (key.namespace, key.topic, key.partition) == (self._namespace, ref.topic, ref.partition)

    def _named(self, partition: Partition) -> set[str]:
        """Return the keys that the state's root needs or lists, and its own key."""
        rewritten, ref = partition.log.segments.rewritten, partition.ref
        if rewritten is None or rewritten.root is None:
            return set()
        keys = {root_key(self._namespace, ref, rewritten.ref), *rewritten.root.obsolete}
        for entry in rewritten.root.entries:
            if entry.found is not None:
                key = RewrittenKey.of(entry.found, self._namespace, ref.topic, ref.partition)
                keys |= {str(key), str(key.index)}
        return keys

    async def _replaced_segments(self, partition: Partition, named: set[str]) -> list[str]:
        through = partition.log.segments.through
        prefix = paths.partition_prefix(self._namespace, partition.ref.topic, partition.ref.partition)
        found: list[str] = []
        after = ""
        while through and (page := await self._objects.list_from(prefix, after, _PAGE)):
            after = page[-1].key
            keys = [key for info in page if (key := paths.parse_segment_key_in(prefix, info.key)) is not None]
            found += [str(key) for key in keys if key.base_offset < through and str(key) not in named]
            if len(page) < _PAGE or (keys and keys[-1].base_offset >= through):
                break
        return found

    async def _list(self, prefix: str) -> list[str]:
        found: list[str] = []
        while page := await self._objects.list_from(prefix, found[-1] if found else "", _PAGE):
            found += [info.key for info in page]
            if len(page) < _PAGE:
                break
        return found
