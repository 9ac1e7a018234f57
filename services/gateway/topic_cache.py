"""Caches values derived from topics, so that they need not be computed for each request."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.metadata.topic_values import TopicInfo, TopicsView
from kafscale.metadata.topics import TopicCatalog
from kafscale.topics.configs import TopicConfig
from kafscale.v1.common_pb2 import PartitionRef


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic with its effective configs and references to its partitions for calls to storage."""

    info: TopicInfo
    config: TopicConfig
    partitions: tuple[PartitionRef, ...]


class TopicCache:
    """Live topics by name and by id, as in the catalog's current view."""

    def __init__(self, catalog: TopicCatalog, defaults: Mapping[str, str]) -> None:
        """``defaults`` are the values of configs that a topic does not set."""
        self._catalog = catalog
        self._defaults = defaults
        self._view: TopicsView = catalog.view
        self._known: dict[bytes, KnownTopic] = {}

    def by_name(self, name: str) -> KnownTopic | None:
        info = self._current().live(name)
        return None if info is None else self._known_topic(info)

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        info = self._current().live_by_id(topic_id)
        return None if info is None else self._known_topic(info)

    def find(self, name: str, topic_id: bytes) -> KnownTopic | None:
        """Find a topic by ``topic_id``, or by ``name`` if ``topic_id`` is empty."""
        return self.by_id(topic_id) if topic_id else self.by_name(name)

    def _current(self) -> TopicsView:
        view = self._catalog.view
        if view is not self._view:
            self._view = view
            self._known = {key: known for key, known in self._known.items() if view.by_id.get(key) is known.info}
        return view

    def _known_topic(self, info: TopicInfo) -> KnownTopic:
        known = self._known.get(info.id)
        if known is None:
            partitions = tuple(
                PartitionRef(topic=info.name, topic_id=info.id, partition=index) for index in range(info.partitions)
            )
            known = self._known[info.id] = KnownTopic(info, TopicConfig.of(info.configs, self._defaults), partitions)
        return known
