"""Fetch (1), versions 4 to 18: reads durable records.

- 4: the isolation level. There are no transactions, so both levels return the same records.
- 5: adds log start offsets.
- 7: adds fetch sessions, which each gateway keeps for itself.
- 9: adds the leader epoch.
- 10: allows zstd. As in Kafka 4, zstd batches are also returned in earlier versions.
- 11: adds the client's rack and a preferred replica, which is never set.
- 12: flexible.
- 13: identifies topics by id.
- 15: the replica id becomes a tagged field.
- 16: adds leader hints, which are optional and not sent.
- 17, 18: add tagged fields for brokers.
- 6, 8, 14: no changes.

A request that finds less than it asks for is parked after storage has answered it once. Commits and changes of owner
wake it. It then continues where it stopped and reads only the partitions that may have more. Size limits apply to all
partitions together, but at least one complete batch is returned.

A storage instance that does not answer delays the records of other instances by at most KAFSCALE_OWNER_GRACE_MS. Its
partitions are then answered with NOT_LEADER_OR_FOLLOWER and no high watermark, so the client keeps its position and
retries. An empty result with the last known high watermark would make a reader at that offset believe that it has
caught up.

A client that exceeds its quota gets a response without partitions, and its session stays as it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio
from kio.schema.errors import ErrorCode

from kafscale.errors import KafscaleError
from kafscale.kafka.fetch import (
    API_KEY,
    NAMES_BY_ID_FROM,
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopicResults,
    decode_request,
    encode_response,
)
from kafscale.records.batch import walk
from kafscale.security.asks import READ_TOPIC
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import PartitionFetch, PartitionFetched
from services.gateway.api import Api, Call, Order, Work
from services.gateway.fetch_sessions import Visit
from services.gateway.owners.commit_view import Key, Waiter
from services.gateway.owners.errors import NEVER_KEPT, checked_epoch, code_of
from services.gateway.owners.link import StorageLink
from services.gateway.owners.questions import owners_grace
from services.gateway.owners.routing import Router
from services.gateway.topic_cache import KnownTopic

_READ_COMMITTED = 1
_LONGEST_WAIT_MS = 300_000


@dataclass(slots=True)
class _Position:
    """The progress of one partition's result.

    ``link``, ``epoch``, ``high_watermark`` and ``stream_id`` are those of the last read. ``known_epoch`` is the epoch
    in the ownership map when that read began. ``high_watermark`` is -1 if an owner that cannot confirm its lease has
    answered. The partition is then read again instead of waiting for a commit.
    """

    key: Key
    partition: common_pb2.PartitionRef
    result: FetchResult
    offset: int
    budget: int
    leader_epoch: int
    link: StorageLink | None = None
    records: list[bytes] = field(default_factory=list)
    epoch: int = -1
    known_epoch: int = -1
    high_watermark: int = -1
    stream_id: str = ""

    def may_have_more(self, router: Router) -> bool:
        if self.budget <= 0 or self.link is None:
            return False
        if self.link.is_ahead(self.key, self.stream_id, self.epoch, self.high_watermark):
            return True
        # An instance that releases a partition and acquires it again reports no commits of it until the next read.
        if router.epoch(self.key) > max(self.epoch, self.known_epoch):
            return True
        return router.link(self.key) is not self.link

    @property
    def cut_short(self) -> bool:
        """Whether committed records are missing from the result only because of a limit."""
        return self.offset < self.high_watermark

    def take(self, fetched: PartitionFetched, stream_id: str, *, room: int, first: bool, by_id: bool) -> int:
        """Add the result of a read and return the number of record bytes added.

        ``room`` is the number of bytes left in the response. The ``first`` records of a response may exceed it.
        """
        self.stream_id = stream_id
        if fetched.status != common_pb2.OK:
            if not self.records:
                # As in Kafka, an error comes without a high watermark. That of an earlier round is dropped.
                self.result.high_watermark, self.result.log_start_offset = -1, fetched.log_start
            self.fail(code_of(fetched.status, by_id=by_id))
            return 0
        self.epoch, self.high_watermark = fetched.epoch, fetched.high_watermark
        self.result.high_watermark, self.result.log_start_offset = fetched.high_watermark, fetched.log_start
        records = fetched.records
        if not records:
            return 0
        if not first and len(records) > (min(room, self.budget) if self.records else room):
            self.budget = 0
            return 0
        self.records.append(records)
        self.budget -= len(records)
        return len(records)

    def fail(self, error: ErrorCode) -> None:
        """End the read. Records of earlier rounds are returned without the error, and the client retries the rest."""
        if not self.records:
            self.result.error_code = error
        self.budget = 0

    def fail_unanswered(self) -> None:
        """End the read because storage did not answer. The high watermark of an earlier round is dropped."""
        if not self.records:
            self.result.high_watermark = -1
        self.fail(NEVER_KEPT)

    def deny(self) -> None:
        """Return nothing of the partition, because the client may not read it any more."""
        self.result.error_code = ErrorCode.topic_authorization_failed
        self.result.high_watermark = self.result.log_start_offset = -1

    def read_on(self) -> None:
        """Advance the offset past the last records. Needed only before the fetch waits for more."""
        if self.records:
            self.offset = max(header.next_offset for _, header in walk(self.records[-1]))


class _Fetch:
    """One request, whose partitions are read in one or more rounds."""

    def __init__(self, call: Call, request: FetchRequest, visit: Visit) -> None:
        self.call = call
        self.visit = visit
        self.router = call.environment.router
        self.by_id = call.version >= NAMES_BY_ID_FROM
        self.room = max(1, min(request.max_bytes, call.environment.settings.max_fetch_bytes))
        if call.charge is not None:
            self.room = call.charge.most_to_fetch(self.room)
        self.min_bytes = min(request.min_bytes, self.room)
        self.deadline = trio.current_time() + min(max(request.max_wait_ms, 0), _LONGEST_WAIT_MS) / 1000
        self.aborted = 0 if request.isolation_level == _READ_COMMITTED else None
        self.topics: list[FetchTopicResults] = []
        self.positions: list[_Position] = []
        self.failed = False
        self.answered = False
        self.got = 0
        for topic in visit.topics:
            known = call.environment.topics.find(topic.name, topic.topic_id)
            name = topic.name if known is None else known.info.name
            allowed = call.client.authorization.allows(READ_TOPIC, name) or (self.by_id and known is None)
            results = [self._place(known, partition, allowed=allowed) for partition in topic.partitions]
            self.topics.append(FetchTopicResults(topic.name, topic.topic_id, results))

    def _place(self, known: KnownTopic | None, partition: FetchPartition, *, allowed: bool) -> FetchResult:
        result = FetchResult(partition.index)
        if not allowed:
            result.error_code = ErrorCode.topic_authorization_failed
        elif known is None:
            result.error_code = ErrorCode.unknown_topic_id if self.by_id else ErrorCode.unknown_topic_or_partition
        elif not 0 <= partition.index < len(known.partitions):
            result.error_code = ErrorCode.unknown_topic_or_partition
        else:
            position = _Position(
                (known.info.id, partition.index),
                known.partitions[partition.index],
                result,
                partition.offset,
                max(partition.max_bytes, 1),
                checked_epoch(partition.current_leader_epoch),
            )
            self.positions.append(position)
        self.failed = self.failed or bool(result.error_code)
        return result

    @property
    def settled(self) -> bool:
        """Whether to respond now: after an error, with enough bytes, at the deadline, or with nothing to wait for."""
        if self.failed or self.got >= self.min_bytes or self.call.environment.stopping or not self.positions:
            return True
        if trio.current_time() >= self.deadline:
            return True
        for position in self.positions:
            position.read_on()
        return self.got > 0 and any(position.cut_short for position in self.positions)

    async def read(self, positions: list[_Position]) -> None:
        """Make one concurrent call to each storage instance, and a second one for partitions that have moved.

        Sets ``failed`` after an error, whether or not an earlier round returned records.
        """
        moved = await self._read_all(positions, believe=True)
        if moved:
            await self._read_all(moved, believe=False)

    async def _read_all(self, positions: list[_Position], *, believe: bool) -> list[_Position]:
        by_link: dict[StorageLink, list[_Position]] = {}
        for position in positions:
            position.link, position.known_epoch = self.router.link(position.key), self.router.epoch(position.key)
            if position.link is None:
                position.fail(NEVER_KEPT)
                self.failed = True
            else:
                by_link.setdefault(position.link, []).append(position)
        moved: list[_Position] = []
        shares = self._shares(list(by_link.values()))
        held_up = self.answered and len(positions) < len(self.positions)
        with owners_grace(self.router.owner_grace_ms, begun=held_up) as answered:
            if len(by_link) == 1:
                ((link, group),) = by_link.items()
                await self._read_from(link, group, shares[0], moved if believe else None, answered)
            else:
                async with trio.open_nursery() as nursery:
                    for (link, group), share in zip(by_link.items(), shares, strict=True):
                        nursery.start_soon(self._read_from, link, group, share, moved if believe else None, answered)
        return moved

    def _shares(self, groups: list[list[_Position]]) -> list[int]:
        """The maximum bytes for each instance: a share of the remaining bytes in proportion to what is requested."""
        remaining = max(self.room - self.got, 0)
        if len(groups) == 1 or not remaining:
            return [remaining] * len(groups)
        requested = [sum(position.budget for position in group) for group in groups]
        total = sum(requested)
        return [max(1, min(each, remaining * each // total)) for each in requested]

    async def _read_from(
        self,
        link: StorageLink,
        positions: list[_Position],
        share: int,
        moved: list[_Position] | None,
        answered: Callable[[], None],
    ) -> None:
        """Read ``positions`` from one instance. Partitions that another instance owns are added to ``moved``.

        If ``moved`` is None, NOT_OWNER becomes the partition's error.
        """
        fetches = [
            PartitionFetch(
                partition=position.partition,
                offset=position.offset,
                max_bytes=position.budget,
                leader_epoch=position.leader_epoch,
            )
            for position in positions
        ]
        memory = self.call.environment.reply_memory
        max_bytes = max(1, min(share, memory.room)) if share else 0
        memory.used += max_bytes
        taken = 0
        stream_id = link.stream_id
        unanswered = True
        try:
            results = await link.fetch(fetches, max_bytes)
            unanswered = False
            self.answered = True
            answered()
            for position, fetched in zip(positions, results, strict=True):
                if (
                    moved is not None
                    and fetched.status == common_pb2.NOT_OWNER
                    and self.router.link(position.key) not in (None, link)
                ):
                    moved.append(position)
                    continue
                room, first = self.room - self.got, self.got == 0
                size = position.take(fetched, stream_id, room=room, first=first, by_id=self.by_id)
                self.got += size
                taken += size
                self.failed = self.failed or fetched.status != common_pb2.OK
        except KafscaleError:
            # Refused too, if another kind of service now has the address. The link's commit stream logs it.
            pass
        finally:
            memory.used += taken - max_bytes
            if unanswered:
                for position in positions:
                    position.fail_unanswered()
                self.failed = True

    async def wait_for_more(self) -> list[_Position]:
        """Wait for partitions that have more records or have moved, and return them. Empty at the deadline."""
        waiter = Waiter()
        by_link: dict[StorageLink, list[Key]] = {}
        for position in self.positions:
            if position.link is not None:
                by_link.setdefault(position.link, []).append(position.key)
        for link, keys in by_link.items():
            link.park(keys, waiter)
        try:
            more = self._with_more()
            if not more:
                with trio.move_on_at(self.deadline):
                    await waiter.event.wait()
                more = self._with_more()
        finally:
            for link, keys in by_link.items():
                link.unpark(keys, waiter)
        return more

    def _with_more(self) -> list[_Position]:
        return [position for position in self.positions if position.may_have_more(self.router)]

    def reply(self) -> None:
        charge = self.call.charge
        if charge is not None and not charge.fetched(self.got):
            self._reply_throttled(charge.settle())
            return
        for position in self.positions:
            # The fetch may have waited for long.
            if self.call.client.authorization.shows(READ_TOPIC, position.partition.topic):
                position.result.records = position.records
            else:
                position.deny()
        codes = (result.error_code for topic in self.topics for result in topic.results)
        self.call.environment.counters.answered(API_KEY, codes)
        throttle_ms = 0 if charge is None else charge.settle()
        match self.visit.answer(self.topics):
            case ErrorCode() as error:
                self.call.environment.counters.answered(API_KEY, [error])
                self.call.reply(*encode_response([], self.call.version, error_code=error, throttle_ms=throttle_ms))
            case session_id, topics:
                pieces = encode_response(
                    topics,
                    self.call.version,
                    session_id=session_id,
                    aborted=self.aborted,
                    throttle_ms=throttle_ms,
                )
                self.call.reply(*pieces)

    def _reply_throttled(self, throttle_ms: int) -> None:
        """Respond without the partitions, because the client has exceeded its quota."""
        session_id, error = self.visit.withhold()
        self.call.environment.counters.answered(API_KEY, [error])
        pieces = encode_response(
            [], self.call.version, error_code=error, session_id=session_id, throttle_ms=throttle_ms
        )
        self.call.reply(*pieces)


def handle(call: Call) -> Work | None:
    request = decode_request(call.request.body, call.version)
    visit = call.environment.fetch_sessions.visit(request, call.version)
    if isinstance(visit, ErrorCode):
        call.environment.counters.answered(API_KEY, [visit])
        call.reply(*encode_response([], call.version, error_code=visit))
        return None
    return _serve(_Fetch(call, request, visit))


async def _serve(fetch: _Fetch) -> None:
    try:
        await fetch.read(fetch.positions)
        while not fetch.settled:
            more = await fetch.wait_for_more()
            if more:
                await fetch.read(more)
        fetch.reply()
    finally:
        # From now on the connection counts the bytes that it has not sent.
        fetch.call.environment.reply_memory.used -= fetch.got


def fail(call: Call, error: ErrorCode) -> None:
    request = decode_request(call.request.body, call.version)
    topics = [
        FetchTopicResults(
            topic.name, topic.topic_id, [FetchResult(partition.index, error) for partition in topic.partitions]
        )
        for topic in request.topics
    ]
    call.environment.counters.answered(API_KEY, (result.error_code for topic in topics for result in topic.results))
    call.reply(*encode_response(topics, call.version, error_code=error))


API = Api(API_KEY, "Fetch", range(4, 19), handle, fail, order=Order.READS, asks=(READ_TOPIC,))
