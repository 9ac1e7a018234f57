"""What becomes of epochs of sinks whose records are lost: told from their manifests and stages, and from the logs.

A manifest is stored before its epoch is committed, and deleted with the stages when every log has all of it. So of the
highest epoch of a sink that is whole in the bucket all records go into the logs: whoever was told that it is committed
can rely on that, and who was not commits it again and learns that it is there. How far each log has it is found by its
batches: what they hold is the same in the stage and in the log, whatever their offsets, times and compression.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from kafscale import paths
from kafscale.errors import CorruptData
from kafscale.objects.interface import MAX_KEYS, ObjectNotFound, ObjectStore
from kafscale.paths import StageKey
from kafscale.records.batch import HEADER_SIZE, BatchHeader, walk
from kafscale.records.checksum import Buffer, crc32c
from kafscale.records.codecs import decompress
from kafscale.segment.reader import parse_segment
from kafscale.v1.metadata_pb2 import Sink, SinkManifest, SinkProgress
from kafscale_tools.recovery.backup_format import Item
from kafscale_tools.recovery.rebuild import LogFound, Rebuilt
from services.storage.sinks.records import FORMAT, fingerprint

_SLACK_MS = 600_000
"""So much earlier than the manifest nothing is looked for: instances' clocks may differ, and none by that."""
_MOST_BATCH_BYTES = 256 * 1024 * 1024

Print = tuple[int, int, int, int]


@dataclass(slots=True)
class SinksFound:
    """Records by the sink's name; by topic id and partition, how far the log is with epochs that it lacks a part of."""

    records: dict[str, Sink] = field(default_factory=dict)
    progress: dict[tuple[bytes, int], list[SinkProgress]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A manifest whose stages are all there."""

    key: str
    parsed: StageKey
    body: bytes
    manifest: SinkManifest


async def read_sinks(items: AsyncGenerator[Item, None]) -> dict[str, Sink]:
    """As a snapshot has them. Raises CorruptData."""
    found: dict[str, Sink] = {}
    async with aclosing(items):
        async for item in items:
            if item.key.startswith("sinks/"):
                try:
                    record = Sink.FromString(item.value)
                except DecodeError as error:
                    raise CorruptData(f"metadata key {item.key} does not parse") from error
                found[record.sink] = record
    return found


async def rebuild_sinks(objects: ObjectStore, namespace: str, known: dict[str, Sink], rebuilt: Rebuilt) -> SinksFound:
    """``known``: the snapshot's. What cannot be read is noted in ``rebuilt``. Raises Unavailable, Refused."""
    found = SinksFound()
    logs = {(topic.info.id, log.partition): (topic.info.name, log) for topic in rebuilt.topics for log in topic.logs}
    candidates = await _candidates(objects, namespace, known)
    for sink in sorted(known.keys() | candidates.keys()):
        before = known.get(sink, Sink(format=FORMAT, sink=sink, epoch=-1))
        newest = max((one.parsed.epoch for one in candidates.get(sink, [])), default=-1)
        among = [one for one in candidates.get(sink, []) if one.parsed.epoch == newest]
        if newest < before.epoch or (newest == before.epoch and not before.remaining) or not among:
            # What a committed epoch consists of goes when every log has it.
            record = Sink()
            record.CopyFrom(before)
            del record.remaining[:]
            found.records[sink] = record
            continue
        reached = [(one, await _reached(objects, namespace, one, logs, rebuilt.faults)) for one in among]
        # Of two attempts at one epoch one was committed: the one that the snapshot or a log tells of.
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
    """By sink: the manifests with all of their stages, none of which was taken back."""
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
    """How many batches of each partition's are in its log; partitions of topics that are gone are left out.

    Of a stage that cannot be read none is taken to be there. ``faults`` gets what is damaged.
    """
    reached: dict[tuple[bytes, int], int] = {}
    since = candidate.parsed.created_ms - _SLACK_MS
    for part in candidate.manifest.partitions:
        key = part.partition.topic_id, part.partition.partition
        if key not in logs:
            continue
        name, log = logs[key]
        wanted: list[Print] = []
        for stage in part.stages:
            try:
                body = (await objects.get(stage.key)).body
                if crc32c(body) != stage.crc:
                    raise CorruptData("the stage's checksum is wrong")
                wanted += prints(body)
            except (CorruptData, ObjectNotFound) as error:
                _note_fault(faults, stage.key, error)
        segments = [
            paths.segment_key(namespace, name, log.partition, segment.base)
            for segment in log.chain.segments
            if segment.created_ms >= since
        ]
        reached[key] = await _in_order(objects, segments, wanted, faults)
    return reached


def _note_fault(faults: list[str], key: str, error: Exception) -> None:
    """Once, however many sinks meet it."""
    fault = f"object {key}: {error}"
    if fault not in faults:
        faults.append(fault)


async def _in_order(objects: ObjectStore, segments: Iterable[str], wanted: list[Print], faults: list[str]) -> int:
    """How many of ``wanted`` are in the segments, in their order, among others."""
    reached = 0
    for key in segments:
        if reached == len(wanted):
            break
        try:
            body = (await objects.get(key)).body
            parsed = parse_segment(body)
            found = prints(memoryview(body)[parsed.positions[0] : parsed.ends[-1]])
        except (CorruptData, ObjectNotFound) as error:
            _note_fault(faults, key, error)
            continue
        for each in found:
            if reached < len(wanted) and each == wanted[reached]:
                reached += 1
    return reached


def prints(batches: Buffer) -> list[Print]:
    """What stays the same of each batch from the stage to the log. Raises CorruptData."""
    view = memoryview(batches)
    return [_print(header, view[position : position + header.size]) for position, header in walk(view)]


def _print(header: BatchHeader, batch: memoryview) -> Print:
    records = decompress(header.codec, batch[HEADER_SIZE:], _MOST_BATCH_BYTES)
    return header.record_count, header.base_timestamp, len(records), crc32c(records)
