"""Fetch sessions: both sides send only changes, errors are reported, and sessions are bounded."""

from typing import Any

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.kafka.fetch import FetchPartition, FetchRequest, FetchResult, FetchTopic, FetchTopicResults
from kafscale.metadata.topic_values import TopicInfo
from services.gateway.fetch_sessions import FetchSessions
from tests.support.gateway.asking import fetch, fetch_body, parts, produce
from tests.support.gateway.harness import Client, batch, read_response, running_gateway

VERSION = 13
LARGEST_EPOCH = 2**31 - 1


class Reader:
    """A client with a session. ``ask`` sends changes, with the session's id and its next epoch."""

    def __init__(self, client: Client, version: int, topics: dict[str, TopicInfo]) -> None:
        self.client = client
        self.version = version
        self.topics = topics
        self.session_id = 0
        self.epoch = 0

    async def ask(self, changed: dict[tuple[str, int], int] | None = None, **options: Any) -> Any:
        options = {"max_wait_ms": 0, "version": self.version, "topics": self.topics} | options
        position = {"session_id": self.session_id, "session_epoch": self.epoch}
        reply = await fetch(self.client, changed or {}, **position, **options)
        self.session_id = reply.session_id
        self.epoch += 1
        return reply

    def named(self, reply: Any) -> list[tuple[str, int]]:
        """Return the partitions of a reply, in its order."""
        names = {info.id: name for name, info in self.topics.items()}
        return [
            (names[topic.topic_id.bytes] if self.version >= VERSION else topic.topic, part.partition_index)
            for topic in reply.responses
            for part in topic.partitions
        ]


@pytest.mark.parametrize("version", range(7, 19))
async def test_a_session_gets_only_changed_partitions(version: int) -> None:
    async with running_gateway() as harness:
        topics = {name: await harness.topic(name, 2) for name in ("t", "u")}
        reader = Reader(await harness.connect(), version, topics)
        everything = {(name, index): 0 for name in topics for index in range(2)}
        first = await reader.ask(everything)
        assert (first.error_code, len(parts(first))) == (0, 4)
        session_id = reader.session_id
        assert session_id > 0
        assert parts(await reader.ask()) == []
        producer = await harness.connect()
        await produce(producer, batch(b"a"), topic="u", partition=1)
        changes = await reader.ask()
        assert reader.named(changes) == [("u", 1)]
        assert (parts(changes)[0].high_watermark, bool(parts(changes)[0].records)) == (1, True)
        # The reader sends the offset behind the record, forgets another partition, and adds nothing.
        assert parts(await reader.ask({("u", 1): 1}, forgotten={"t": (0,)})) == []
        await produce(producer, batch(b"b"), topic="t", partition=0)
        await produce(producer, batch(b"c"), topic="t", partition=1)
        assert reader.named(await reader.ask()) == [("t", 1)]
        # A new partition of a session is returned with or without records.
        assert reader.named(await reader.ask({("t", 1): 1, ("t", 0): 1})) == [("t", 0)]
        assert reader.session_id == session_id
        assert harness.gateway.fetch_sessions.partitions == 4


async def test_empty_and_closed_sessions_are_removed() -> None:
    async with running_gateway() as harness:
        topics = {"t": await harness.topic("t", 2)}
        sessions = harness.gateway.fetch_sessions
        reader = Reader(await harness.connect(), VERSION, topics)
        await reader.ask({("t", 0): 0})
        reply = await reader.ask(forgotten={"t": (0,)}, max_wait_ms=60_000)
        assert (reply.error_code, reply.session_id, parts(reply), len(sessions)) == (0, 0, [], 0)
        other = Reader(reader.client, VERSION, topics)
        await other.ask({("t", 0): 0})
        gone, other.epoch = other.session_id, -1
        closing = await other.ask({("t", 1): 0})
        assert (closing.session_id, other.named(closing), len(sessions)) == (0, [("t", 1)], 0)
        other.session_id, other.epoch = gone, 1
        assert (await other.ask()).error_code == ErrorCode.fetch_session_id_not_found
        assert sessions.partitions == 0


async def test_a_full_request_replaces_the_session_that_it_names() -> None:
    async with running_gateway() as harness:
        topics = {"t": await harness.topic("t", 2)}
        reader = Reader(await harness.connect(), VERSION, topics)
        await reader.ask({("t", 0): 0})
        first, reader.epoch = reader.session_id, 0
        assert reader.named(await reader.ask({("t", 1): 0})) == [("t", 1)]
        assert reader.session_id not in (0, first)
        assert (len(harness.gateway.fetch_sessions), harness.gateway.fetch_sessions.partitions) == (1, 1)


@pytest.mark.parametrize(
    ("known", "epoch", "version", "error"),
    [
        (False, 1, VERSION, ErrorCode.fetch_session_id_not_found),
        (True, 2, VERSION, ErrorCode.invalid_fetch_session_epoch),
        (True, LARGEST_EPOCH, VERSION, ErrorCode.invalid_fetch_session_epoch),
        (True, 1, VERSION - 1, ErrorCode.fetch_session_topic_id_error),
    ],
)
async def test_requests_out_of_step_are_refused_and_leave_the_session_unchanged(
    known: bool, epoch: int, version: int, error: ErrorCode
) -> None:
    async with running_gateway() as harness:
        topics = {"t": await harness.topic()}
        reader = Reader(await harness.connect(), VERSION, topics)
        await reader.ask({("t", 0): 0})
        session_id = reader.session_id
        wrong = {"session_id": session_id if known else session_id ^ 1, "session_epoch": epoch, "version": version}
        reply = await fetch(reader.client, {}, **wrong)
        assert (reply.error_code, reply.session_id, parts(reply)) == (error, 0, [])
        assert (await reader.ask()).error_code == 0


async def test_id_0_continues_no_session() -> None:
    async with running_gateway() as harness:
        client = await harness.connect()
        reply = await fetch(client, {}, session_id=0, session_epoch=5)
        assert reply.error_code == ErrorCode.fetch_session_id_not_found


async def test_errors_are_repeated_and_the_partition_is_returned_after_them() -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        client = await harness.connect()
        await produce(client, batch(b"a"))
        reader = Reader(client, 12, {"t": topic})
        await reader.ask({("t", 0): 1})
        assert parts(await reader.ask()) == []
        for _ in range(2):
            (part,) = parts(await reader.ask({("t", 0): 9}))
            assert part.error_code == ErrorCode.offset_out_of_range
        (part,) = parts(await reader.ask({("t", 0): 1}))
        assert (part.error_code, part.high_watermark, part.records) == (0, 1, b"")
        assert parts(await reader.ask()) == []


async def test_a_session_rotates_partitions_that_do_not_fit_into_one_reply() -> None:
    async with running_gateway() as harness:
        topics = {"t": await harness.topic("t", 3)}
        client = await harness.connect()
        for index in range(3):
            for _ in range(3):
                await produce(client, batch(b"x" * 4000), partition=index)
        reader = Reader(client, VERSION, topics)
        returned: list[int] = []
        changed = {("t", index): 0 for index in range(3)}
        for _ in range(6):
            reply = await reader.ask(changed, max_bytes=5000)
            (part,) = [part for part in parts(reply) if part.records]
            returned.append(part.partition_index)
            changed = {("t", part.partition_index): returned.count(part.partition_index)}
        assert returned == [0, 0, 1, 2, 0, 1]


async def test_a_request_overtaken_by_the_next_one_gets_an_error() -> None:
    async with running_gateway() as harness:
        topics = {"t": await harness.topic()}
        reader = Reader(await harness.connect(), VERSION, topics)
        await reader.ask({("t", 0): 0})
        for epoch, wait in ((1, 60_000), (2, 0)):
            body = fetch_body({}, session_id=reader.session_id, session_epoch=epoch, max_wait_ms=wait, version=VERSION)
            await reader.client.send(1, VERSION, body)
        await wait_all_tasks_blocked(0.02)
        await produce(await harness.connect(), batch(b"a"))
        replies = [read_response(1, VERSION, (await reader.client.receive())[1]) for _ in range(2)]
        assert [reply.error_code for reply in replies] == [ErrorCode.invalid_fetch_session_epoch, 0]


async def test_a_session_that_ends_during_a_waiting_request_causes_no_failure() -> None:
    async with running_gateway() as harness:
        topics = {"t": await harness.topic()}
        reader = Reader(await harness.connect(), 12, topics)
        await reader.ask({("t", 0): 0})
        gone: list[dict[str, tuple[int, ...]]] = [{}, {"t": (0,)}]
        for epoch, forgotten, wait in ((1, gone[0], 60_000), (2, gone[1], 0)):
            body = fetch_body(
                {}, session_id=reader.session_id, session_epoch=epoch, max_wait_ms=wait, forgotten=forgotten
            )
            await reader.client.send(1, 12, body)
        await wait_all_tasks_blocked(0.02)
        await produce(await harness.connect(), batch(b"a"))
        replies = [read_response(1, 12, (await reader.client.receive())[1]) for _ in range(2)]
        assert [reply.error_code for reply in replies] == [ErrorCode.invalid_fetch_session_epoch, 0]
        assert not harness.parts.counters.broken


@pytest.mark.parametrize("epoch", [0, 1])
async def test_sessions_with_illegal_topic_names_are_not_kept(epoch: int) -> None:
    async with running_gateway() as harness:
        topic = await harness.topic()
        reader = Reader(await harness.connect(), 12, {"t": topic, "x" * 250: topic})
        if epoch:
            await reader.ask({("t", 0): 0})
        reply = await reader.ask({("x" * 250, 0): 0})
        assert (reply.session_id, len(harness.gateway.fetch_sessions)) == (0, 0)
        assert reply.error_code == (ErrorCode.fetch_session_id_not_found if epoch else 0)


async def test_a_session_with_a_long_waiting_request_is_in_use(mock_clock: MockClock) -> None:
    sessions = FetchSessions(1, 100)
    session_id = _open(sessions, 1)
    visit = sessions.visit(_request(session_id, 1, range(0)), 12)
    assert not isinstance(visit, ErrorCode)
    mock_clock.jump(200)
    visit.answer([])
    assert _open(sessions, 1) == 0


async def test_a_reader_without_a_free_slot_reads_without_a_session() -> None:
    async with running_gateway(max_fetch_sessions=1) as harness:
        topics = {"t": await harness.topic()}
        first, second = [Reader(await harness.connect(), VERSION, topics) for _ in range(2)]
        await first.ask({("t", 0): 0})
        for _ in range(2):
            reply = await second.ask({("t", 0): 0}, version=VERSION)
            assert (reply.error_code, reply.session_id, second.named(reply)) == (0, 0, [("t", 0)])
            second.epoch = 0
        assert (await first.ask()).error_code == 0


def _request(session_id: int, epoch: int, indexes: range, forgotten: range = range(0)) -> FetchRequest:
    topics = [FetchTopic("t", b"", [FetchPartition(index, -1, 0, 1) for index in indexes])]
    return FetchRequest(-1, 0, 1, 1, 0, session_id, epoch, topics, [("t", b"", index) for index in forgotten])


def _open(sessions: FetchSessions, count: int) -> int:
    request = _request(0, 0, range(count))
    results = [FetchTopicResults("t", b"", [FetchResult(index) for index in range(count)])]
    visit = sessions.visit(request, 12)
    assert not isinstance(visit, ErrorCode)
    answer = visit.answer(results)
    assert not isinstance(answer, ErrorCode)
    return answer[0]


async def test_the_session_idle_longest_is_evicted_if_it_is_stale(mock_clock: MockClock) -> None:
    sessions = FetchSessions(2, 100)
    first, second = _open(sessions, 1), _open(sessions, 1)
    mock_clock.jump(100)
    assert not isinstance(sessions.visit(_request(first, 1, range(0)), 12), ErrorCode)
    assert _open(sessions, 1) == 0
    mock_clock.jump(21)
    third = _open(sessions, 1)
    assert third > 0
    assert (len(sessions), sessions.partitions, sessions.evicted) == (2, 2, 1)
    assert sessions.visit(_request(second, 1, range(0)), 12) == ErrorCode.fetch_session_id_not_found
    assert not isinstance(sessions.visit(_request(first, 2, range(0)), 12), ErrorCode)


async def test_the_number_of_partitions_in_all_sessions_is_bounded(mock_clock: MockClock) -> None:
    sessions = FetchSessions(100, 10)
    first = _open(sessions, 6)
    assert _open(sessions, 5) == 0
    second = _open(sessions, 4)
    assert second > 0
    # A session that exceeds the limit is ended, instead of another one in use.
    assert sessions.visit(_request(second, 1, range(4, 6)), 12) == ErrorCode.fetch_session_id_not_found
    assert (len(sessions), sessions.partitions) == (1, 6)
    assert not isinstance(sessions.visit(_request(first, 1, range(6, 8), forgotten=range(1)), 12), ErrorCode)
    assert sessions.partitions == 7
    mock_clock.jump(121)
    assert _open(sessions, 10) > 0
    assert (len(sessions), sessions.partitions) == (1, 10)


async def test_a_partition_is_returned_once_after_its_error_ends() -> None:
    sessions = FetchSessions(1, 1)
    session_id = _open(sessions, 1)
    returned = []
    for epoch, error in enumerate((0, 0, ErrorCode.unsupported_compression_type, 0, 0), start=1):
        visit = sessions.visit(_request(session_id, epoch, range(0)), 12)
        assert not isinstance(visit, ErrorCode)
        answer = visit.answer([FetchTopicResults("t", b"", [FetchResult(0, error, 5, 0)])])
        assert not isinstance(answer, ErrorCode)
        returned.append(len(answer[1]))
    assert returned == [1, 0, 1, 1, 0]


async def test_epochs_wrap_to_1_after_the_largest() -> None:
    sessions = FetchSessions(1, 1)
    session_id = _open(sessions, 1)
    sessions._sessions[session_id].epoch = LARGEST_EPOCH
    for epoch in (LARGEST_EPOCH, 1, 2):
        assert not isinstance(sessions.visit(_request(session_id, epoch, range(0)), 12), ErrorCode)
    await trio.lowlevel.checkpoint()
