"""Commit stored segments in offset order per partition, many partitions in one transaction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from kafscale import paths
from kafscale.metadata.interface import Get, KeyValue, MetadataStore, Put, TooLarge, TxnResult, Unchanged
from kafscale.metadata.outage import STORE_FAILURES, Outage
from kafscale.v1.metadata_pb2 import LastSegment, PartitionState
from services.storage.counters import StorageCounters
from services.storage.log.buffer import Buffer
from services.storage.log.commit import Commit, CommitListener
from services.storage.log.partition import Partition

_MAX_PARTITIONS = 100  # compares and operations of a transaction are limited to 128
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class _Entry:
    partition: Partition
    buffers: list[Buffer]
    state: PartitionState
    value: bytes

    @property
    def compare(self) -> int:
        return self.partition.state_revision


class Committer:
    """Runs one transaction at a time. Partitions that become ready meanwhile share the next one.

    A transaction with an unknown outcome is repeated unchanged until a read shows its value or that of another writer.
    Nothing else is written for the partition before that.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        namespace: str,
        fenced: Callable[[Partition, str], None],
        counters: StorageCounters,
    ) -> None:
        self._metadata = metadata
        self._namespace = namespace
        self._fenced = fenced
        self._counters = counters
        self.listeners: Sequence[CommitListener] = ()
        """Called in order after each commit of a partition that is not closed. If it is closed, the next owner finds
        the records in the log."""
        self._ready: dict[Partition, None] = {}
        self._wake = trio.Event()

    def ready(self, partition: Partition) -> None:
        """Called when a sealed buffer of the partition is stored, or its log start must move."""
        self._ready[partition] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._ready:
                # In this function, the entries would keep their buffers in memory until the next commit.
                await self._commit_ready()

    async def _commit_ready(self) -> None:
        partitions = list(self._ready)[:_MAX_PARTITIONS]
        for partition in partitions:
            del self._ready[partition]
        entries = [entry for entry in map(_entry, partitions) if entry is not None]
        if entries:
            began = trio.current_time()
            await self._commit(entries)
            self._counters.commit_seconds.observe(trio.current_time() - began)

    async def _commit(self, entries: list[_Entry]) -> None:
        outage = Outage("commit not answered", first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        while entries:
            try:
                result = await self._metadata.txn(
                    [Unchanged(self._key(entry), entry.compare) for entry in entries],
                    [Put(self._key(entry), entry.value) for entry in entries],
                    [Get(self._key(entry)) for entry in entries],
                )
            except TooLarge as error:
                # Nothing was written. etcd may have lower limits than the defaults, so try a half.
                if len(entries) > 1:
                    middle = len(entries) // 2
                    await self._commit(entries[:middle])
                    entries = entries[middle:]
                else:
                    await outage.pause(error, partitions=1)
                continue
            except STORE_FAILURES as error:
                await outage.pause(error, partitions=len(entries))
                continue
            entries = self._settle(entries, result)

    def _settle(self, entries: list[_Entry], result: TxnResult) -> list[_Entry]:
        """Apply one result. Return the entries to retry: those whose own compare held."""
        if result.succeeded:
            for entry in entries:
                self._apply(entry, result.revision)
            return []
        again = []
        for entry, now in zip(entries, result.reads, strict=True):
            if now is not None and now.value == entry.value:
                # An earlier attempt of the same transaction was applied.
                self._apply(entry, now.mod_revision)
            elif now is not None and now.mod_revision == entry.compare:
                again.append(entry)
            else:
                self._fenced(entry.partition, _who(now))
        return again

    def _apply(self, entry: _Entry, revision: int) -> None:
        former = entry.partition.state
        entry.partition.state = entry.state
        entry.partition.state_revision = revision
        commit = Commit(entry.partition, entry.buffers, former)
        for listener in () if entry.partition.closed else self.listeners:
            listener(commit)

    def _key(self, entry: _Entry) -> str:
        ref = entry.partition.ref
        return paths.partition_state_key(self._namespace, ref.topic, ref.partition)


def _entry(partition: Partition) -> _Entry | None:
    buffers = partition.buffer.stored()
    if partition.closed or not (buffers or partition.unreported):
        return None
    state = PartitionState()
    state.CopyFrom(partition.state)
    for segment in (buffer.segment for buffer in buffers):
        if segment is not None:
            state.high_watermark = segment.next_offset
            state.last_segment.CopyFrom(
                LastSegment(base_offset=segment.base_offset, size=len(segment.data), crc=segment.crc)
            )
    if state.HasField("tail") and state.high_watermark >= state.tail.end:
        state.ClearField("tail")
    partition.sinks.note(state, ((epoch, batches) for buffer in buffers for _, epoch, batches in buffer.sinks))
    if partition.next_root is not None:
        state.root.CopyFrom(partition.next_root.ref)
    state.log_start = max(state.log_start, min(partition.target_log_start, state.high_watermark))
    if not len(partition.committed_producers):
        # No producer is known up to the old high watermark, so a restore need not read what precedes this commit.
        sequenced = any(buffer.sequenced for buffer in buffers)
        state.producer_snapshot = ""
        state.producers_from = partition.state.high_watermark if sequenced else state.high_watermark
    else:
        partition.refer(state)
    return _Entry(partition, buffers, state, state.SerializeToString())


def _who(now: KeyValue | None) -> str:
    if now is None:
        return "its state was deleted"
    state = PartitionState.FromString(now.value)
    return f"run {state.owner or '(none)'} owns it at epoch {state.epoch}"
