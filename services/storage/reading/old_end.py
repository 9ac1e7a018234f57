"""Where a log starts by the objects that there are, when somebody else has removed the oldest ones."""

from kafscale import paths
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from services.storage.log.partition import CommittedLog
from services.storage.reading.finder import Damaged, SegmentFinder


class OldEnd:
    """Believes that objects are gone only where the bucket has this cluster's mark: an endpoint may lead to an empty
    replica for a while."""

    def __init__(self, objects: ObjectStore, catalog: TopicCatalog, finder: SegmentFinder, namespace: str) -> None:
        self._objects = objects
        self._catalog = catalog
        self._finder = finder
        self._namespace = namespace

    async def start(self, view: CommittedLog) -> int:
        """The base of the oldest segment that a listing shows, or the log start where that is higher.

        A hole in the middle of the log moves nothing. Raises Damaged where the mark is missing too, Unavailable.
        """
        # The mark is read before and after, so that it is of the bucket that is listed in between.
        marked = await self._is_marked()
        start = await self._oldest_left(view)
        if start > view.log_start and not (marked and await self._is_marked()):
            raise Damaged("the object store has neither the oldest objects nor this cluster's mark")
        return start

    async def check_mark(self) -> None:
        """Raises Damaged where what answers for the object store has not this cluster's mark, Unavailable."""
        if not await self._is_marked():
            raise Damaged("the object store has not this cluster's mark")

    async def _oldest_left(self, view: CommittedLog) -> int:
        if view.log_start == view.high_watermark:
            return view.log_start
        first = await self._finder.oldest(view)
        if first is None:
            return view.high_watermark
        return max(view.log_start, first.base_offset)

    async def _is_marked(self) -> bool:
        """Whether what answers for the object store now has this cluster's objects. Raises Unavailable."""
        cluster = await self._catalog.cluster()
        try:
            mark = await self._objects.get(paths.cluster_mark_key(self._namespace))
        except ObjectNotFound:
            return False
        return mark.body == cluster.cluster_id.encode()
