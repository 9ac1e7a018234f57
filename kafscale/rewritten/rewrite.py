"""Rewrite a range of a log: the objects that have its batches, or what compaction leaves of them."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kafscale.records.batch import peek_one
from kafscale.records.checksum import Buffer
from kafscale.rewritten.object import BuiltObject, ObjectBuilder


class Rewritten(NamedTuple):
    """The log from ``start`` to ``end``. ``built`` is None if no batch is left in it."""

    start: int
    end: int
    built: BuiltObject | None


def rewrite(
    batches: Iterable[Buffer],
    start: int,
    end: int,
    *,
    clean: Callable[[Buffer], Buffer | None] = lambda batch: batch,
    epoch: int,
    attempt: int,
    created_ms: int,
    target_bytes: int,
) -> Iterator[Rewritten]:
    """Yield consecutive parts that tile the range from ``start`` to ``end``, whose ``batches`` are in order.

    ``clean`` returns what stays of a batch. No object is larger than ``target_bytes`` unless it has a single batch. An
    object's batches must not change until it is yielded. Raises CorruptObject, CorruptBatch, and what ``clean`` raises.
    """

    def begun() -> ObjectBuilder:
        return ObjectBuilder(start, epoch=epoch, attempt=attempt, created_ms=created_ms)

    builder = begun()
    for batch in batches:
        stays = clean(batch)
        if stays is None:
            continue
        if not builder.empty and builder.size + len(stays) > target_bytes:
            cut = peek_one(stays).base_offset
            yield Rewritten(start, cut, builder.finish(cut))
            start = cut
            builder = begun()
        builder.add(stays)
    yield Rewritten(start, end, builder.finish(end))
