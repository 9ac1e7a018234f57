"""Who owns which partition at which leader epoch, as gateways see it: all epoch histories, watched."""

from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Event, KeyValue, MetadataStore, Snapshot
from kafscale.v1.metadata_pb2 import EpochHistory


@dataclass(frozen=True, slots=True)
class Owned:
    """``owner``: the run that settled ``epoch``; whether it is still there, `Members` knows."""

    owner: str
    epoch: int
    revision: int


class OwnershipMap:
    """By topic id and partition. `run` must be running."""

    def __init__(self, store: MetadataStore, namespace: str) -> None:
        self._store = store
        self._prefix = paths.epoch_histories_prefix(namespace)
        self._owned: dict[tuple[bytes, int], Owned] = {}
        self._ids: dict[str, tuple[bytes, int]] = {}

    def get(self, topic_id: bytes, partition: int) -> Owned | None:
        """None: the partition never had an owner."""
        return self._owned.get((topic_id, partition))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the map until cancelled; started when it was read once. Raises Unavailable only before that."""
        await follow(self._store, self._prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    def _reset(self, snapshot: Snapshot) -> None:
        self._owned.clear()
        self._ids.clear()
        for item in snapshot.items:
            self._put(item)

    def _apply(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if event.value is not None:
                self._put(event.value)
            elif (key := self._ids.pop(event.key, None)) is not None:
                self._owned.pop(key, None)

    def _put(self, item: KeyValue) -> None:
        named = paths.parse_partition(self._prefix, item.key)
        history = EpochHistory.FromString(item.value)
        if named is None or not history.entries:
            return
        former = self._ids.get(item.key)
        key = (history.topic_id, named[1])
        if former is not None and former != key:
            self._owned.pop(former, None)
        self._ids[item.key] = key
        self._owned[key] = Owned(history.owner, history.entries[-1].epoch, item.mod_revision)
