"""Rewrite a range of a log: the objects that have its batches, or what compaction leaves of them."""

from typing import NamedTuple

from kafscale.records.batch import peek_one
from kafscale.records.checksum import Buffer
from kafscale.rewritten.object import BuiltObject, ObjectBuilder


class Rewritten(NamedTuple):
    """The log from ``start`` to ``end``. ``built`` is None if no batch is left in it."""

    start: int
    end: int
    built: BuiltObject | None


class Rewriter:
    """Builds consecutive objects that tile the range from ``start`` on, from its batches in order.

    ``epoch`` and ``attempt`` are those of the objects' keys. No object is larger than ``target_bytes`` unless it has a
    single batch.
    """

    def __init__(self, start: int, *, epoch: int, attempt: int, created_ms: int, target_bytes: int) -> None:
        self._start = start
        self._epoch = epoch
        self._attempt = attempt
        self._created_ms = created_ms
        self._target_bytes = target_bytes
        self._builder = self._begun()

    def add(self, batch: Buffer) -> Rewritten | None:
        """Add a batch. Return the part of the range that ends before it, if its object would become too large.

        The batch must not change until the part with it is returned. Raises CorruptObject, CorruptBatch.
        """
        complete = None
        if not self._builder.empty and self._builder.size + len(batch) > self._target_bytes:
            complete = self.finish(peek_one(batch).base_offset)
        self._builder.add(batch)
        return complete

    def finish(self, end: int) -> Rewritten:
        """Return the last part, which ends at ``end``. Raises CorruptObject if there are batches above it."""
        start, built = self._start, self._builder.finish(end)
        self._start = end
        self._builder = self._begun()
        return Rewritten(start, end, built)

    def _begun(self) -> ObjectBuilder:
        return ObjectBuilder(self._start, epoch=self._epoch, attempt=self._attempt, created_ms=self._created_ms)
