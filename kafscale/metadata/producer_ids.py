"""Unique producer ids, allocated from a counter in the metadata store, a block at a time."""

import trio

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.metadata.interface import MetadataStore, Put, Unchanged
from kafscale.v1.metadata_pb2 import ProducerIds as Counter

_BLOCK = 1000
_FORMAT = 1


class ProducerIds:
    """Allocates producer ids; one instance per process. A block with an unknown outcome is lost, out of 2**63 ids."""

    def __init__(self, store: MetadataStore, namespace: str) -> None:
        self._store = store
        self._key = paths.producer_ids_key(namespace)
        self._next = self._end = 0
        self._lock = trio.Lock()

    async def take(self) -> int:
        """Return a new id, 0 or higher. Raises Unavailable."""
        async with self._lock:
            while self._next == self._end:
                await self._take_block()
            self._next += 1
            return self._next - 1

    async def _take_block(self) -> None:
        item = await self._store.get(self._key)
        counter = Counter.FromString(item.value) if item else Counter(format=_FORMAT)
        if counter.format != _FORMAT:
            raise CorruptData(f"{self._key}: format {counter.format}, expected {_FORMAT}")
        first = counter.next
        counter.next = first + _BLOCK
        compare = Unchanged(self._key, item.mod_revision if item else 0)
        if (await self._store.txn([compare], [Put(self._key, counter.SerializeToString())])).succeeded:
            self._next, self._end = first, first + _BLOCK
