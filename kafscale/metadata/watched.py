"""Values below a prefix of the metadata store: a watched view for reads, and changes that are seen in it."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import trio

from kafscale.metadata.follow import follow
from kafscale.metadata.interface import Delete, Event, KeyValue, MetadataStore, Put, Snapshot, Unchanged

Value = TypeVar("Value")
_AT_ONCE = 100
"""Keys in one transaction. etcd allows 128 by default."""


class WatchedValues(Generic[Value]):
    """All values below ``prefix``. `run` must be running, because a change returns only when it is in the view.

    ``decode`` reads a value and raises CorruptData; ``encode`` writes it. ``show`` is called with all values by key
    after each change of the view.
    """

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        *,
        decode: Callable[[KeyValue], Value],
        encode: Callable[[Value], bytes],
        show: Callable[[Mapping[str, Value]], None],
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._decode = decode
        self._encode = encode
        self._on_change = show
        self._values: dict[str, Value] = {}
        self._revision = 0
        self._changed = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the view current until cancelled. Started after the first read; raises Refused only before that."""
        await follow(self._store, self._prefix, reset=self._reset, apply=self._apply, task_status=task_status)

    async def change(self, key: str, change: Callable[[Value | None], Value | None]) -> None:
        """Change the value of a key. None stands for no value.

        ``change`` may be called several times. Raises its errors, Unavailable and Refused.
        """
        while True:
            item = await self._store.get(key)
            before = None if item is None else self._decode(item)
            after = change(before)
            if after == before:
                return
            operation = Delete(key) if after is None else Put(key, self._encode(after))
            result = await self._store.txn([Unchanged(key, item.mod_revision if item else 0)], [operation])
            if result.succeeded:
                await self._seen(result.revision, key, after)
                return

    async def replace(self, values: Mapping[str, Value | None]) -> None:
        """Set the values of keys, whatever they are now; None deletes one.

        There is a transaction for each 100 keys. Raises Unavailable and Refused; some values may be set then.
        """
        items = list(values.items())
        for first in range(0, len(items), _AT_ONCE):
            some = items[first : first + _AT_ONCE]
            operations = [Delete(key) if value is None else Put(key, self._encode(value)) for key, value in some]
            result = await self._store.txn([], operations)
            for key, value in some:
                await self._seen(result.revision, key, value)

    async def _seen(self, revision: int, key: str, value: Value | None) -> None:
        """Wait until the view is as new as a change."""
        while self._revision < revision and self._values.get(key) != value:
            await self._changed.wait()

    def _reset(self, snapshot: Snapshot) -> None:
        self._show({item.key: self._decode(item) for item in snapshot.items}, snapshot.revision)

    def _apply(self, events: tuple[Event, ...]) -> None:
        values = dict(self._values)
        for event in events:
            values.pop(event.key, None)
            if event.value is not None:
                values[event.key] = self._decode(event.value)
        self._show(values, events[-1].revision)

    def _show(self, values: dict[str, Value], revision: int) -> None:
        self._values, self._revision = values, revision
        self._on_change(values)
        changed, self._changed = self._changed, trio.Event()
        changed.set()
