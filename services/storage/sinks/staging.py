"""Store the stages of sinks and delete discarded ones. Nothing of a stage is in a log before its epoch is committed."""

from collections.abc import Mapping
from itertools import count

import structlog
import trio

from kafscale import paths
from kafscale.config.settings import MIB
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.metadata.interface import Put, Unchanged
from kafscale.metadata.membership import Membership
from kafscale.objects.interface import MAX_KEYS, ObjectStore, PreconditionFailed
from kafscale.process.byte_quota import ByteQuota
from kafscale.records.batch import check_produced, verify_crc, walk
from kafscale.records.checksum import crc32c
from kafscale.records.errors import InvalidRecord
from kafscale.records.record import records_without_key
from kafscale.topics.configs import TopicConfig
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.metadata_pb2 import Sink
from kafscale.v1.storage_pb2 import DiscardStagesRequest, Stage, StageReply, StageRequest
from services.storage.dependencies import Dependencies
from services.storage.owning.owned import OwnedPartitions
from services.storage.owning.takeover import NotAvailable, checked_topic
from services.storage.sinks.records import SinkView, fingerprint, read_sink

log = structlog.get_logger()

_INLINE_BYTES = 128 * 1024  # checking less than this costs less than a thread
_DECODED_BYTES = 64 * MIB
_ATTEMPTS = 4
_ROOM_SECONDS = 10.0
_MAX_DISCARDED = 10_000
"""Discarded stages that a sink's record can hold, at 8 bytes each."""
NO_SINK = "a sink's name has 1 to 200 characters, 255 percent-encoded, and an epoch is not negative"


class NoSinkMore(KafscaleError):
    """The limit of sinks is reached."""


class TooLarge(CorruptData):
    """A batch exceeds the topic's max.message.bytes."""


class Stages:
    """Stores stages under keys with the run id and a number, which no other object ever has."""

    def __init__(self, deps: Dependencies, membership: Membership, owned: OwnedPartitions, view: SinkView) -> None:
        self._deps = deps
        self._membership = membership
        self._owned = owned
        self._view = view
        self._numbers = count(1)
        self._room = ByteQuota(deps.settings.staging_bytes)

    def new_key(self, sink: str, epoch: int, *, manifest: bool = False) -> str:
        token = f"{self._membership.run_id}-{next(self._numbers)}"
        return str(paths.StageKey(self._deps.namespace, sink, epoch, self._deps.now_ms(), token, manifest))

    async def put(self, key: str, body: bytes) -> None:
        """Store under a new key. Raises Unavailable, Refused."""
        try:
            await self._deps.objects.put_if_absent(key, body)
        except PreconditionFailed as error:
            # A put whose response was lost may have been repeated.
            if (await self._deps.objects.get(key)).body != body:
                raise Unavailable(f"object {key} has different content") from error

    async def stage(self, request: StageRequest) -> StageReply:
        records, limit = request.records, self._deps.settings.stage_bytes
        if not paths.is_sink_name(request.sink) or request.epoch < 0:
            return StageReply(status=Status.INVALID, detail=NO_SINK)
        if len(records) > limit:
            return StageReply(status=Status.TOO_LARGE, detail=f"{len(records)} bytes exceed the limit of {limit}")
        try:
            await self._reserve(len(records))
            try:
                return StageReply(stage=await self._stored(request))
            finally:
                self._room.release(len(records))
        except NotAvailable as error:
            return StageReply(status=error.status, detail=str(error))
        except TooLarge as error:
            return StageReply(status=Status.TOO_LARGE, detail=str(error))
        except (CorruptData, NoSinkMore) as error:
            return StageReply(status=Status.INVALID, detail=str(error))
        except KafscaleError as error:
            return StageReply(status=Status.UNAVAILABLE, detail=str(error))

    async def _reserve(self, size: int) -> None:
        """Reserve ``size`` bytes for staging. Raises Unavailable if they do not become free in time."""
        limit = self._deps.settings.staging_bytes
        if not self._room.awaited or self._room.awaited + size <= limit:
            with trio.move_on_after(_ROOM_SECONDS):
                await self._room.reserve(size)
                return
        raise Unavailable(f"{self._room.used} bytes are being staged, KAFSCALE_STAGING_BYTES is {limit}")

    async def _stored(self, request: StageRequest) -> Stage:
        """Check and store one stage. Raises NotAvailable, NoSinkMore, CorruptData, Unavailable, Refused."""
        records = request.records
        await self._check_room_for(request.sink)
        config, now_ms = self._owned.config_of(await self._configs(request.partition)), self._deps.now_ms()
        if len(records) < _INLINE_BYTES and not config.compacted:
            batches, count_of_records = counted(records, config, now_ms)
        else:
            batches, count_of_records = await self._deps.run_sync(lambda: counted(records, config, now_ms))
        key = self.new_key(request.sink, request.epoch)
        await self.put(key, records)
        self._deps.counters.staged_bytes += len(records)
        return Stage(
            partition=request.partition,
            key=key,
            size=len(records),
            crc=crc32c(records),
            batches=batches,
            records=count_of_records,
        )

    async def _check_room_for(self, sink: str) -> None:
        """Check early that the sink could be committed. Raises NoSinkMore, Unavailable, Refused."""
        full = self._view.full(self._deps.settings.max_sinks)
        if full and self._view.get(sink) is None:
            # The view may be outdated.
            _, revision = await read_sink(self._deps.metadata, self._deps.namespace, sink)
            if not revision:
                raise NoSinkMore(full)

    async def _configs(self, ref: PartitionRef) -> Mapping[str, str]:
        """Return the configs of the partition's topic. Raises NotAvailable, Unavailable."""
        known = self._deps.catalog.view.live_by_id(ref.topic_id)
        if known is not None and known.name == ref.topic and 0 <= ref.partition < known.partitions:
            return known.configs
        # The topic may just have been created or expanded.
        item = await self._deps.metadata.get(paths.topic_key(self._deps.namespace, ref.topic))
        return checked_topic(item, ref).configs

    async def discard(self, request: DiscardStagesRequest) -> None:
        """Delete the stages of uncommitted epochs. Stages that cannot be deleted now expire later."""
        by_sink: dict[str, list[str]] = {}
        for key in request.keys:
            parsed = paths.parse_stage_key(key)
            if parsed is not None and parsed.namespace == self._deps.namespace and not parsed.manifest:
                by_sink.setdefault(parsed.sink, []).append(key)
        for sink, keys in by_sink.items():
            try:
                await self.delete(await self._revoke(sink, keys))
            except KafscaleError as error:
                log.warning("stages not deleted, they will expire", sink=sink, error=str(error))

    async def _revoke(self, sink: str, keys: list[str]) -> list[str]:
        """Prevent commits with these stages, except for committed epochs. Return the stages that may be deleted.

        Raises Unavailable, Refused.
        """
        key = paths.sink_key(self._deps.namespace, sink)
        for _ in range(_ATTEMPTS):
            record, revision = await read_sink(self._deps.metadata, self._deps.namespace, sink)
            full = "" if revision else self._view.full(self._deps.settings.max_sinks)
            if full:
                raise Unavailable(full)
            unused = [key for key in keys if epoch_of(key) > record.epoch]
            if not unused:
                return []
            self._note_discarded(record, unused)
            if not revision:
                record.committed_ms = self._deps.now_ms()
            # Commits in progress fail because the revision changes; later ones read the discarded stages.
            done = await self._deps.metadata.txn([Unchanged(key, revision)], [Put(key, record.SerializeToString())])
            if done.succeeded:
                return unused
        raise Unavailable("the sink's record keeps changing")

    def _note_discarded(self, record: Sink, keys: list[str]) -> None:
        """Add the stages to the record's discarded ones. Raises Unavailable if there are too many."""
        now = self._deps.now_ms()
        too_old = now - self._deps.settings.stage_expiry_ms
        by_epoch: dict[int, set[int]] = {}
        for key in keys:
            by_epoch.setdefault(epoch_of(key), set()).add(fingerprint(key))
        kept = []
        for before in record.discarded:
            if before.epoch in by_epoch:
                by_epoch[before.epoch].update(before.stages)
            elif before.discarded_ms >= too_old:
                kept.append(before)
        kept += [Sink.Discard(epoch=epoch, discarded_ms=now, stages=stages) for epoch, stages in by_epoch.items()]
        if sum(len(one.stages) for one in kept) > _MAX_DISCARDED:
            raise Unavailable(f"the limit of {_MAX_DISCARDED} discarded stages is reached")
        del record.discarded[:]
        record.discarded.extend(kept)

    async def delete(self, keys: list[str]) -> None:
        """Delete stages to which nothing refers. Raises Unavailable, Refused."""
        await delete_staged(self._deps.objects, self._membership, keys)


async def delete_staged(objects: ObjectStore, membership: Membership, keys: list[str]) -> None:
    """Delete objects to which nothing refers. Raises Unavailable, Refused."""
    for start in range(0, len(keys), MAX_KEYS):
        # No await between the check and the request.
        if not membership.proven:
            raise Unavailable("the lease cannot be confirmed at present")
        await objects.delete_many(keys[start : start + MAX_KEYS])


def epoch_of(key: str) -> int:
    parsed = paths.parse_stage_key(key)
    return parsed.epoch if parsed else -1


def counted(records: bytes, config: TopicConfig, now_ms: int) -> tuple[int, int]:
    """Return the number of batches and of records in a stage. Raises CorruptData if they cannot be appended unchanged.

    For compacted topics, batches are decoded, up to 64 MiB each, to check that all records have a key.
    """
    batches = count_of_records = 0
    for position, header in walk(records):
        if header.size > config.max_message_bytes:
            limit = config.max_message_bytes
            raise TooLarge(f"a batch has {header.size} bytes, the topic's max.message.bytes is {limit}")
        verify_crc(records, position, header)
        check_produced(header)
        config.check_timestamps(header, now_ms)
        if header.producer_id != -1:
            raise InvalidRecord(f"a sink's batch has producer id {header.producer_id}, expected -1")
        if config.compacted:
            batch = memoryview(records)[position : position + header.size]
            keyless = records_without_key(batch, max_bytes=_DECODED_BYTES)
            if keyless:
                raise InvalidRecord(f"a compacted topic requires keys: {len(keyless)} records of a batch have none")
        batches += 1
        count_of_records += header.record_count
    if not batches:
        raise InvalidRecord("the stage has no batches")
    return batches, count_of_records
