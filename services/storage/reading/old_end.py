"""Determine where a log starts if its oldest objects were removed externally."""

from kafscale import paths
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from services.storage.log.partition import CommittedLog
from services.storage.reading.finder import Damaged
from services.storage.reading.reader import Reader


class OldEnd:
    """Treats objects as removed only if the bucket has this cluster's mark, because an endpoint may lead to an empty
    replica for a while."""

    def __init__(self, objects: ObjectStore, catalog: TopicCatalog, reader: Reader, namespace: str) -> None:
        self._objects = objects
        self._catalog = catalog
        self._reader = reader
        self._namespace = namespace

    async def start(self, view: CommittedLog) -> int:
        """Return the log start, or the base offset of the oldest listed segment of the log if no older one holds that.

        Holes in the middle of the log have no effect, nor have missing objects that a root names. Raises Damaged if the
        mark is missing too, Unavailable.
        """
        # Read the mark before and after the listing, so that both are of the same bucket.
        marked = await self._is_marked()
        start = await self._oldest_remaining(view)
        if start > view.log_start and not (marked and await self._is_marked()):
            raise Damaged("the oldest objects and this cluster's mark are missing from the object store")
        return start

    async def check_mark(self) -> None:
        """Raise Damaged if the object store does not have this cluster's mark. Raises Unavailable."""
        if not await self._is_marked():
            raise Damaged("this cluster's mark is missing from the object store")

    async def _oldest_remaining(self, view: CommittedLog) -> int:
        if view.log_start == view.segments_end or view.log_start < view.segments.through:
            return view.log_start
        oldest = await self._reader.finder.oldest(view)
        if oldest is None:
            return view.segments_end
        if oldest.base_offset > view.log_start:
            return oldest.base_offset
        # Segments below the log start may be left although the one that held it was removed.
        try:
            held = await self._reader.holding(view, view.log_start)
            if (await self._reader.parsed(view, held)).next_offset > view.log_start:
                return view.log_start
            following = await self._reader.finder.after(view, held)
        except Damaged:
            return view.log_start
        return view.segments_end if following is None else following.base_offset

    async def _is_marked(self) -> bool:
        """Return whether the object store has this cluster's mark. Raises Unavailable."""
        cluster = await self._catalog.cluster()
        try:
            mark = await self._objects.get(paths.cluster_mark_key(self._namespace))
        except ObjectNotFound:
            return False
        return mark.body == cluster.cluster_id.encode()
