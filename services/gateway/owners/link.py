"""The connection between the gateway and one run of a storage instance: a commit stream, appends, fetches, lookups.

If a stream breaks, is silent for too long, or has an Append of unknown outcome, the link closes it: appends that wait
for their commit fail, queued appends are refused, and a new stream with a new id starts at message 1.
"""

import random
import secrets
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import structlog
import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.rpc.interface import MessageStream
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import (
    AppendRequest,
    CommitsEvent,
    CommitsRequest,
    DeleteRecordsRequest,
    DescribeSegmentRequest,
    EpochEnd,
    EpochEndsRequest,
    EpochQuery,
    FetchReply,
    FetchRequest,
    FlushRequest,
    ListOffsetsRequest,
    LogSize,
    LogSizesRequest,
    PartitionFetch,
    PartitionFetched,
    PartitionFlushed,
    PartitionOffset,
    PartitionProducers,
    PartitionQuery,
    PartitionTruncated,
    PartitionTruncation,
    ProducersQuery,
    ProducersRequest,
    SegmentDescribed,
    SegmentsReply,
    SegmentsRequest,
    SizeQuery,
)
from services.gateway.owners.appends import Appended, AppendMessage, AppendQueue, AppendStream
from services.gateway.owners.commit_view import CommitEvent, CommitView, Key, Waiter
from services.gateway.owners.errors import NEVER_KEPT
from services.gateway.owners.fetches import GatheredFetch, fetch_gatherer
from services.gateway.owners.pending import PendingAppend
from services.gateway.pauses import Pauses
from services.gateway.settings import GatewaySettings

_EXPIRY_SECONDS = 0.1
_FIRST_BACKOFF_SECONDS = 0.05
_LONGEST_BACKOFF_SECONDS = 2.0
_LAST_NEWS_SECONDS = 1.0
"""How long to wait for the last commits of an instance that has left or whose stream has ended."""
_DURABLE_SECONDS, _DURABLE_PART = 1.0, 0.5
"""How long a reply to an Append waits for durable records at most: this time, and this part of a call's timeout."""
_SIZES_WAIT = 0.6
"""The part of a call's timeout for the lookup. The rest is for the answer, or for another owner."""

_log = structlog.get_logger(__name__)


AppendAtOnce = Callable[[AppendMessage, Callable[[CommitEvent], bool]], Sequence[Appended] | None]
"""Appends a message in a storage instance in this process. None, without an effect, if that has to wait.

The second parameter takes the events of the commit stream from then on. It returns False if it does not take one.
"""
Moved = Callable[[Key, str], None]
"""Called with a partition that the instance does not own and its owner (empty if unknown)."""


class _Session:
    """One commit stream, from its start to its end.

    ``nursery`` is set when it is ready, and takes tasks until it is ``over``.
    """

    nursery: trio.Nursery

    def __init__(self, queue: AppendQueue, moved: Moved, *, messages: int, wait: float) -> None:
        self.view = CommitView()
        self.appends = AppendStream(
            secrets.token_hex(16), queue, self.view, moved, most=messages, wait_ms=round(wait * 1000)
        )
        self.scope = trio.CancelScope()
        self.broken_because = ""
        # The stream has ended, and nothing more may be sent on it.
        self.over = False
        # Held by the task that takes the next message.
        self.turn = trio.Lock()

    @property
    def waits(self) -> bool:
        """Whether an append waits for its reply or its commit."""
        return self.appends.busy or self.view.holding

    def apply(self, event: CommitEvent) -> bool:
        """Apply an event of a storage instance in this process. Returns False if the stream has ended."""
        if self.over:
            return False
        try:
            self.view.apply((event,))
        except Exception as error:  # noqa: BLE001  it must not end the caller, which is storage
            _log.exception("commit not applied")
            self.give_up(f"a commit was not applied: {error!r}")
        return True

    def give_up(self, reason: str) -> None:
        self.broken_because = self.broken_because or reason
        self.over = True
        self.scope.cancel()


class StorageLink:
    """Sends the appends in ``queue`` while `run` is running. Without a stream, they wait for one until their producers
    time out.

    ``append_at_once``: messages go there first, one at a time, without a switch to another task.
    """

    def __init__(
        self,
        client: SegmentStorageClient,
        settings: GatewaySettings,
        *,
        moved: Moved,
        pauses: Pauses,
        append_at_once: AppendAtOnce | None = None,
    ) -> None:
        self._client = client
        self._append_at_once = append_at_once
        self._pauses = pauses
        self._moved = moved
        self._timeout = settings.storage_timeout_ms / 1000
        self._silence = settings.commit_silence_ms / 1000
        self._messages = settings.append_messages
        self._room_wait = settings.append_room_wait_ms / 1000
        self._down_since = trio.current_time()
        self.queue = AppendQueue(
            max_bytes=settings.append_queue_bytes,
            message_bytes=settings.append_message_bytes,
            gather=settings.append_gather_ms / 1000,
        )
        self._session: _Session | None = None
        self._gatherer = fetch_gatherer(self._call_fetch, lambda: self.stream_id)
        self._parked: set[Waiter] = set()
        self._life = trio.CancelScope()
        self._fetching = trio.CancelScope()
        self._ended = False

    @property
    def stream_id(self) -> str:
        """The id of the open commit stream, or empty. Commits cannot wake a fetch without one."""
        return self._session.appends.stream_id if self._session else ""

    @property
    def up(self) -> bool:
        """Whether a commit stream is open."""
        return self._session is not None

    @property
    def held(self) -> int:
        """The number of appends that were sent and wait for their reply or their commit."""
        return self._session.view.held + self._session.appends.appends if self._session else 0

    @property
    def parked(self) -> Set[Waiter]:
        """The fetches that wait for new records."""
        return self._parked

    def owes(self, key: Key) -> bool:
        """Whether the instance has gone and appends to the partition have no outcome yet."""
        holds = self._session is not None and self._session.view.holds(key)
        return self._ended and (holds or self.queue.carries(key))

    def send(self, appends: Iterable[PendingAppend] = ()) -> None:
        """Queue the records for the next message. ``finish`` of each is called with its outcome.

        If storage is in this process, all that is queued is appended there at once, unless a message must wait.
        """
        for append in appends:
            self.queue.put(append)
        session = self._session
        if self._append_at_once is None or session is None:
            return
        self._pauses.look()
        while not (self.queue.empty or session.over or session.appends.busy):
            message = session.appends.next_message()
            try:
                results = self._append_at_once(message, session.apply)
            except Exception as error:  # noqa: BLE001  as with a call, the outcome is unknown
                _log.exception("append failed")
                session.give_up(f"an Append failed: {error!r}")
                return
            if results is None:
                session.nursery.start_soon(self._exchange, session, message.sequence, message.request())
            else:
                message.drop_records()
                session.appends.replied(message.sequence, results)

    async def fetch(self, fetches: list[PartitionFetch], max_bytes: int) -> Sequence[PartitionFetched]:
        """Return a result for each partition, by a call of its own or a shared one. Raises Unavailable."""
        if self._ended:
            raise Unavailable("the storage instance has gone")
        if self._all_recent(fetches):
            return self._looked_at(fetches, await self._gatherer.ask(GatheredFetch(fetches, max_bytes)))
        request = FetchRequest(stream_id=self.stream_id, max_bytes=max_bytes, fetches=fetches)
        return self._looked_at(fetches, (await self._call_fetch(request)).results)

    async def _call_fetch(self, request: FetchRequest) -> FetchReply:
        return await self._client.fetch(request, timeout=self._timeout)

    def _all_recent(self, fetches: list[PartitionFetch]) -> bool:
        if self._session is None:
            return False
        view = self._session.view
        return all(
            view.is_recent((fetch.partition.topic_id, fetch.partition.partition), fetch.offset) for fetch in fetches
        )

    async def list_offsets(self, queries: list[PartitionQuery]) -> Sequence[PartitionOffset]:
        """Return a result for each query, by one call. Raises Unavailable."""
        reply = await self._client.list_offsets(ListOffsetsRequest(queries=queries), timeout=self._timeout)
        return self._looked_at(queries, reply.results)

    async def epoch_ends(self, queries: list[EpochQuery]) -> Sequence[EpochEnd]:
        """Return a result for each query, by one call. Raises Unavailable."""
        reply = await self._client.epoch_ends(EpochEndsRequest(queries=queries), timeout=self._timeout)
        return self._looked_at(queries, reply.results)

    async def producers(self, queries: list[ProducersQuery]) -> Sequence[PartitionProducers]:
        """Return a result for each query, by one call. Raises Unavailable."""
        reply = await self._client.producers(ProducersRequest(queries=queries), timeout=self._timeout)
        return self._looked_at(queries, reply.results)

    async def log_sizes(self, queries: list[SizeQuery]) -> Sequence[LogSize]:
        """Return a result for each query, by one call that does not wait for a slow store. Raises Unavailable."""
        request = LogSizesRequest(queries=queries, wait_ms=round(self._timeout * 1000 * _SIZES_WAIT))
        reply = await self._client.log_sizes(request, timeout=self._timeout)
        return self._looked_at(queries, reply.results)

    async def segments(self, queries: list[SegmentsRequest]) -> Sequence[SegmentsReply]:
        """Return a result for each query, by a call for each. Raises Unavailable."""
        replies = [await self._client.segments(query, timeout=self._timeout) for query in queries]
        return self._looked_at(queries, replies)

    async def describe_segment(self, queries: list[DescribeSegmentRequest]) -> Sequence[SegmentDescribed]:
        """Return a result for each query, by a call for each. Raises Unavailable."""
        replies = [await self._client.describe_segment(query, timeout=self._timeout) for query in queries]
        return self._looked_at(queries, replies)

    async def flush(self, partitions: list[PartitionRef]) -> Sequence[PartitionFlushed]:
        """Store what the partitions have buffered; return a result for each, by one call. Raises Unavailable."""
        reply = await self._client.flush(FlushRequest(partitions=partitions), timeout=self._timeout)
        return self._looked_at([PartitionFlushed(partition=ref) for ref in partitions], reply.results)

    async def delete_records(self, truncations: list[PartitionTruncation]) -> Sequence[PartitionTruncated]:
        """Return a result for each partition, by one call. Raises Unavailable."""
        request = DeleteRecordsRequest(partitions=truncations)
        reply = await self._client.delete_records(request, timeout=self._timeout)
        return self._looked_at(truncations, reply.results)

    def _looked_at(self, asked: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        """Return ``results``, one for each query, after noting those that name another owner."""
        if len(results) != len(asked):
            raise Unavailable(f"{len(results)} results for {len(asked)} questions")
        for question, result in zip(asked, results, strict=True):
            if result.status == common_pb2.NOT_OWNER:
                self._moved((question.partition.topic_id, question.partition.partition), result.owner)
        return results

    def is_ahead(self, key: Key, stream_id: str, epoch: int, high_watermark: int) -> bool:
        """Whether another fetch may return more than one on ``stream_id`` that was answered with this epoch and end."""
        if self._session is None:
            return False
        return stream_id != self.stream_id or self._session.view.is_ahead(key, epoch, high_watermark)

    def park(self, keys: list[Key], waiter: Waiter) -> None:
        """Wake ``waiter`` when one of the partitions changes, and when the commit stream ends or starts."""
        self._parked.add(waiter)
        if self._session is not None:
            for key in keys:
                self._session.view.watch(key, waiter)

    def unpark(self, keys: list[Key], waiter: Waiter) -> None:
        self._parked.discard(waiter)
        if self._session is not None:
            for key in keys:
                self._session.view.unwatch(key, waiter)

    def wake(self, key: Key) -> None:
        """Wake the fetches that wait for one partition; without a stream all, because theirs are unknown."""
        if self._session is not None:
            self._session.view.wake(key)
        else:
            self.wake_all()

    @property
    def unsent(self) -> Sequence[Key]:
        """The partitions with appends that wait for a stream."""
        return () if self._session else self.queue.keys

    def refuse_unsent(self, key: Key) -> None:
        """Refuse the partition's appends that wait for a stream and were never sent, because it has moved."""
        if self._session is None and self.queue.carries(key):
            self.queue.refuse(key, NEVER_KEPT)

    def wake_all(self) -> None:
        """Wake every parked fetch."""
        for waiter in self._parked:
            waiter.wake()

    def end(self) -> None:
        """End the link, because the instance has gone: refuse unsent appends, wake fetches, and let `run` return.

        The stream gets some time to report the last commits, because it may be behind the news that the instance has
        left, and committed records must not be answered as if they might be lost.
        """
        self._ended = True
        if self._session is None or not self._session.waits:
            self._life.cancel()
        self._life.deadline = trio.current_time() + _LAST_NEWS_SECONDS
        self.queue.end()
        self._fetching.cancel()
        self._gatherer.end()
        self.wake_all()

    async def run(self) -> None:
        """Keep a commit stream up until cancelled, or ended."""
        with self._life, self._pauses.calling_on_pause(lambda: self.queue.refuse_all(NEVER_KEPT)):
            await self._run()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            nursery.start_soon(self._gather)
            backoff = _FIRST_BACKOFF_SECONDS
            while True:
                wait = min(_DURABLE_SECONDS, _DURABLE_PART * self._timeout) if self._append_at_once is None else 0.0
                session = _Session(self.queue, self._moved, messages=self._messages, wait=wait)
                if await self._run_session(session):
                    backoff = _FIRST_BACKOFF_SECONDS
                if self._ended:
                    self._life.cancel()
                    return
                _log.warning("commit stream reopened", reason=session.broken_because)
                await trio.sleep(backoff * random.uniform(0.5, 1.5))  # noqa: S311  jitter, not a secret
                backoff = min(2 * backoff, _LONGEST_BACKOFF_SECONDS)

    async def _gather(self) -> None:
        with self._fetching:
            await self._gatherer.run()

    async def _run_session(self, session: _Session) -> bool:
        """Run one stream until it breaks. Return True if it was ready at some time."""
        try:
            with session.scope:
                request = CommitsRequest(stream_id=session.appends.stream_id)
                async with self._client.commits(request) as stream, trio.open_nursery() as nursery:
                    try:
                        await self._follow(session, stream, nursery)
                    except KafscaleError:
                        session.over = True
                        # Replies may arrive after the end of the stream that reported their commits.
                        with trio.move_on_after(_LAST_NEWS_SECONDS):
                            await session.appends.quiet()
                        raise
                    finally:
                        session.over = True
        except* KafscaleError as errors:
            session.give_up(str(errors.exceptions[0]))
        finally:
            was_ready = self._session is session
            self._end(session)
        return was_ready

    async def _follow(self, session: _Session, stream: MessageStream[CommitsEvent], nursery: trio.Nursery) -> None:
        with trio.move_on_after(self._silence) as silence:
            while True:
                event = await stream.receive()
                # Moving a deadline costs more than handling most events, so it is moved in steps.
                earliest = trio.current_time() + self._silence
                if earliest > silence.deadline:
                    silence.deadline = earliest + self._silence / 8
                if event.ready and self._session is None:
                    self._begin(session, nursery)
                self.queue.answered(session.view.apply(event.committed))
        session.give_up(f"silent for {self._silence:g} s")

    def _begin(self, session: _Session, nursery: trio.Nursery) -> None:
        self._session = session
        self.queue.stuck = False
        session.nursery = nursery
        if self._append_at_once is None:
            for _ in range(self._messages):
                nursery.start_soon(self._send_messages, session)
        self.send()
        self.wake_all()

    def _end(self, session: _Session) -> None:
        if self._session is not session:
            return
        self._session = None
        self._down_since = trio.current_time()
        session.appends.end()
        session.view.end()
        self.queue.refuse_all(NEVER_KEPT)
        self.wake_all()

    async def _send_messages(self, session: _Session) -> None:
        while True:
            async with session.turn:
                await self.queue.wait_for_work()
                self._pauses.look()
                if session.over:
                    return
                if self.queue.empty:
                    continue
                message = session.appends.next_message()
                sequence, request = message.sequence, message.request()
                # It would keep the connections of its producers in memory.
                del message
            await self._exchange(session, sequence, request)

    async def _exchange(self, session: _Session, sequence: int, request: AppendRequest) -> None:
        try:
            reply = await self._client.append(request, timeout=self._timeout)
        except KafscaleError as error:
            session.give_up(f"an Append has no answer: {error}")
            return
        self.queue.answered(session.appends.replied(sequence, reply.results, reply.committed))
        self.send()

    async def _expire(self) -> None:
        """Answer producers whose timeout has expired."""
        while True:
            await self.queue.wait_for_use()
            await trio.sleep(_EXPIRY_SECONDS)
            now = trio.current_time()
            session = self._session
            self.queue.expire(now)
            self.queue.stuck = session is None and now - self._down_since >= self._room_wait
            if session is not None:
                session.appends.expire(now)
                session.view.expire(now)
            if self.queue.empty and (session is None or not session.waits):
                self.queue.rest()
