"""What the object store has of a partition that is taken over, and whether the metadata store was rolled back since."""

from typing import NamedTuple

import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.rewritten.keys import RootKey, parse_rewritten_key, roots_prefix
from kafscale.segment.format import FOOTER_SIZE, HEADER_SIZE, SegmentFooter, SegmentHeader
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.log.partition import is_earlier_topics
from services.storage.log.rewritten import RewrittenLog
from services.storage.reading.roots import read_rewritten
from services.storage.settings import MOST_FLUSHES_IN_FLIGHT

_PAGE = 1000


class Stored(NamedTuple):
    """``above``: segments and indexes from the end of the segments on, in order, with their sizes; one page of them.

    ``roots``: all roots. ``rewritten``: the part of the log that was rewritten.
    """

    above: list[tuple[paths.SegmentKey, int]]
    roots: list[RootKey]
    rewritten: RewrittenLog | None


async def read_stored(objects: ObjectStore, *, namespace: str, ref: PartitionRef, state: PartitionState) -> Stored:
    """Raises Unavailable, Refused."""
    above: list[tuple[paths.SegmentKey, int]] = []
    roots: list[RootKey] = []
    failures: list[KafscaleError] = []

    async def list_above() -> None:
        try:
            above.extend(await _above_high_watermark(objects, namespace=namespace, ref=ref, state=state))
        except KafscaleError as error:
            failures.append(error)

    async def list_roots() -> None:
        try:
            roots.extend(await _roots(objects, namespace, ref))
        except KafscaleError as error:
            failures.append(error)

    # At the same time, because clients wait for a take-over.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(list_above)
        nursery.start_soon(list_roots)
    if failures:
        raise failures[0]
    return Stored(above, roots, await read_rewritten(objects, namespace, ref, state))


async def contradiction(
    objects: ObjectStore, stored: Stored, *, state: PartitionState, settled_epoch: int, floor: int
) -> str | None:
    """Return why the metadata must be older than the objects, or None. Raises Unavailable, Refused.

    ``settled_epoch``: the last epoch that may have stored objects. ``floor``: the epoch floor of the topic.
    """
    why = _unknown_root(stored.roots, state, settled_epoch, floor)
    if why is None:
        why = await _rolled_back(objects, stored.above, state, settled_epoch, floor)
        if why is not None:
            # Headers have no checksum, and one bad read must not take the partition offline.
            why = await _rolled_back(objects, stored.above, state, settled_epoch, floor)
    return why


async def _above_high_watermark(
    objects: ObjectStore, *, namespace: str, ref: PartitionRef, state: PartitionState
) -> list[tuple[paths.SegmentKey, int]]:
    """Return the first page of keys from the high watermark on, in order, with their sizes."""
    prefix = paths.partition_prefix(namespace, ref.topic, ref.partition)
    end = state.high_watermark
    start_after = paths.segment_key(namespace, ref.topic, ref.partition, end - 1) if end else ""
    listed = [
        (paths.parse_segment_key_in(prefix, info.key), info.size)
        for info in await objects.list_from(prefix, start_after, 1000)
    ]
    return [(key, size) for key, size in listed if key is not None and key.base_offset >= end]


async def _roots(objects: ObjectStore, namespace: str, ref: PartitionRef) -> list[RootKey]:
    found: list[RootKey] = []
    after = ""
    while page := await objects.list_from(roots_prefix(namespace, ref.topic, ref.partition), after, _PAGE):
        after = page[-1].key
        keys = [key for info in page if isinstance(key := parse_rewritten_key(info.key), RootKey)]
        # The prefix of another cluster may begin with this one.
        found += [key for key in keys if (key.namespace, key.topic) == (namespace, ref.topic)]
        if len(page) < _PAGE:
            break
    return found


def _unknown_root(roots: list[RootKey], state: PartitionState, settled_epoch: int, floor: int) -> str | None:
    """Return why the metadata must be older than the roots, or None.

    The root that follows that of the state may be a dead owner's, which did not commit it. What a root replaces is
    deleted only after the root that follows it was committed, so the state's root is still whole then.
    """
    for key in roots:
        if is_earlier_topics(key.epoch, floor):
            continue
        if key.epoch > settled_epoch or key.epoch >= state.epoch:
            return f"root {key} has epoch {key.epoch}, the metadata only {min(settled_epoch, state.epoch - 1)}"
        if key.number > state.root.number + 1:
            return f"root {key} was committed, but the metadata has number {state.root.number}"
    return None


async def _rolled_back(
    objects: ObjectStore,
    found: list[tuple[paths.SegmentKey, int]],
    state: PartitionState,
    settled_epoch: int,
    floor: int,
) -> str | None:
    """Return why the metadata must be older than the objects, or None if those above its end are a dead owner's.

    Repeated take-overs do not change the result: they raise the epoch of the state, but settle none.
    """
    end = state.high_watermark
    expected, chained, epoch = end, 0, -1
    for key, size in found:
        if key.kind != "kfs":
            continue
        try:
            header = SegmentHeader.parse(await objects.get_range(str(key), 0, HEADER_SIZE))
            if is_earlier_topics(header.epoch, floor):
                continue
            footer = SegmentFooter.parse(await objects.get_range(str(key), size - FOOTER_SIZE, FOOTER_SIZE))
        except (CorruptData, ObjectNotFound):
            continue
        if header.epoch > settled_epoch or header.epoch >= state.epoch:
            return f"object {key} has epoch {header.epoch}, the metadata only {min(settled_epoch, state.epoch - 1)}"
        if key.base_offset == expected:
            # Each dead owner may have left as many segments as it can have in flight.
            expected, chained, epoch = footer.last_offset + 1, chained + 1 if header.epoch == epoch else 1, header.epoch
        if chained > MOST_FLUSHES_IN_FLIGHT:
            return f"more than {MOST_FLUSHES_IN_FLIGHT} whole segments of one epoch follow the high watermark {end}"
    return None
