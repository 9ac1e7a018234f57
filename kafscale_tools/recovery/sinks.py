"""Rebuilds the records of sinks from their manifests and stages, and from the logs.

A manifest is stored before its epoch is committed, and deleted with the stages once every log has all records of the
epoch. Therefore the highest epoch of a sink that is complete in the bucket is applied to all logs. A driver that
learned of its commit can rely on it, and one that did not commits it again and learns that it exists. How much of it
each log already has is determined by comparing batches, whose contents are the same in stage and log, although offsets,
times and compression differ.

Compaction changes batches. It does not begin while a log has only a part of an epoch. So if a log was compacted since
the manifest was stored, the batches of the epoch are all in the compacted part, or all above it. If none is above it,
nothing shows whether the log has the epoch. Then it is not appended, because old values would become the latest.
"""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.objects.interface import MAX_KEYS, ObjectNotFound, ObjectStore
from kafscale.paths import StageKey
from kafscale.records.batch import HEADER_SIZE, BatchHeader, walk
from kafscale.records.checksum import Buffer, crc32c
from kafscale.records.codecs import decompress
from kafscale.rewritten.keys import RewrittenKey
from kafscale.rewritten.object import parse_object
from kafscale.segment.reader import ParsedSegment, parse_segment
from kafscale.v1.metadata_pb2 import Sink, SinkManifest, SinkProgress
from kafscale_tools.recovery.backup_format import Item
from kafscale_tools.recovery.rebuild import LogFound, Rebuilt
from services.storage.sinks.records import FORMAT, fingerprint

_SLACK_MS = 600_000
"""Segments older than the manifest by more than this are not searched. Clocks of instances differ by less."""
_MOST_BATCH_BYTES = 256 * 1024 * 1024

Print = tuple[int, int, int, int]


@dataclass(slots=True)
class SinksFound:
    """The rebuilt sinks.

    ``records`` has the sink records by name. ``progress`` has, by topic id and partition, how much of incomplete epochs
    a log already contains.
    """

    records: dict[str, Sink] = field(default_factory=dict)
    progress: dict[tuple[bytes, int], list[SinkProgress]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A manifest whose stages all exist."""

    key: str
    parsed: StageKey
    body: bytes
    manifest: SinkManifest


async def read_sinks(items: AsyncGenerator[Item, None]) -> dict[str, Sink]:
    """Read the sink records of a snapshot. Raises CorruptData."""
    found: dict[str, Sink] = {}
    async with aclosing(items):
        async for item in items:
            if item.key.startswith("sinks/"):
                try:
                    record = Sink.FromString(item.value)
                except DecodeError as error:
                    raise CorruptData(f"metadata key {item.key} cannot be decoded") from error
                found[record.sink] = record
    return found


async def rebuild_sinks(objects: ObjectStore, namespace: str, known: dict[str, Sink], rebuilt: Rebuilt) -> SinksFound:
    """Rebuild all sinks. ``known`` are those of the snapshot. Adds unreadable objects to the faults of ``rebuilt``.

    Raises Unavailable, Refused.
    """
    found = SinksFound()
    logs = {(topic.info.id, log.partition): (topic.info.name, log) for topic in rebuilt.topics for log in topic.logs}
    candidates = await _candidates(objects, namespace, known)
    for sink in sorted(known.keys() | candidates.keys()):
        before = known.get(sink, Sink(format=FORMAT, sink=sink, epoch=-1))
        newest = max((one.parsed.epoch for one in candidates.get(sink, [])), default=-1)
        among = [one for one in candidates.get(sink, []) if one.parsed.epoch == newest]
        if newest < before.epoch or (newest == before.epoch and not before.remaining) or not among:
            # Stages of a committed epoch are deleted once every log has it, so this epoch is complete.
            record = Sink()
            record.CopyFrom(before)
            del record.remaining[:]
            found.records[sink] = record
            continue
        reached = [(one, await _reached(objects, namespace, one, logs, rebuilt.faults)) for one in among]
        # Of several attempts at an epoch, the committed one is in the snapshot or in a log.
        chosen, batches = max(
            reached, key=lambda each: (each[0].key == before.manifest, sum(each[1].values()), each[0].parsed.created_ms)
        )
        _note(found, before, chosen, batches)
    return found


def _note(found: SinksFound, before: Sink, chosen: _Candidate, batches: dict[tuple[bytes, int], int]) -> None:
    same = chosen.key == before.manifest
    record = Sink(
        format=FORMAT,
        sink=chosen.parsed.sink,
        epoch=chosen.parsed.epoch,
        manifest=chosen.key,
        manifest_size=len(chosen.body),
        manifest_crc=crc32c(chosen.body),
        committed_ms=before.committed_ms if same else chosen.parsed.created_ms,
        once=before.once,
        discarded=[one for one in before.discarded if one.epoch > chosen.parsed.epoch],
    )
    for part in chosen.manifest.partitions:
        key = part.partition.topic_id, part.partition.partition
        total = sum(stage.batches for stage in part.stages)
        if key not in batches or batches[key] == total:
            continue
        record.remaining.append(part.partition)
        if batches[key]:
            found.progress.setdefault(key, []).append(
                SinkProgress(
                    sink=record.sink, epoch=record.epoch, batches=batches[key], committed_ms=record.committed_ms
                )
            )
    found.records[record.sink] = record


async def _candidates(objects: ObjectStore, namespace: str, known: dict[str, Sink]) -> dict[str, list[_Candidate]]:
    """Return, by sink, the manifests whose stages all exist and were not discarded."""
    sizes: dict[str, int] = {}
    after, page = "", [None] * MAX_KEYS
    while len(page) == MAX_KEYS:
        listed = await objects.list_from(paths.stages_prefix(namespace), after, MAX_KEYS)
        sizes |= {info.key: info.size for info in listed}
        after, page = (listed[-1].key if listed else after), [None] * len(listed)
    found: dict[str, list[_Candidate]] = {}
    for key in sizes:
        parsed = paths.parse_stage_key(key)
        if parsed is None or not parsed.manifest:
            continue
        try:
            body = (await objects.get(key)).body
            manifest = SinkManifest.FromString(body)
        except (ObjectNotFound, DecodeError):
            continue
        stages = [stage for part in manifest.partitions for stage in part.stages]
        before = known.get(parsed.sink)
        discards = before.discarded if before is not None else ()
        gone = {mark for one in discards if one.epoch == parsed.epoch for mark in one.stages}
        whole = all(sizes.get(stage.key) == stage.size for stage in stages)
        if manifest.format == FORMAT and whole and not any(fingerprint(stage.key) in gone for stage in stages):
            found.setdefault(parsed.sink, []).append(_Candidate(key, parsed, body, manifest))
    return found


async def _reached(
    objects: ObjectStore,
    namespace: str,
    candidate: _Candidate,
    logs: dict[tuple[bytes, int], tuple[str, LogFound]],
    faults: list[str],
) -> dict[tuple[bytes, int], int]:
    """Return how many batches of each partition are in its log, without partitions of deleted topics.

    Batches of unreadable stages do not count. Damaged objects are added to ``faults``.
    """
    reached: dict[tuple[bytes, int], int] = {}
    since = candidate.parsed.created_ms - _SLACK_MS
    for part in candidate.manifest.partitions:
        key = part.partition.topic_id, part.partition.partition
        if key not in logs:
            continue
        name, log = logs[key]
        expected: list[Print] = []
        for stage in part.stages:
            try:
                body = (await objects.get(stage.key)).body
                if crc32c(body) != stage.crc:
                    raise CorruptData("the stage's checksum is wrong")
                expected += prints(body)
            except (CorruptData, ObjectNotFound) as error:
                _note_fault(faults, stage.key, error)
        found = _prints_since(objects, namespace, name, log, since=since, faults=faults)
        reached[key] = await _in_order(found, log, expected)
        if expected and not reached[key] and _compacted_since(log, since):
            reached[key] = sum(stage.batches for stage in part.stages)
            faults.append(
                f"{name}-{log.partition}: the log was compacted after epoch {candidate.parsed.epoch} of sink "
                f"{candidate.parsed.sink} was committed, and may lack the epoch's records: they are not appended again"
            )
    return reached


def _compacted_since(log: LogFound, since: int) -> bool:
    """Return whether a part of the log was compacted at ``since`` (ms since 1970) or later."""
    part = log.rewritten
    return part is not None and any(
        one.base_offset < part.compacted_below and one.created_ms >= since for one in part.objects
    )


async def _prints_since(
    objects: ObjectStore, namespace: str, topic: str, log: LogFound, *, since: int, faults: list[str]
) -> AsyncGenerator[list[Print], None]:
    """Yield the prints of each object that was created at ``since`` or later, in order, except of compacted ones.

    Damaged objects are added to ``faults``.
    """
    for key, parse in _objects_since(namespace, topic, log, since):
        try:
            parsed = parse((await objects.get(key)).body)
            found = prints(memoryview(parsed.data)[parsed.positions[0] : parsed.ends[-1]])
        except (CorruptData, ObjectNotFound) as error:
            _note_fault(faults, key, error)
            continue
        yield found


def _objects_since(
    namespace: str, topic: str, log: LogFound, since: int
) -> Iterator[tuple[str, Callable[[Buffer], ParsedSegment]]]:
    part = log.rewritten
    for entry in part.objects if part is not None else ():
        if part is not None and entry.created_ms >= since and entry.base_offset >= part.compacted_below:
            yield str(RewrittenKey.of(entry, namespace, topic, log.partition)), partial(parse_object, entry)
    for segment in log.chain.segments:
        if segment.created_ms >= since:
            yield paths.segment_key(namespace, topic, log.partition, segment.base), parse_segment


def _note_fault(faults: list[str], key: str, error: Exception) -> None:
    """Add a fault, unless another sink has reported it."""
    fault = f"object {key}: {error}"
    if fault not in faults:
        faults.append(fault)


async def _in_order(found: AsyncGenerator[list[Print], None], log: LogFound, expected: list[Print]) -> int:
    """Return how many of ``expected`` the objects, and then the intake, have in this order, among other batches."""
    reached = 0
    async with aclosing(found):
        # No object need be read when all are found.
        while reached < len(expected) and (of_object := await anext(found, None)) is not None:
            reached = _advanced(reached, of_object, expected)
    for _, batch in log.tail.tail.batches if log.tail is not None else ():
        reached = _advanced(reached, prints(batch), expected)
    return reached


def _advanced(reached: int, found: list[Print], expected: list[Print]) -> int:
    for each in found:
        if reached < len(expected) and each == expected[reached]:
            reached += 1
    return reached


def prints(batches: Buffer) -> list[Print]:
    """Return, for each batch, what does not change between stage and log. Raises CorruptData."""
    view = memoryview(batches)
    return [_print(header, view[position : position + header.size]) for position, header in walk(view)]


def _print(header: BatchHeader, batch: memoryview) -> Print:
    records = decompress(header.codec, batch[HEADER_SIZE:], _MOST_BATCH_BYTES)
    return header.record_count, header.base_timestamp, len(records), crc32c(records)
