"""Commit sink epochs: one conditional write of the sink's record, after everything that it refers to is stored.

Before that write nothing of the epoch is in any log. After it the whole epoch will be, regardless of who appends it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError, Unavailable
from kafscale.metadata.interface import MAX_PLAIN, MAX_REQUEST_BYTES, Get, KeyValue, Put, Unchanged
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.records.checksum import crc32c
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import Sink, SinkManifest
from kafscale.v1.storage_pb2 import CommitSinkReply, CommitSinkRequest
from services.storage.dependencies import Dependencies
from services.storage.owning.owned import Key
from services.storage.owning.takeover import NotAvailable, checked_topic
from services.storage.sinks.records import FORMAT, SinkView, fingerprint, key_of, parse_sink, read_manifest, read_sink
from services.storage.sinks.staging import NO_SINK, Stages

log = structlog.get_logger()

_INLINE_STAGES = 100  # reading fewer costs less than a thread
_FORMER_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class _Invalid(KafscaleError):
    """The request is invalid and must not be retried."""


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The content of an epoch: partitions in the order of the manifest, and when its oldest stage was created."""

    partitions: tuple[PartitionRef, ...]
    manifest: bytes
    oldest_ms: float


class SinkCommits:
    """Any instance can commit for any sink, because concurrent commits compare the same revision."""

    def __init__(self, deps: Dependencies, stages: Stages, view: SinkView) -> None:
        self._deps = deps
        self._stages = stages
        self._view = view

    async def commit(self, request: CommitSinkRequest) -> CommitSinkReply:
        try:
            epoch = await self._read(request)
            before, revision = await self._settled(request)
            if request.epoch <= before.epoch:
                return await self._already_committed(request, before)
            full = "" if revision else self._view.full(self._deps.settings.max_sinks)
            if full:
                raise _Invalid(full)
            _check_kept(request, before)
            await self._check_topics(epoch.partitions)
            record = await self._record(request, epoch, before)
            now = await self._write(record, revision)
        except _Invalid as error:
            return CommitSinkReply(status=Status.INVALID, detail=str(error))
        except STORE_FAILURES as error:
            return CommitSinkReply(status=Status.UNAVAILABLE, detail=str(error))
        if now.epoch > record.epoch or now.manifest != record.manifest:
            return await self._already_committed(request, now)
        self._deps.counters.sink_commits += 1
        log.info("sink committed", sink=request.sink, epoch=request.epoch, stages=len(request.stages))
        return CommitSinkReply(applied=await self._applied(request, now))

    async def _read(self, request: CommitSinkRequest) -> _Epoch:
        """Parse the request. Raises _Invalid."""
        if not paths.is_sink_name(request.sink) or request.epoch < 0:
            raise _Invalid(NO_SINK)
        limit = self._deps.settings.max_stages_per_commit
        if len(request.stages) > limit:
            what = f"{len(request.stages)} stages exceed the limit of {limit}"
            raise _Invalid(f"{what}: repartition, or raise KAFSCALE_MAX_STAGES_PER_COMMIT")
        read = partial(_read_stages, request, self._deps.namespace)
        return read() if len(request.stages) <= _INLINE_STAGES else await self._deps.run_sync(read)

    async def _check_topics(self, partitions: Iterable[PartitionRef]) -> None:
        """Check that all topics still exist, because records of a deleted one would be lost silently.

        Raises _Invalid, Unavailable, Refused.
        """
        last: dict[tuple[str, bytes], PartitionRef] = {}
        for ref in partitions:
            topic = ref.topic, ref.topic_id
            if topic not in last or last[topic].partition < ref.partition:
                last[topic] = ref
        refs = list(last.values())
        for some in (refs[start : start + MAX_PLAIN] for start in range(0, len(refs), MAX_PLAIN)):
            gets = [Get(paths.topic_key(self._deps.namespace, ref.topic)) for ref in some]
            for ref, item in zip(some, (await self._deps.metadata.txn([], gets)).reads, strict=True):
                try:
                    checked_topic(item, ref)
                except NotAvailable as error:
                    raise _Invalid(str(error)) from error

    async def _settled(self, request: CommitSinkRequest) -> tuple[Sink, int]:
        """Return the sink's record once it has the epoch or the one before is in all logs. Raises Unavailable."""
        deadline = trio.current_time() + _FORMER_SECONDS
        while True:
            before, revision = await read_sink(self._deps.metadata, self._deps.namespace, request.sink)
            if request.epoch <= before.epoch or not before.remaining:
                return before, revision
            with trio.move_on_at(deadline) as waiting:
                await self._view.applied(request.sink, before.epoch)
            if waiting.cancelled_caught:
                raise Unavailable(f"{len(before.remaining)} partitions do not have epoch {before.epoch} yet")

    async def _record(self, request: CommitSinkRequest, epoch: _Epoch, before: Sink) -> Sink:
        """Store the manifest and return the record that commits the epoch. Raises _Invalid, Unavailable, Refused."""
        now_ms = self._deps.now_ms()
        record = Sink(format=FORMAT, sink=request.sink, epoch=request.epoch, committed_ms=now_ms, once=request.once)
        record.remaining.extend(epoch.partitions)
        record.discarded.extend(one for one in before.discarded if one.epoch > request.epoch)
        if record.ByteSize() > MAX_REQUEST_BYTES // 2:
            raise _Invalid(f"{len(record.remaining)} partitions are too many for one epoch")
        if epoch.partitions:
            record.manifest = self._stages.new_key(request.sink, request.epoch, manifest=True)
            record.manifest_size, record.manifest_crc = len(epoch.manifest), crc32c(epoch.manifest)
            await self._stages.put(record.manifest, epoch.manifest)
        # Expired stages are deleted, so only stages well before that may be committed.
        if epoch.oldest_ms < self._deps.now_ms() - self._deps.settings.stage_expiry_ms // 2:
            raise _Invalid("stages are too old to be committed")
        return record

    async def _write(self, record: Sink, revision: int) -> Sink:
        """Write the record unless it changed since ``revision``, and return the stored one. Raises Unavailable.

        A transaction with an unknown outcome is repeated unchanged until a read shows its outcome.
        """
        key, value = paths.sink_key(self._deps.namespace, record.sink), record.SerializeToString()
        outage = Outage("sink commit not answered", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while True:
            try:
                done = await self._deps.metadata.txn([Unchanged(key, revision)], [Put(key, value)], [Get(key)])
            except STORE_FAILURES as error:
                await outage.pause(error, sink=record.sink)
                continue
            if done.succeeded:
                return record
            now: KeyValue | None = done.reads[0]
            found = parse_sink(now) if now is not None else Sink()
            if now is not None and found.epoch >= record.epoch:
                return found
            # The other writer may be about to delete these stages.
            raise Unavailable("another call changed the sink in the meantime")

    async def _already_committed(self, request: CommitSinkRequest, record: Sink) -> CommitSinkReply:
        """Answer a request whose epoch was committed before, by ``record`` or an earlier one."""
        await self._delete_unused(request, record)
        return CommitSinkReply(already=True, applied=await self._applied(request, record))

    async def _delete_unused(self, request: CommitSinkRequest, record: Sink) -> None:
        """Delete the stages of the request that the committed epoch does not use. Failures are only logged."""
        try:
            used = set()
            if record.epoch == request.epoch and record.remaining:
                manifest = await read_manifest(self._deps.objects, record)
                used = {stage.key for partition in manifest.partitions for stage in partition.stages}
            await self._stages.delete([stage.key for stage in request.stages if stage.key not in used])
        except KafscaleError as error:
            log.warning("stages not deleted, they will expire", sink=request.sink, error=str(error))

    async def _applied(self, request: CommitSinkRequest, record: Sink) -> bool:
        """Return whether all partitions have the epoch, after waiting for it up to ``wait_ms`` of the request."""
        if record.epoch > request.epoch or not record.remaining:
            return True
        with trio.move_on_after(min(request.wait_ms / 1000, _LONGEST_WAIT_SECONDS)) as waiting:
            await self._view.applied(request.sink, request.epoch)
        return not waiting.cancelled_caught


def _read_stages(request: CommitSinkRequest, namespace: str) -> _Epoch:
    """Check the stages of the request and build the manifest. Raises _Invalid."""
    if len({stage.key for stage in request.stages}) < len(request.stages):
        raise _Invalid("a stage is listed twice")
    partitions: dict[Key, SinkManifest.Partition] = {}
    oldest_ms = math.inf
    for stage in request.stages:
        parsed = paths.parse_stage_key(stage.key)
        ours = parsed is not None and not parsed.manifest and parsed.namespace == namespace
        if not ours or parsed is None or (parsed.sink, parsed.epoch) != (request.sink, request.epoch):
            raise _Invalid(f"{stage.key} is not a stage of epoch {request.epoch} of this sink")
        if not (stage.batches and stage.size) or stage.partition.partition < 0:
            raise _Invalid(f"{stage.key} has no batches or an invalid partition")
        oldest_ms = min(oldest_ms, parsed.created_ms)
        key = key_of(stage.partition)
        found = partitions.get(key)
        if found is None:
            found = partitions[key] = SinkManifest.Partition(partition=stage.partition)
        found.stages.add(key=stage.key, size=stage.size, crc=stage.crc, batches=stage.batches)
    manifest = SinkManifest(
        format=FORMAT, sink=request.sink, epoch=request.epoch, partitions=partitions.values()
    ).SerializeToString()
    return _Epoch(tuple(one.partition for one in partitions.values()), manifest, oldest_ms)


def _check_kept(request: CommitSinkRequest, before: Sink) -> None:
    """Raise _Invalid if one of the stages was discarded."""
    discarded = {mark for one in before.discarded if one.epoch == request.epoch for mark in one.stages}
    if discarded and any(fingerprint(stage.key) in discarded for stage in request.stages):
        raise _Invalid("some of its stages were discarded")
