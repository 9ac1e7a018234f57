"""Stores what sinks stage, and deletes what they take back. Before its epoch is committed nothing of it is in a log."""

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
"""Stages that a sink's record says are discarded, of 8 bytes each."""
NO_SINK = "a sink's name has 1 to 200 characters, 255 percent-encoded, and an epoch is not negative"


class NoSinkMore(KafscaleError):
    """As many sinks are remembered as may be."""


class TooLarge(CorruptData):
    """A batch is over the topic's limit."""


class Stages:
    """Keys have the run's id and a number: no other object ever has the same one."""

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
            # A put whose answer was lost has been repeated.
            if (await self._deps.objects.get(key)).body != body:
                raise Unavailable(f"object {key} has other bytes") from error

    async def stage(self, request: StageRequest) -> StageReply:
        records, most = request.records, self._deps.settings.stage_bytes
        if not paths.is_sink_name(request.sink) or request.epoch < 0:
            return StageReply(status=Status.INVALID, detail=NO_SINK)
        if len(records) > most:
            return StageReply(status=Status.TOO_LARGE, detail=f"{len(records)} bytes are more than {most}")
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
        """Raises Unavailable where there is no room for so many bytes in time."""
        most = self._deps.settings.staging_bytes
        if not self._room.awaited or self._room.awaited + size <= most:
            with trio.move_on_after(_ROOM_SECONDS):
                await self._room.reserve(size)
                return
        raise Unavailable(f"{self._room.used} bytes are being staged, KAFSCALE_STAGING_BYTES is {most}")

    async def _stored(self, request: StageRequest) -> Stage:
        """Raises NotAvailable, NoSinkMore, CorruptData, Unavailable, Refused."""
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
        """Before much is staged that could not be committed. Raises NoSinkMore, Unavailable, Refused."""
        full = self._view.full(self._deps.settings.max_sinks)
        if full and self._view.get(sink) is None:
            # The view may be behind.
            _, revision = await read_sink(self._deps.metadata, self._deps.namespace, sink)
            if not revision:
                raise NoSinkMore(full)

    async def _configs(self, ref: PartitionRef) -> Mapping[str, str]:
        """Of the partition's topic. Raises NotAvailable, Unavailable."""
        known = self._deps.catalog.view.live_by_id(ref.topic_id)
        if known is not None and known.name == ref.topic and 0 <= ref.partition < known.partitions:
            return known.configs
        # It may have been made, or have grown, a moment ago.
        item = await self._deps.metadata.get(paths.topic_key(self._deps.namespace, ref.topic))
        return checked_topic(item, ref).configs

    async def discard(self, request: DiscardStagesRequest) -> None:
        """Delete those of epochs that are not committed, as far as the stores answer: the rest expires."""
        by_sink: dict[str, list[str]] = {}
        for key in request.keys:
            parsed = paths.parse_stage_key(key)
            if parsed is not None and parsed.namespace == self._deps.namespace and not parsed.manifest:
                by_sink.setdefault(parsed.sink, []).append(key)
        for sink, keys in by_sink.items():
            try:
                await self.delete(await self._taken_back(sink, keys))
            except KafscaleError as error:
                log.warning("stages are left to expire", sink=sink, error=str(error))

    async def _taken_back(self, sink: str, keys: list[str]) -> list[str]:
        """Let no commit have these any more, but for those of committed epochs; gives what may be deleted.

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
            # Commits that are under way compare the revision, later ones see what is noted.
            done = await self._deps.metadata.txn([Unchanged(key, revision)], [Put(key, record.SerializeToString())])
            if done.succeeded:
                return unused
        raise Unavailable("others go on writing the sink")

    def _note_discarded(self, record: Sink, keys: list[str]) -> None:
        """Raises Unavailable where the record would have to remember too much."""
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
            raise Unavailable(f"{_MAX_DISCARDED} discarded stages are remembered already")
        del record.discarded[:]
        record.discarded.extend(kept)

    async def delete(self, keys: list[str]) -> None:
        """Raises Unavailable, Refused."""
        await delete_staged(self._deps.objects, self._membership, keys)


async def delete_staged(objects: ObjectStore, membership: Membership, keys: list[str]) -> None:
    """Delete what nothing refers to any more. Raises Unavailable, Refused."""
    for start in range(0, len(keys), MAX_KEYS):
        # No await between the proof and the request that it is for.
        if not membership.proven:
            raise Unavailable("the lease cannot be proven")
        await objects.delete_many(keys[start : start + MAX_KEYS])


def epoch_of(key: str) -> int:
    parsed = paths.parse_stage_key(key)
    return parsed.epoch if parsed else -1


def counted(records: bytes, config: TopicConfig, now_ms: int) -> tuple[int, int]:
    """How many batches and records a stage has. Raises CorruptData where they may not be appended as they are.

    Compacted topics need records with keys, for which their batches are decoded, up to 64 MiB of each.
    """
    batches = count_of_records = 0
    for position, header in walk(records):
        if header.size > config.max_message_bytes:
            most = config.max_message_bytes
            raise TooLarge(f"a batch of {header.size} bytes, the topic's max.message.bytes is {most}")
        verify_crc(records, position, header)
        check_produced(header)
        config.check_timestamps(header, now_ms)
        if header.producer_id != -1:
            raise InvalidRecord(f"a sink's batch has producer id {header.producer_id}")
        if config.compacted:
            batch = memoryview(records)[position : position + header.size]
            keyless = records_without_key(batch, max_bytes=_DECODED_BYTES)
            if keyless:
                told = "records without a key, which a compacted topic does not take"
                raise InvalidRecord(f"{told}: {len(keyless)} in one batch")
        batches += 1
        count_of_records += header.record_count
    if not batches:
        raise InvalidRecord("a stage without batches")
    return batches, count_of_records
