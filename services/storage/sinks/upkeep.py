"""Maintenance of sinks outside partitions: topics deleted while an epoch is pending, idle sinks, and old stages.

One instance does it for each sink, and one instance checks all stages. A stage or manifest is deleted if it is too old
to be committed and no pending epoch uses it.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog
import trio

from kafscale import paths
from kafscale.errors import KafscaleError
from kafscale.metadata.follow import call_at_each
from kafscale.metadata.interface import Delete, Unchanged
from kafscale.metadata.membership import Membership
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.objects.interface import MAX_KEYS, clocks_agree
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import Sink
from services.storage.dependencies import Dependencies
from services.storage.log.sink_progress import SinkEpoch
from services.storage.owning.takeover import NotAvailable, checked_topic
from services.storage.sinks.records import NO_EPOCH, SinkView, key_of, parse_sink, read_manifest, read_sink, take_out
from services.storage.sinks.staging import delete_staged

log = structlog.get_logger()

_RETRY = 5.0


class SinkUpkeep:
    """Maintains the sinks while `run` is running."""

    def __init__(self, deps: Dependencies, membership: Membership, view: SinkView) -> None:
        self._deps = deps
        self._membership = membership
        self._view = view
        self._wake = trio.Event()

    async def run(self) -> None:
        check_seconds = self._deps.settings.stage_check_ms / 1000
        check_at = trio.current_time() + check_seconds
        async with trio.open_nursery() as nursery:
            for change in (self._deps.catalog.changed, self._deps.members.changed, self._view.changed):
                nursery.start_soon(call_at_each, change, self._wake_up)
            while True:
                self._wake = trio.Event()
                done = await self._take_out_deleted()
                with trio.move_on_at(check_at if done else min(check_at, trio.current_time() + _RETRY)):
                    await self._wake.wait()
                if trio.current_time() >= check_at:
                    check_at = trio.current_time() + check_seconds
                    await self._forget_idle()
                    if self._is_keeper(""):
                        await self._collect()

    def _wake_up(self) -> None:
        self._wake.set()

    def _is_keeper(self, sink: str) -> bool:
        keeper = self._deps.members.view.sink_keeper(sink)
        return keeper is not None and keeper.run_id == self._membership.run_id

    async def _take_out_deleted(self) -> bool:
        """Remove partitions of deleted topics from pending epochs. Return False if this must be repeated."""
        done = True
        for record in self._view.pending():
            if not self._is_keeper(record.sink):
                continue
            gone = set()
            for ref in record.remaining:
                known = self._deps.catalog.view.live_by_id(ref.topic_id)
                if known is not None and known.name == ref.topic and 0 <= ref.partition < known.partitions:
                    continue
                try:
                    # The view may be outdated, so read the topic itself.
                    key = paths.topic_key(self._deps.namespace, ref.topic)
                    checked_topic(await self._deps.metadata.get(key), ref)
                except NotAvailable as error:
                    if error.status in (Status.UNKNOWN_TOPIC, Status.TOPIC_ID_MISMATCH):
                        gone.add(key_of(ref))
                except STORE_FAILURES as error:
                    log.info("check for deleted topics failed, retrying later", sink=record.sink, error=str(error))
                    done = False
            if gone:
                log.warning("sink records dropped, topics deleted", sink=record.sink, partitions=len(gone))
                await take_out(self._deps.metadata, self._deps.namespace, SinkEpoch.of(record), gone)
        return done

    async def _forget_idle(self) -> None:
        """Delete the records of idle sinks, if the local clock agrees with that of the object store."""
        for seen in self._view:
            if not self._idle(seen) or not self._is_keeper(seen.sink):
                continue
            if not clocks_agree(self._deps.objects.clock_skew_seconds):
                return
            try:
                record, revision = await read_sink(self._deps.metadata, self._deps.namespace, seen.sink)
                if revision and self._idle(record):
                    key = paths.sink_key(self._deps.namespace, seen.sink)
                    done = await self._deps.metadata.txn([Unchanged(key, revision)], [Delete(key)])
                    if done.succeeded:
                        log.info("sink forgotten", sink=seen.sink, epoch=seen.epoch)
            except STORE_FAILURES as error:
                log.info("check of idle sink failed, retrying later", sink=seen.sink, error=str(error))

    def _idle(self, record: Sink) -> bool:
        """Return whether no commit needs the record: its epoch is not repeated and its discarded stages are too old."""
        now, settings = self._deps.now_ms(), self._deps.settings
        of_one_write = record.once or record.epoch == NO_EPOCH
        expiry = settings.stage_expiry_ms if of_one_write else settings.sink_expiry_ms
        discarded_ms = max((one.discarded_ms for one in record.discarded), default=0)
        idle = record.committed_ms < now - expiry and discarded_ms < now - settings.stage_expiry_ms
        return idle and not record.remaining

    async def _collect(self) -> None:
        """Delete expired stages that no pending epoch uses."""
        try:
            async with aclosing(self._old()) as pages:
                async for page in pages:
                    # Read after the listing, because stages that old can no longer be committed.
                    used, unknown = await self._used()
                    if not clocks_agree(self._deps.objects.clock_skew_seconds):
                        log.warning("old stages kept, clock differs from object store")
                        return
                    of_known = [key for sink, key in page if sink not in unknown]
                    unused = [key for key in of_known if key not in used]
                    await delete_staged(self._deps.objects, self._membership, unused)
                    self._deps.counters.stages_expired += len(unused)
        except KafscaleError as error:
            log.warning("deleting old stages failed, retrying later", error=str(error))

    async def _old(self) -> AsyncGenerator[list[tuple[str, str]], None]:
        """Yield pages of expired stages as (path segment of the sink, key). Raises Unavailable, Refused."""
        prefix, last = paths.stages_prefix(self._deps.namespace), ""
        while True:
            listed = [info.key for info in await self._deps.objects.list_from(prefix, last, MAX_KEYS)]
            oldest = self._deps.now_ms() - self._deps.settings.stage_expiry_ms
            parsed = [(key, paths.parse_stage_key(key)) for key in listed]
            old = [
                (paths.sink_segment(name.sink), key)
                for key, name in parsed
                if name is not None and name.created_ms < oldest
            ]
            if old:
                yield old
            if len(listed) < MAX_KEYS:
                return
            last = listed[-1]

    async def _used(self) -> tuple[set[str], set[str]]:
        """Return the objects of all pending epochs, and the path segments of sinks for which these are unknown.

        Raises Unavailable, Refused.
        """
        prefix = paths.sinks_prefix(self._deps.namespace)
        used: set[str] = set()
        unknown: set[str] = set()
        for item in (await self._deps.metadata.read_prefix(prefix)).items:
            try:
                record = parse_sink(item)
                if record.remaining:
                    used |= await self._used_by(record)
            except KafscaleError as error:
                log.warning("old stages of sink kept", key=item.key, error=str(error))
                unknown.add(item.key.removeprefix(prefix))
        return used, unknown

    async def _used_by(self, record: Sink) -> set[str]:
        manifest = await read_manifest(self._deps.objects, record)
        return {record.manifest} | {stage.key for partition in manifest.partitions for stage in partition.stages}
