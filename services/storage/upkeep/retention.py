"""Move the log start by age, by size, by request, and past objects that were removed externally.

The log start moves first, in the partition's state. Only then the segments wholly below it are deleted, some objects at
a time, and again after a crash in between. Objects above the log start are never deleted, and holes in the middle are
never skipped: the log start moves past missing objects only if a listing shows no older ones and the bucket has this
cluster's mark, because an endpoint may lead to an empty replica for a while.
"""

from collections.abc import Awaitable, Callable

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectStore
from kafscale.v1.common_pb2 import PartitionRef
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import Partition
from services.storage.owning.deletes import OwnerDeletes
from services.storage.owning.owned import OwnedPartitions
from services.storage.owning.takeover import NotAvailable
from services.storage.owning.wall_clock import clock_was_right
from services.storage.reading.catalogs import Catalogs
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.reading.old_end import OldEnd
from services.storage.reading.reader import Reader

log = structlog.get_logger()

_PAGE = 1000
_LOOK_SECONDS = 10.0
_UNLIMITED = -1


class Retention:
    """Checks every assigned partition periodically, taking over unused ones for it.

    ``move`` sets a partition's log start and returns when it is in the state or another owner must do it. It raises
    KafscaleError if it is not possible now; the next check tries again.
    """

    def __init__(
        self,
        *,
        catalog: TopicCatalog,
        owned: OwnedPartitions,
        deletes: OwnerDeletes,
        reader: Reader,
        catalogs: Catalogs,
        old_end: OldEnd,
        objects: ObjectStore,
        namespace: str,
        move: Callable[[Partition, int], Awaitable[None]],
        now_ms: Callable[[], int],
        check_seconds: float,
    ) -> None:
        self._catalog = catalog
        self._owned = owned
        self._deletes = deletes
        self._reader = reader
        self._catalogs = catalogs
        self._old_end = old_end
        self._objects = objects
        self._namespace = namespace
        self._move = move
        self._now_ms = now_ms
        self._check_seconds = check_seconds
        # Partitions with unreadable data, and those whose log start has moved by request.
        self._suspects: dict[Partition, None] = {}
        self._cleaned: dict[Partition, None] = {}
        self._wake = trio.Event()

    def look_at(self, partition: Partition) -> None:
        """Check soon whether the oldest objects of an unreadable partition are missing, unless just done."""
        if trio.current_time() >= partition.looked_at + _LOOK_SECONDS:
            self._suspects[partition] = None
            self._wake.set()

    def clean(self, partition: Partition) -> None:
        """Delete what is below a log start that moved by request, and nothing by age or size."""
        self._cleaned[partition] = None
        self._wake.set()

    async def run(self) -> None:
        due = trio.current_time() + self._check_seconds
        while True:
            with trio.move_on_at(due):
                await self._wake.wait()
            if trio.current_time() >= due:
                await self._check_all()
                due = trio.current_time() + self._check_seconds
            self._wake = trio.Event()
            suspects, self._suspects = self._suspects, {}
            cleaned, self._cleaned = self._cleaned, {}
            for partition in suspects:
                await self._check(partition, suspect=True)
            for partition in cleaned:
                if partition not in suspects:
                    await self._clean(partition)

    async def _check_all(self) -> None:
        for topic in list(self._catalog.view.by_name.values()):
            if not topic.live:
                continue
            config = self._owned.config_of(topic.configs)
            limited = (config.retention_ms, config.retention_bytes) != (_UNLIMITED, _UNLIMITED)
            to_check = limited or config.compacted
            for index in range(topic.partitions):
                ref = PartitionRef(topic=topic.name, topic_id=topic.id, partition=index)
                owned = self._owned.get((topic.id, index))
                try:
                    if owned is not None and owned.has_leftovers:
                        await self._check(owned)
                    elif to_check and self._owned.may_acquire(ref) and await self._owned.has_records(ref):
                        await self._check(await self._owned.acquire(ref))
                except (NotAvailable, *STORE_FAILURES) as error:
                    log.debug("retention check skipped", topic=topic.name, partition=index, error=str(error))

    async def _check(self, partition: Partition, *, suspect: bool = False) -> None:
        """Move the partition's log start if due, and delete what is below it. ``suspect``: it may be damaged."""
        if partition.closed or partition.moving or partition.offline:
            return
        try:
            if suspect:
                partition.looked_at = trio.current_time()
                await self._move_over_missing(partition)
            try:
                await self._move_to(partition, await self._due(partition), "retention")
            except Damaged as error:
                if not suspect:
                    raise
                log.error("retention blocked by damaged data", partition=partition.name, reason=str(error))
            await self._delete_below(partition)
            await self._delete_orphans(partition)
            if partition.config.compacted:
                partition.measured = await self._reader.finder.measure(partition.log, partition.measured)
        except KafscaleError as error:
            if isinstance(error, Damaged) and not suspect:
                await self._check(partition, suspect=True)
            else:
                log.warning("retention failed, retrying later", partition=partition.name, error=str(error))

    async def _clean(self, partition: Partition) -> None:
        if partition.closed or partition.moving or partition.offline:
            return
        try:
            await self._delete_below(partition)
        except KafscaleError as error:
            log.warning("deleting records failed, retrying later", partition=partition.name, error=str(error))

    async def _move_to(self, partition: Partition, start: int, why: str) -> None:
        if start > partition.log.log_start:
            log.info("moving log start", partition=partition.name, log_start=start, reason=why)
            await self._move(partition, start)

    async def _move_over_missing(self, partition: Partition) -> None:
        try:
            start = await self._old_end.start(partition.log)
        except Damaged as error:
            log.error("log start not moved over missing objects", partition=partition.name, reason=str(error))
            return
        await self._move_to(partition, start, "older objects are missing")

    async def _due(self, partition: Partition) -> int:
        """Return the log start according to the topic's configs. Raises Damaged, Unavailable.

        Age is by the local clock. If that differs from the object store's, nothing is too old.
        """
        view, config = partition.log, partition.config
        start, end = view.log_start, view.segments_end
        if start == end or (config.retention_ms, config.retention_bytes) == (_UNLIMITED, _UNLIMITED):
            return start
        segment: KnownSegment | None = await self._reader.holding(view, start)
        too_much, now_ms, compared = -1, self._now_ms(), False
        if config.retention_bytes != _UNLIMITED:
            too_much = (await self._reader.finder.extent_from(view, segment)).bytes - config.retention_bytes
        while segment is not None:
            # As in Kafka, at least retention.bytes are kept.
            too_much -= segment.size
            try:
                if too_much < 0:
                    if not await self._too_old(partition, segment, now_ms):
                        break
                    if not compared:
                        clock = self._objects, self._namespace, self._now_ms
                        compared = await clock_was_right(*clock, at_ms=now_ms)
                    if not compared:
                        log.warning(
                            "retention by time skipped, clock differs from object store", partition=partition.name
                        )
                        break
            except OfAnotherEpoch:
                log.debug("object of another epoch skipped", partition=partition.name, base=segment.base_offset)
            following = await self._reader.finder.after(view, segment)
            start = end if following is None else following.base_offset
            segment = following
        return start

    async def _too_old(self, partition: Partition, segment: KnownSegment, now_ms: int) -> bool:
        limit = partition.config.retention_ms
        if limit == _UNLIMITED:
            return False
        newest = segment.max_timestamp
        if newest < 0:
            newest = await self._catalogs.age_from(partition.log, segment)
        if newest < 0:
            newest = await self._reader.newest_timestamp(partition.log, segment)
        return now_ms - newest > limit

    async def _delete_below(self, partition: Partition) -> None:
        view = partition.log
        # Read it once. If it moves meanwhile, the next check deletes the rest.
        log_start = kept_from = view.log_start
        if log_start <= partition.deleted_below:
            return
        if log_start < view.segments_end:
            kept_from = (await self._reader.holding(view, log_start)).base_offset
        await partition.indexed(kept_from)
        # While the log starts in rewritten objects, readers may still need the segments that these replaced.
        if log_start >= view.segments.through and not await self._delete_segments(partition, kept_from):
            return
        pages = await self._catalogs.keys_below(view, max(kept_from, view.segments.through))
        while pages:
            if not await self._deletes.delete(partition, pages[:_PAGE]):
                return
            del pages[:_PAGE]
        partition.deleted_below = log_start

    async def _delete_segments(self, partition: Partition, kept_from: int) -> bool:
        """Delete the segments below ``kept_from``. Return False if this run cannot prove that it is the owner."""
        prefix = paths.partition_prefix(self._namespace, partition.ref.topic, partition.ref.partition)
        after = ""
        while page := await self._objects.list_from(prefix, after, _PAGE):
            after = page[-1].key
            keys = [key for info in page if (key := paths.parse_segment_key_in(prefix, info.key)) is not None]
            doomed = [str(key) for key in keys if key.base_offset < kept_from]
            if doomed and not await self._deletes.delete(partition, doomed):
                return False
            if len(page) < _PAGE or (keys and keys[-1].base_offset >= kept_from):
                break
        return True

    async def _delete_orphans(self, partition: Partition) -> None:
        """Delete the leftovers of dead owners that the log has passed without using their keys."""
        view = partition.log
        passed = [key for key in partition.leftovers if key.base_offset < view.segments_end]
        doomed = []
        for key in passed:
            if key.base_offset < view.segments.through:
                # It was replaced by a rewritten object, or never belonged to the log.
                partition.unswept = True
                continue
            segment = view.segments.holding(key.base_offset)
            if segment is not None and segment.base_offset != key.base_offset:
                doomed.append(str(key))
        if not doomed or await self._deletes.delete(partition, doomed):
            partition.leftovers = [key for key in partition.leftovers if key not in passed]
