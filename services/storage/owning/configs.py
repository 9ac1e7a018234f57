"""Apply changed topic configs to the partitions that this run owns."""

from collections.abc import Callable, Iterator

from kafscale.metadata.topic_values import TopicInfo, TopicsView
from kafscale.metadata.topics import TopicCatalog
from services.storage.log.partition import Partition
from services.storage.owning.owned import OwnedPartitions


class TopicConfigs:
    """Follows the topic catalog while `run` is running. Calls ``changed`` with each partition whose configs changed."""

    def __init__(self, catalog: TopicCatalog, owned: OwnedPartitions, changed: Callable[[Partition], None]) -> None:
        self._catalog = catalog
        self._owned = owned
        self._changed = changed

    def apply(self, partition: Partition) -> None:
        topic = self._catalog.view.live_by_id(partition.topic.id)
        if topic is not None and self._owned.configure(partition, topic.configs):
            self._changed(partition)

    async def run(self) -> None:
        before, view = TopicsView.of(0, ()), self._catalog.view
        while True:
            for topic in _other_configs(before, view):
                for index in range(topic.partitions):
                    partition = self._owned.get((topic.id, index))
                    if partition is not None:
                        self.apply(partition)
            before, view = view, await self._catalog.wait_change(view)


def _other_configs(before: TopicsView, view: TopicsView) -> Iterator[TopicInfo]:
    """Yield the topics of ``view`` whose configs differ from ``before``, so that a change does not touch all topics."""
    for topic in view.by_id.values():
        known = before.by_id.get(topic.id)
        if known is not topic and (known is None or known.configs != topic.configs):
            yield topic
