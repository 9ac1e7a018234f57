"""Checks that topics still exist when offsets are committed for them.

Gateways translate names into topic ids by a view that may be out of date, so the coordinator reads the topics from the
metadata store. It does so at most once in ``seconds`` for a topic whose id its offsets already have, and always before
an offset with another topic id is replaced. An offset of a deleted topic therefore never replaces one of the new topic
of the same name.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import trio

from kafscale import paths
from kafscale.errors import CorruptData, Unavailable
from kafscale.metadata.interface import Get, KeyValue, MetadataStore
from kafscale.metadata.topic_values import TopicInfo
from kafscale.v1.coordinator_pb2 import OffsetCommitRequest
from services.coordinator.offsets import Replaced

_MOST_TOPICS = 10_000
_READS_PER_TXN = 128


class LiveTopics:
    """Looks up topics, and caches the ``_MOST_TOPICS`` live topics that were looked up last."""

    def __init__(self, store: MetadataStore, namespace: str, *, seconds: float) -> None:
        self._store = store
        self._namespace = namespace
        self._seconds = seconds
        self._seen: dict[bytes, float] = {}
        # Locks of the groups with commits that look topics up, or wait for earlier ones.
        self._looking_up: dict[str, trio.Lock] = {}

    async def gone(
        self, request: OffsetCommitRequest, replaced: Callable[[], AbstractSet[Replaced]]
    ) -> AbstractSet[bytes]:
        """Return a commit's topic ids that are not live. ``replaced`` returns the offsets it would replace now.

        Commits of one group return in the order of their arrival, so that a later commit cannot overtake one with a
        slow look-up. Raises Unavailable, Refused.
        """
        group = request.group
        if group not in self._looking_up and not self._unknown(request, replaced()):
            return frozenset()
        turn = self._looking_up.setdefault(group, trio.Lock())
        try:
            async with turn:
                before = replaced()
                gone = await self._look_up(self._unknown(request, before), trio.current_time())
                if not replaced() <= before:
                    raise Unavailable(f"group {group} was loaded again while topics were looked up")
                return gone
        finally:
            if not turn.locked():
                self._looking_up.pop(group, None)

    def _unknown(self, request: OffsetCommitRequest, replaced: AbstractSet[Replaced]) -> dict[bytes, str]:
        """Return the names of the topics to look up, by topic id."""
        names = {each.topic_id: each.topic for each in request.offsets if each.topic_id}
        places = {(each.topic, each.partition) for each in replaced}
        replacing = {each.topic_id for each in request.offsets if (each.topic, each.partition) in places}
        old = trio.current_time() - self._seconds
        return {
            topic_id: name
            for topic_id, name in names.items()
            if topic_id in replacing or self._seen.get(topic_id, -self._seconds) <= old
        }

    async def _look_up(self, names: dict[bytes, str], now: float) -> set[bytes]:
        """Return the ids of ``names`` that are not live. ``now`` is the start: topics may be deleted during it."""
        gone: set[bytes] = set()
        items = list(names.items())
        for first in range(0, len(items), _READS_PER_TXN):
            chunk = items[first : first + _READS_PER_TXN]
            reads = [Get(paths.topic_key(self._namespace, name)) for _, name in chunk]
            result = await self._store.txn((), reads)
            for (topic_id, _), item in zip(chunk, result.reads, strict=True):
                if _is_live(item, topic_id):
                    self._remember(topic_id, now)
                else:
                    self._seen.pop(topic_id, None)
                    gone.add(topic_id)
        return gone

    def _remember(self, topic_id: bytes, now: float) -> None:
        self._seen.pop(topic_id, None)
        self._seen[topic_id] = now
        if len(self._seen) > _MOST_TOPICS:
            del self._seen[next(iter(self._seen))]


def _is_live(item: KeyValue | None, topic_id: bytes) -> bool:
    if item is None:
        return False
    try:
        topic = TopicInfo.read(item)
    except CorruptData:
        # Users of the topic report the damage. Keep the offset.
        return True
    return topic.live and topic.id == topic_id
