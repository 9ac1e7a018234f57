"""Whether the topics that offsets are committed for are still there.

Gateways translate names into topic ids by a view that may be old. So the coordinator asks the metadata store itself: at
most once in ``seconds`` for a topic whose offsets have its id already, and again before an offset of another id is
replaced. So an offset of a deleted topic never replaces one of the topic that has its name now.
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
    """What was seen is kept for the ``_MOST_TOPICS`` topics that were looked up last."""

    def __init__(self, store: MetadataStore, namespace: str, *, seconds: float) -> None:
        self._store = store
        self._namespace = namespace
        self._seconds = seconds
        self._seen: dict[bytes, float] = {}
        # Of groups with commits that look topics up, or wait for those before them.
        self._looking_up: dict[str, trio.Lock] = {}

    async def gone(
        self, request: OffsetCommitRequest, replaced: Callable[[], AbstractSet[Replaced]]
    ) -> AbstractSet[bytes]:
        """Topic ids of a commit that are not live; ``replaced`` says what it would replace at present.

        Commits of one group return in the order in which they came, so a slow look-up does not let a later commit take
        effect first. Raises Unavailable, Refused.
        """
        group = request.group
        if group not in self._looking_up and not self._unknown(request, replaced()):
            return frozenset()
        turn = self._looking_up.setdefault(group, trio.Lock())
        try:
            async with turn:
                looked_at = replaced()
                gone = await self._look_up(self._unknown(request, looked_at), trio.current_time())
                if not replaced() <= looked_at:
                    raise Unavailable(f"group {group} was loaded again while topics were looked up")
                return gone
        finally:
            if not turn.locked():
                self._looking_up.pop(group, None)

    def _unknown(self, request: OffsetCommitRequest, replaced: AbstractSet[Replaced]) -> dict[bytes, str]:
        """The names of the topics to look up, by their ids."""
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
        """``now``: when it began; a topic may be deleted while it is looked up."""
        gone: set[bytes] = set()
        items = list(names.items())
        for first in range(0, len(items), _READS_PER_TXN):
            some = items[first : first + _READS_PER_TXN]
            reads = [Get(paths.topic_key(self._namespace, name)) for _, name in some]
            result = await self._store.txn((), reads)
            for (topic_id, _), item in zip(some, result.reads, strict=True):
                if _is_live(item, topic_id):
                    self._note(topic_id, now)
                else:
                    self._seen.pop(topic_id, None)
                    gone.add(topic_id)
        return gone

    def _note(self, topic_id: bytes, now: float) -> None:
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
        # Whoever uses the topic says so; the offset is worth keeping until then.
        return True
    return topic.live and topic.id == topic_id
