"""A storage instance that keeps batches in memory and is controlled by tests."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from kafscale.errors import Refused, Unavailable
from kafscale.records.batch import place, walk
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.interface import MessageStream
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import (
    AppendReply,
    AppendRequest,
    CommitsEvent,
    CommitsRequest,
    Committed,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    EpochEndsReply,
    EpochEndsRequest,
    FetchReply,
    FetchRequest,
    FlushReply,
    FlushRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    LogSizesReply,
    LogSizesRequest,
    PartitionAppend,
    PartitionAppended,
    PartitionFetch,
    PartitionFetched,
    PartitionOffset,
    ProducersReply,
    ProducersRequest,
    SegmentsReply,
    SegmentsRequest,
)

Key = tuple[bytes, int]


@dataclass
class Partition:
    ref: PartitionRef
    epoch: int = 1
    log_start: int = 0
    high_watermark: int = 0
    end: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # base, next offset, bytes

    def append(self, records: bytes, *, keep: bool = True) -> None:
        """Assign offsets to the batches, and store them if ``keep``."""
        for position, header in walk(records):
            if keep:
                batch = bytearray(records[position : position + header.size])
                place(batch, 0, self.end, self.epoch)
                self.batches.append((self.end, self.end + header.record_count, bytes(batch)))
            self.end += header.record_count


class _Stream:
    def __init__(self) -> None:
        self.send, self.receive_channel = trio.open_memory_channel[CommitsEvent](1000)

    async def receive(self) -> CommitsEvent:
        try:
            return await self.receive_channel.receive()
        except trio.EndOfChannel:
            raise Unavailable("the stream is broken") from None


class FakeStorage(SegmentStorageClient):
    """A `SegmentStorageClient`. Without instructions it accepts and commits everything at once."""

    def __init__(self) -> None:
        self.partitions: dict[Key, Partition] = {}
        self.appends: list[AppendRequest] = []
        self.fetches: list[FetchRequest] = []
        self.list_offsets_requests: list[ListOffsetsRequest] = []
        self.streams: dict[str, _Stream] = {}
        self.opened: list[str] = []
        self.auto_commit = True
        self.auto_ready = True
        self.keep_records = True
        self.append_time_ms = -1
        self.hold_until = 0
        self.durable_soon = False
        # Replies report the commits, which happen when they are sent. Streams do not.
        self.replies_report = False
        # Statuses for the next appends to a partition, which are then not stored.
        self.refuse: dict[Key, list[Status]] = {}
        # Events that the replies to appends with these sequence numbers wait for.
        self.gates: dict[int, trio.Event] = {}
        self.append_fails: Exception | None = None
        self.fetch_fails: Exception | None = None
        self.on_fetched: Callable[[], None] | None = None
        self.fetch_status: dict[Key, Status] = {}
        # The runs that own moved partitions, empty if unknown.
        self.moved: dict[Key, str] = {}
        self.epoch_ends_requests: list[EpochEndsRequest] = []
        # If set, fetches wait for it.
        self.fetch_gate: trio.Event | None = None
        # A request with more fetches is refused as too large.
        self.most_fetches = 10_000
        self.offsets: dict[int, PartitionOffset] = {}  # by timestamp
        self.rotten: set[bytes] = set()  # batches as they are stored
        self.unindexed: set[bytes] = set()  # likewise
        # The maximum number of segments in a reply.
        self.most_segments = 1000
        self.changed = trio.Event()

    def hand_over(self, ref: PartitionRef, to: str) -> None:
        """Stop being a partition's owner: requests get ``to`` as the owner, and streams get an event."""
        self.moved[ref.topic_id, ref.partition] = to
        self.announce(self.partition(ref), lost=True)

    def _refusal(self, ref: PartitionRef, leader_epoch: int = -1) -> tuple[Status, str] | None:
        """Return status and owner if the partition has moved, or if its leader epoch is a different one."""
        key = (ref.topic_id, ref.partition)
        if key in self.moved:
            return common_pb2.NOT_OWNER, self.moved[key]
        epoch = self.partition(ref).epoch
        if leader_epoch in (-1, epoch):
            return None
        return (common_pb2.FENCED_EPOCH if leader_epoch < epoch else common_pb2.UNKNOWN_EPOCH), ""

    def partition(self, ref: PartitionRef) -> Partition:
        return self.partitions.setdefault((ref.topic_id, ref.partition), Partition(ref))

    async def wait_until(self, condition: Callable[[], bool], seconds: float = 5) -> None:
        """Wait until ``condition`` is true. It is checked whenever a call arrives or a stream opens."""
        with trio.fail_after(seconds):
            while not condition():
                await self.changed.wait()

    async def wait_until_opened(self, streams: int) -> None:
        await self.wait_until(lambda: len(self.opened) >= streams, 60)

    def note(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def append(self, request: AppendRequest, *, timeout: float) -> AppendReply:
        results = self.append_now(request)
        gate = self.gates.get(request.sequence)
        if gate is not None:
            with trio.move_on_after(timeout) as scope:
                await gate.wait()
            if scope.cancelled_caught:
                raise Unavailable("no answer")
        reply = AppendReply(results=results)
        if self.replies_report:
            for partition in (self.partition(append.partition) for append in request.appends):
                partition.high_watermark = partition.end
                reply.committed.append(self._event(partition))
        return reply

    def append_now(self, request: AppendRequest) -> list[PartitionAppended]:
        """Append the batches, and return the results."""
        self.appends.append(request)
        self.note()
        if self.append_fails is not None:
            raise self.append_fails
        return [self._append_one(append) for append in request.appends]

    def _append_one(self, append: PartitionAppend) -> PartitionAppended:
        refusal = self._refusal(append.partition)
        if refusal is not None:
            return PartitionAppended(status=refusal[0], owner=refusal[1])
        partition = self.partition(append.partition)
        statuses = self.refuse.get((append.partition.topic_id, append.partition.partition))
        if statuses:
            return PartitionAppended(status=statuses.pop(0), detail="set by the test", log_start=partition.log_start)
        base = partition.end
        partition.append(append.records, keep=self.keep_records)
        if self.auto_commit:
            self.commit(partition)
        return PartitionAppended(
            epoch=partition.epoch,
            base_offset=base,
            end_offset=partition.end,
            log_start=partition.log_start,
            append_time_ms=self.append_time_ms,
            hold_until=self.hold_until,
            durable_soon=self.durable_soon,
        )

    def commit(self, partition: Partition, end: int | None = None, *, in_memory: int = 0) -> None:
        """Commit the appended records (up to ``end``), and announce that."""
        partition.high_watermark = partition.end if end is None else end
        self.announce(partition, in_memory=in_memory)

    def announce(
        self,
        partition: Partition,
        *,
        ref: PartitionRef | None = None,
        epoch: int | None = None,
        lost: bool = False,
        in_memory: int = 0,
    ) -> None:
        event = self._event(partition)
        event.partition.CopyFrom(ref or partition.ref)
        event.epoch = partition.epoch if epoch is None else epoch
        event.lost, event.in_memory = lost, in_memory
        self.send_event(event)

    def send_event(self, event: Committed) -> None:
        for stream in self.streams.values():
            stream.send.send_nowait(CommitsEvent(committed=[event]))

    def _event(self, partition: Partition) -> Committed:
        return Committed(
            partition=partition.ref,
            epoch=partition.epoch,
            high_watermark=partition.high_watermark,
            log_start=partition.log_start,
        )

    def break_streams(self) -> None:
        for stream in self.streams.values():
            stream.send.close()
        self.streams.clear()

    @asynccontextmanager
    async def commits(self, request: CommitsRequest) -> AsyncIterator[MessageStream[CommitsEvent]]:
        stream = self.streams[request.stream_id] = _Stream()
        self.opened.append(request.stream_id)
        if self.auto_ready:
            stream.send.send_nowait(CommitsEvent(ready=True))
        self.note()
        try:
            yield stream
        finally:
            self.streams.pop(request.stream_id, None)

    async def fetch(self, request: FetchRequest, *, timeout: float) -> FetchReply:
        self.fetches.append(request)
        self.note()
        await trio.lowlevel.checkpoint()
        if self.fetch_gate is not None:
            await self.fetch_gate.wait()
        if self.fetch_fails is not None:
            raise self.fetch_fails
        if len(request.fetches) > self.most_fetches:
            raise Refused("the request is too large")
        limits = [request.max_bytes, *request.more_max_bytes]
        remaining = list(limits)
        results = []
        for fetch in request.fetches:
            group = fetch.group
            result = self._fetch_one(fetch, remaining[group], first=remaining[group] == limits[group])
            remaining[group] -= len(result.records)
            results.append(result)
        if self.on_fetched is not None:
            self.on_fetched()
        return FetchReply(results=results)

    def _fetch_one(self, fetch: PartitionFetch, remaining: int, *, first: bool) -> PartitionFetched:
        refusal = self._refusal(fetch.partition, fetch.leader_epoch)
        if refusal is not None:
            return PartitionFetched(status=refusal[0], owner=refusal[1])
        partition = self.partition(fetch.partition)
        key = (fetch.partition.topic_id, fetch.partition.partition)
        status = self.fetch_status.get(key, common_pb2.OK)
        if status == common_pb2.OK and not partition.log_start <= fetch.offset <= partition.high_watermark:
            status = common_pb2.OFFSET_OUT_OF_RANGE
        result = PartitionFetched(
            status=status,
            epoch=partition.epoch,
            high_watermark=partition.high_watermark,
            log_start=partition.log_start,
        )
        if status == common_pb2.OK:
            result.records = self._read(partition, fetch.offset, min(fetch.max_bytes, remaining), first=first)
        return result

    def _read(self, partition: Partition, offset: int, limit: int, *, first: bool) -> bytes:
        out = b""
        for _, following, batch in partition.batches:
            if following <= offset or following > partition.high_watermark:
                continue
            if len(out) + len(batch) > limit and (out or not first):
                break
            out += batch
        return out

    async def list_offsets(self, request: ListOffsetsRequest, *, timeout: float) -> ListOffsetsReply:
        self.list_offsets_requests.append(request)
        await trio.lowlevel.checkpoint()
        results = []
        for query in request.queries:
            refusal = self._refusal(query.partition, query.leader_epoch)
            if refusal is not None:
                results.append(PartitionOffset(status=refusal[0], owner=refusal[1]))
                continue
            partition = self.partition(query.partition)
            preset = self.offsets.get(query.timestamp)
            if preset is not None:
                results.append(preset)
            else:
                offset = partition.log_start if query.timestamp == -2 else partition.high_watermark
                results.append(PartitionOffset(offset=offset, timestamp=-1, leader_epoch=partition.epoch))
        return ListOffsetsReply(results=results)

    async def flush(self, request: FlushRequest, *, timeout: float) -> FlushReply:
        """Commit all records of the partitions."""
        reply = FlushReply()
        for ref in request.partitions:
            partition, result = self.partition(ref), reply.results.add(partition=ref)
            refusal = self._refusal(ref)
            if refusal is not None:
                result.status, result.owner = refusal
            else:
                self.commit(partition)
                result.high_watermark = partition.high_watermark
        return reply

    async def delete_records(self, request: DeleteRecordsRequest, *, timeout: float) -> DeleteRecordsReply:
        reply = DeleteRecordsReply()
        for truncation in request.partitions:
            partition, result = self.partition(truncation.partition), reply.results.add()
            refusal = self._refusal(truncation.partition)
            if refusal is not None:
                result.status, result.owner = refusal
                continue
            offset = partition.high_watermark if truncation.offset == -1 else truncation.offset
            if offset > partition.high_watermark:
                result.status = common_pb2.OFFSET_OUT_OF_RANGE
            else:
                result.log_start = partition.log_start = max(partition.log_start, offset)
        return reply

    async def log_sizes(self, request: LogSizesRequest, *, timeout: float) -> LogSizesReply:
        """Return the sizes of committed batches. Each batch counts as a segment."""
        reply = LogSizesReply()
        for query in request.queries:
            partition, result = self.partition(query.partition), reply.results.add()
            refusal = self._refusal(query.partition)
            if refusal is not None:
                result.status, result.owner = refusal
            else:
                stored = [batch for _, end, batch in partition.batches if end <= partition.high_watermark]
                result.bytes, result.segments = sum(map(len, stored)), len(stored)
        return reply

    async def segments(self, request: SegmentsRequest, *, timeout: float) -> SegmentsReply:
        """List batches as segments."""
        refusal = self._refusal(request.partition)
        if refusal is not None:
            return SegmentsReply(status=refusal[0], owner=refusal[1])
        partition = self.partition(request.partition)
        found = [each for each in partition.batches if each[1] > request.start and each[1] <= partition.high_watermark]
        listed = found[: min(request.limit or self.most_segments, self.most_segments)]
        end = partition.high_watermark
        reply = SegmentsReply(next=found[len(listed)][0] if len(listed) < len(found) else end, high_watermark=end)
        for base, following, batch in listed:
            reindexed = request.reindex and batch in self.unindexed
            if reindexed:
                self.unindexed.remove(batch)
            wrong = {"rotten": batch in self.rotten, "no index": batch in self.unindexed}
            faults = [fault for fault, there in wrong.items() if request.verify and there]
            reply.segments.add(
                base_offset=base, end_offset=following, bytes=len(batch), epoch=1, faults=faults, reindexed=reindexed
            )
        return reply

    async def producers(self, request: ProducersRequest, *, timeout: float) -> ProducersReply:
        """Return the producer of each idempotent batch, as if it had sent no other batch."""
        reply = ProducersReply()
        for query in request.queries:
            result, refusal = reply.results.add(), self._refusal(query.partition, -1)
            if refusal is not None:
                result.status, result.owner = refusal
                continue
            headers = [header for _, _, batch in self.partition(query.partition).batches for _, header in walk(batch)]
            for header in headers:
                if header.producer_id >= 0:
                    result.producers.add(
                        producer_id=header.producer_id,
                        epoch=header.producer_epoch,
                        last_sequence=header.base_sequence + header.last_offset_delta,
                        used_ms=header.max_timestamp,
                    )
        return reply

    async def epoch_ends(self, request: EpochEndsRequest, *, timeout: float) -> EpochEndsReply:
        """Answer as if every partition had only its current epoch."""
        self.epoch_ends_requests.append(request)
        reply = EpochEndsReply()
        for query in request.queries:
            partition, result = self.partition(query.partition), reply.results.add(epoch=-1, end_offset=-1)
            refusal = self._refusal(query.partition, query.leader_epoch)
            if refusal is not None:
                result.status, result.owner = refusal
            elif query.epoch <= partition.epoch:
                result.epoch, result.end_offset = partition.epoch, partition.high_watermark
        return reply
