"""What a pass of compaction must know of transactions (Kafka's ``CleanedTransactionMetadata``).

Aborted records are removed, and no longer count as the last ones of their keys. A marker goes after all records of its
transaction: a pass that finds none of them sets the marker's delete horizon.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from kafscale.records.batch import BatchHeader


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its records are at ``first_offset`` and up to its marker at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int


class Transactions:
    """The transactions of the batches of a log, which must be read in the order of their offsets.

    ``aborted``: the aborted transactions of these batches. ``from_start``: whether the first batch is the first of the
    log. Otherwise records of a transaction may be in earlier batches, and all markers stay, so one instance must see
    all batches of a pass.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] = (), *, from_start: bool = True) -> None:
        self._coming = deque(sorted(aborted, key=lambda one: one.first_offset))
        self._from_start = from_start
        # The last aborted transaction of each producer that has begun.
        self._aborted: dict[int, AbortedTransaction] = {}
        # The producers of which batches of a transaction without a marker yet were found.
        self._found: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the batch is part of an aborted transaction. It is not a control batch."""
        if not header.is_transactional:
            return False
        self._found.add(header.producer_id)
        while self._coming and self._coming[0].first_offset <= header.base_offset:
            begun = self._coming.popleft()
            self._aborted[begun.producer_id] = begun
        last = self._aborted.get(header.producer_id)
        return last is not None and header.base_offset <= last.last_offset

    def is_needless(self, marker: BatchHeader) -> bool:
        """Return whether a marker ends a transaction of which no batches are left."""
        found = marker.producer_id in self._found
        self._found.discard(marker.producer_id)
        return self._from_start and not found
