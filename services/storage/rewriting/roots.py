"""Store the next root of a partition, and commit it with the partition's state."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import trio

from kafscale.errors import Unavailable
from kafscale.objects.interface import ObjectStore
from kafscale.objects.puts import put_own
from kafscale.rewritten.keys import RewrittenKey, RootKey, parse_rewritten_key
from kafscale.rewritten.root import Root, build_root, stored_crc
from kafscale.v1.indexer_pb2 import RewrittenStep
from kafscale.v1.metadata_pb2 import RootRef
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.storage.log.partition import Partition
from services.storage.log.rewriting import next_root
from services.storage.log.rewritten import RewrittenLog
from services.storage.reading.roots import root_key
from services.storage.rewriting.obsolete import Obsolete


class Roots:
    """Commits roots. ``ready`` has a partition's next state written, ``moved`` waits until any state was written.

    ``grace``: seconds for which replaced objects stay.
    """

    def __init__(
        self,
        objects: ObjectStore,
        obsolete: Obsolete,
        *,
        namespace: str,
        grace: float,
        ready: Callable[[Partition], None],
        moved: Callable[[], Awaitable[None]],
    ) -> None:
        self._objects = objects
        self._obsolete = obsolete
        self._namespace = namespace
        self._grace = grace
        self._ready = ready
        self._moved = moved

    def due(self, partition: Partition) -> bool:
        """Return whether objects can be deleted once a root is committed that does not list them any more."""
        rewritten = partition.log.segments.rewritten
        if rewritten is None or rewritten.root is None:
            return False
        first = rewritten.root.entries[0]
        # A former root alone is not worth another one.
        past = [key for key in self._past_grace(partition) if not isinstance(parse_rewritten_key(key), RootKey)]
        return bool(past) or (first.found is not None and first.end <= partition.log.log_start)

    async def commit(
        self,
        partition: Partition,
        step: RewrittenStep | None = None,
        replaced: Sequence[str] = (),
        *,
        compacts: bool = False,
    ) -> bool:
        """Store the next root and commit it. Then delete what it does not list any more, as its grace is over.

        ``step``: a finished step of a rewrite, of a compaction if ``compacts``. ``replaced``: the keys of the segments
        and indexes that it replaces. Return False if the step does not fit the log any more, or the partition is closed
        or being handed over. Raises KafscaleError.
        """
        if partition.next_root is not None:
            # The commit of another root is not known to be applied.
            return False
        past = self._past_grace(partition)
        root = next_root(partition, step=step, compacts=compacts)
        if root is None or partition.closed or partition.moving:
            return False
        listed = [key for key in partition.obsolete if key not in past]
        root = replace(root, obsolete=[*listed, *replaced, *self._not_in(partition, root)])
        partition.attempts += 1
        ref, attempt = partition.ref, partition.attempts
        key = RootKey(self._namespace, ref.topic, ref.partition, root.number, partition.epoch, attempt)
        data = build_root(root)
        await self._put(partition, key, data)
        if partition.closed or partition.moving:
            partition.ended_attempts.add(attempt)
            return False
        stated = RootRef(
            number=root.number, epoch=partition.epoch, attempt=attempt, crc=stored_crc(data), through=root.through
        )
        rewritten = partition.next_root = RewrittenLog(stated, root)
        self._ready(partition)
        while partition.log.segments.rewritten is not rewritten and not partition.closed:
            await self._moved()
        if partition.closed:
            return False
        await self._obsolete.delete_replaced(partition, past)
        return True

    def _past_grace(self, partition: Partition) -> list[str]:
        latest = trio.current_time() - self._grace
        return [key for key, known_at in partition.obsolete.items() if known_at < latest]

    def _not_in(self, partition: Partition, following: Root) -> list[str]:
        """Return the keys of the partition's root and of the objects that ``following`` does not name, with indexes."""
        ref, rewritten = partition.ref, partition.log.segments.rewritten
        if rewritten is None or rewritten.root is None:
            return []
        keys = [root_key(self._namespace, ref, rewritten.ref)]
        kept = {_identity(one.found) for one in following.entries if one.found is not None}
        for entry in rewritten.root.entries:
            if entry.found is not None and _identity(entry.found) not in kept:
                key = RewrittenKey.of(entry.found, self._namespace, ref.topic, ref.partition)
                keys += [str(key), str(key.index)]
        return keys

    async def _put(self, partition: Partition, key: RootKey, data: bytes) -> None:
        answered = False
        partition.under_way += 1
        try:
            there = await put_own(self._objects, str(key), data)
            answered = True
        finally:
            if not answered:
                partition.ended_attempts.add(key.attempt)
                partition.unswept = True
                partition.last_unknown_request = trio.current_time()
            partition.request_ended()
        if there is not None:
            raise Unavailable(f"{key}: another object has this key")


def _identity(entry: RewrittenEntry) -> tuple[int, int, int]:
    return entry.base_offset, entry.epoch, entry.attempt
