"""Lets the configs of topics count for the partitions that this run owns, as soon as they change."""

from collections.abc import Callable

from kafscale.metadata.topics import TopicCatalog
from services.storage.owned import OwnedPartitions
from services.storage.partition import Partition


class TopicConfigs:
    """`run` must be running. ``changed`` is called with each partition whose configs are not what they were."""

    def __init__(self, catalog: TopicCatalog, owned: OwnedPartitions, changed: Callable[[Partition], None]) -> None:
        self._catalog = catalog
        self._owned = owned
        self._changed = changed

    def apply(self, partition: Partition) -> None:
        topic = self._catalog.view.live_by_id(partition.topic.id)
        if topic is not None and self._owned.configure(partition, topic.configs):
            self._changed(partition)

    async def run(self) -> None:
        view = self._catalog.view
        while True:
            for partition in self._owned:
                self.apply(partition)
            view = await self._catalog.wait_change(view)
