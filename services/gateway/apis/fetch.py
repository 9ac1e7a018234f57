"""Fetch (1), versions 4 to 18: committed records out of the log.

- 4: the isolation level (there are no transactions: both levels read the same). 5: log start offsets. 6: as 5.
- 7: fetch sessions, kept by each gateway for itself. 8: same on the wire. 9: the leader epoch.
- 10: same on the wire; zstd batches are returned in the versions before too, as by Kafka 4. 11: rack and preferred
  replica (none). 12: flexible. 13: topics are named by id. 14: as 13. 15: the replica id moves into a tag.
- 16: leader hints (optional, not sent). 17, 18: tags for brokers.

A request that finds less than it asks for is parked after storage has answered it once, and is woken by commits and by
changes of owner; it reads on where it stopped, in those partitions only that may have more. Limits hold over all
partitions; one whole batch is always given.

A storage instance that says nothing holds up what others gave only for the owners' grace (`owners_grace`). Its
partitions are then answered NOT_LEADER_OR_FOLLOWER, with no high watermark: the client keeps its position and asks
again. An empty answer with the last known high watermark would tell a reader at that offset that it is caught up.
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
    """Where one partition's answer has got to.

    ``link``, ``epoch``, ``high_watermark`` and ``stream_id``: as of its last read; ``known_epoch``: the epoch that the
    ownership map told when that was asked for.
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
        # An instance that gives a partition back and gets it again tells the stream no more of it, until asked.
        if router.epoch(self.key) > max(self.epoch, self.known_epoch):
            return True
        return router.link(self.key) is not self.link

    @property
    def cut_short(self) -> bool:
        """Whether only a limit kept committed records out of the answer."""
        return self.offset < self.high_watermark

    def take(self, fetched: PartitionFetched, stream_id: str, *, room: int, first: bool, by_id: bool) -> int:
        """Add what a read gave, the ``first`` records of the answer even beyond ``room``; the bytes that were added."""
        self.stream_id = stream_id
        if fetched.status != common_pb2.OK:
            if not self.records:
                # As in Kafka: an error tells no high watermark, least of all that of an earlier round.
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
        """What came before the error is still given, without it: the client asks for the rest anew."""
        if not self.records:
            self.result.error_code = error
        self.budget = 0

    def fail_unanswered(self) -> None:
        """Nobody has said how far the log is now: what an earlier round was told is not passed on."""
        if not self.records:
            self.result.high_watermark = -1
        self.fail(NEVER_KEPT)

    def read_on(self) -> None:
        """Go behind the records that came last; only a fetch that may wait needs to know."""
        if self.records:
            self.offset = max(header.next_offset for _, header in walk(self.records[-1]))


class _Fetch:
    """One request: the answers of its partitions, read in one or more rounds."""

    def __init__(self, call: Call, request: FetchRequest, visit: Visit) -> None:
        self.call = call
        self.visit = visit
        self.router = call.environment.router
        self.by_id = call.version >= NAMES_BY_ID_FROM
        self.room = max(1, min(request.max_bytes, call.environment.settings.max_fetch_bytes))
        self.wanted = min(request.min_bytes, self.room)
        self.deadline = trio.current_time() + min(max(request.max_wait_ms, 0), _LONGEST_WAIT_MS) / 1000
        self.aborted = 0 if request.isolation_level == _READ_COMMITTED else None
        self.topics: list[FetchTopicResults] = []
        self.positions: list[_Position] = []
        self.failed = False
        self.answered = False
        self.got = 0
        for topic in visit.topics:
            known = call.environment.topics.find(topic.name, topic.topic_id)
            results = [self._place(known, partition) for partition in topic.partitions]
            self.topics.append(FetchTopicResults(topic.name, topic.topic_id, results))

    def _place(self, known: KnownTopic | None, partition: FetchPartition) -> FetchResult:
        result = FetchResult(partition.index)
        if known is None:
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
        """Whether to answer now: an error, enough bytes, nothing to wait for, or no time left."""
        if self.failed or self.got >= self.wanted or self.call.environment.stopping or not self.positions:
            return True
        if trio.current_time() >= self.deadline:
            return True
        for position in self.positions:
            position.read_on()
        return self.got > 0 and any(position.cut_short for position in self.positions)

    async def read(self, positions: list[_Position]) -> None:
        """One round: a call to each storage instance concerned, all at the same time; who has moved is asked for again.

        ``failed`` tells of an error, with records from earlier rounds or without.
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
        """What each instance may give of the room that is left: by what is asked of it, where that is too much."""
        left = max(self.room - self.got, 0)
        if len(groups) == 1 or not left:
            return [left] * len(groups)
        asked = [sum(position.budget for position in group) for group in groups]
        total = sum(asked)
        return [max(1, min(each, left * each // total)) for each in asked]

    async def _read_from(
        self,
        link: StorageLink,
        positions: list[_Position],
        share: int,
        moved: list[_Position] | None,
        answered: Callable[[], None],
    ) -> None:
        """``moved``: gets those that another instance is said to own; None: what is said is answered."""
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
        asked = max(1, min(share, memory.room)) if share else 0
        memory.used += asked
        taken = 0
        stream_id = link.stream_id
        unanswered = True
        try:
            results = await link.fetch(fetches, asked)
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
            # Refused too: an address that another kind of service has now. The link's stream has it in the log.
            pass
        finally:
            memory.used += taken - asked
            if unanswered:
                for position in positions:
                    position.fail_unanswered()
                self.failed = True

    async def wait_for_more(self) -> list[_Position]:
        """The partitions that have more by now, or moved; none when the time is over."""
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
        for position in self.positions:
            position.result.records = position.records
        codes = (result.error_code for topic in self.topics for result in topic.results)
        self.call.environment.counters.answered(API_KEY, codes)
        match self.visit.answer(self.topics):
            case ErrorCode() as error:
                self.call.environment.counters.answered(API_KEY, [error])
                self.call.reply(*encode_response([], self.call.version, error_code=error))
            case session_id, told:
                pieces = encode_response(told, self.call.version, session_id=session_id, aborted=self.aborted)
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
        # From the reply on, the connection counts what it has not sent.
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


API = Api(API_KEY, "Fetch", range(4, 19), handle, fail, order=Order.READS)
