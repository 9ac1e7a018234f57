"""The owner and leader epoch of every partition, as gateways see them: watches all epoch histories."""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Event, KeyValue, MetadataStore, Snapshot
from kafscale.v1.metadata_pb2 import EpochHistory

Key = tuple[bytes, int]
Listener = Callable[[Key, str], None]
"""Called with a partition and its topic's name, which the catalog may not know yet or no longer."""


@dataclass(frozen=True, slots=True)
class Owned:
    """``owner`` is the run that settled ``epoch``. `Members` knows whether it is still alive."""

    owner: str
    epoch: int
    revision: int


class OwnershipMap:
    """Owners by topic id and partition. `run` must be running."""

    def __init__(self, store: MetadataStore, namespace: str) -> None:
        self._store = store
        self._prefix = paths.epoch_histories_prefix(namespace)
        self._owned: dict[Key, Owned] = {}
        self._ids: dict[str, Key] = {}
        self._listeners: list[Listener] = []

    def get(self, topic_id: bytes, partition: int) -> Owned | None:
        """Return the partition's owner, or None if it never had one."""
        return self._owned.get((topic_id, partition))

    def owned_by(self, run_id: str) -> list[Key]:
        """Return the partitions whose last epoch this run has settled. Scans all partitions."""
        return [key for key, owned in self._owned.items() if owned.owner == run_id]

    def listen(self, changed: Listener) -> Callable[[], None]:
        """Call ``changed`` for each partition whose entry changes, until the returned function is called."""
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the map current until cancelled. Started after the first read; raises Refused only before that."""
        await follow(self._store, self._prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    def _reset(self, snapshot: Snapshot) -> None:
        before, self._owned = self._owned, {}
        named = {key: name for name, key in self._ids.items()}
        self._ids.clear()
        for item in snapshot.items:
            self._put(item)
        named |= {key: name for name, key in self._ids.items()}
        for key in before.keys() | self._owned.keys():
            if before.get(key) != self._owned.get(key):
                self._notify(key, named[key])

    def _apply(self, events: tuple[Event, ...]) -> None:
        for event in events:
            former = self._ids.pop(event.key, None)
            key = None if event.value is None else self._put(event.value)
            if former is not None and former != key:
                del self._owned[former]
                self._notify(former, event.key)
            if key is not None:
                self._notify(key, event.key)

    def _put(self, item: KeyValue) -> Key | None:
        named = paths.parse_partition(self._prefix, item.key)
        history = EpochHistory.FromString(item.value)
        if named is None or not history.entries:
            return None
        key = (history.topic_id, named[1])
        self._ids[item.key] = key
        self._owned[key] = Owned(history.owner, history.entries[-1].epoch, item.mod_revision)
        return key

    def _notify(self, key: Key, name: str) -> None:
        """Call the listeners. ``name`` is the partition's key in the store."""
        named = paths.parse_partition(self._prefix, name)
        for changed in list(self._listeners):
            changed(key, named[0] if named else "")
