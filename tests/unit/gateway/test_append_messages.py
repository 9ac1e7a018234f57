"""The messages with appends of a storage link: what shares one, their order, their replies, and refusals."""

import pytest
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.v1 import common_pb2
from tests.support.gateway.fake_storage import FakeStorage
from tests.unit.gateway.storage_links import KIB, T_ID, gate, ref, running_link, values


async def test_appends_that_arrive_during_two_calls_share_the_next_call() -> None:
    storage = FakeStorage()
    first, second = gate(storage, 1, 2)
    async with running_link(storage) as appends:
        for value in (b"a", b"b", b"c", b"d"):
            appends.put(value=value)
            await wait_all_tasks_blocked()
        assert [values(message) for message in storage.appends] == [[(0, b"a")], [(0, b"b")]], (
            "at most two calls in flight"
        )
        first.set()
        await wait_all_tasks_blocked()
        assert [(message.sequence, values(message)) for message in storage.appends] == [
            (1, [(0, b"a")]),
            (2, [(0, b"b")]),
            (3, [(0, b"c"), (0, b"d")]),
        ]
        second.set()
        await wait_all_tasks_blocked()
        assert [append.error for append in appends.finished] == [0] * 4
        assert {message.stream_id for message in storage.appends} == set(storage.opened)


async def test_appends_of_producers_that_were_just_answered_share_a_call() -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage, append_gather_ms=1000) as appends:
        for value in (b"a", b"b"):
            appends.put(value=value)
            await wait_all_tasks_blocked()
        storage.commit(storage.partition(ref()))
        await wait_all_tasks_blocked()
        assert len(appends.finished) == 2
        for value in (b"c", b"d"):
            appends.put(value=value)
            await wait_all_tasks_blocked()
        assert [values(message) for message in storage.appends] == [[(0, b"a")], [(0, b"b")], [(0, b"c"), (0, b"d")]]


async def test_a_reply_that_reports_a_commit_finishes_all_that_wait_for_it() -> None:
    storage = FakeStorage()
    storage.auto_commit, storage.replies_report = False, True
    first, second = gate(storage, 1, 2)
    async with running_link(storage, append_messages=4) as appends:
        for value in (b"a", b"b"):
            appends.put(value=value)
            await wait_all_tasks_blocked()
        assert [message.wait_ms > 0 for message in storage.appends] == [True, True]
        second.set()
        await wait_all_tasks_blocked()
        assert [(append.base_offset, append.error) for append in appends.finished] == [(1, 0)]
        first.set()
        await wait_all_tasks_blocked()
        assert [(append.base_offset, append.error) for append in appends.finished] == [(1, 0), (0, 0)]


async def test_a_message_with_an_append_that_need_not_be_durable_asks_for_a_reply_at_once() -> None:
    storage = FakeStorage()
    gate(storage, 1, 2)
    async with running_link(storage, append_messages=8) as appends:
        appends.put(acks_all=True)
        await wait_all_tasks_blocked()
        appends.put(acks_all=True)
        appends.put(acks_all=False)
        await wait_all_tasks_blocked()
        assert [(len(message.appends), message.wait_ms > 0) for message in storage.appends] == [(1, True), (2, False)]


async def test_the_last_messages_in_flight_ask_for_a_reply_at_once() -> None:
    storage = FakeStorage()
    gate(storage, 1, 2, 3, 4)
    async with running_link(storage, append_messages=4) as appends:
        for _ in range(4):
            appends.put()
            await wait_all_tasks_blocked()
        assert [message.wait_ms > 0 for message in storage.appends] == [True, True, False, False]


async def test_a_reply_waits_for_less_than_the_timeout_of_its_call() -> None:
    storage = FakeStorage()
    async with running_link(storage, append_messages=4, storage_timeout_ms=400) as appends:
        appends.put()
        await wait_all_tasks_blocked()
        assert [message.wait_ms for message in storage.appends] == [200]


async def test_append_calls_are_bounded_in_size_and_a_larger_append_is_sent_alone() -> None:
    storage = FakeStorage()
    gates = gate(storage, 1, 2)
    async with running_link(storage, append_message_bytes=3 * KIB) as appends:
        sizes = [1, 1, 1400, 1400, 1400, 5000, 10]
        for size in sizes:
            appends.put(value=b"x" * size)
            await wait_all_tasks_blocked()
        for event in gates:
            event.set()
        await wait_all_tasks_blocked()
        assert [len(message.appends) for message in storage.appends] == [1, 1, 2, 1, 1, 1]


async def test_the_size_of_a_call_includes_overhead(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    one, _ = gate(storage, 1, 2)
    async with running_link(storage, append_message_bytes=16 * KIB) as appends:
        for partition in (0, 1):
            appends.put(partition)
            await wait_all_tasks_blocked()
        for _ in range(1000):
            appends.put()
        one.set()
        await wait_all_tasks_blocked()
        assert appends.finished[-1].finished
        assert sum(len(message.appends) for message in storage.appends) == 1002
        assert max(message.ByteSize() for message in storage.appends) <= 16 * KIB


async def test_seen_is_the_highest_reply_without_a_gap() -> None:
    storage = FakeStorage()
    first, second = gate(storage, 1, 2)
    async with running_link(storage) as appends:
        appends.put()
        await wait_all_tasks_blocked()
        appends.put()
        await wait_all_tasks_blocked()
        second.set()
        await wait_all_tasks_blocked()
        appends.put()
        await wait_all_tasks_blocked()
        first.set()
        await wait_all_tasks_blocked()
        appends.put()
        await wait_all_tasks_blocked()
        assert [(message.sequence, message.seen) for message in storage.appends] == [(1, 0), (2, 0), (3, 0), (4, 3)]


@pytest.mark.parametrize(
    ("status", "first", "rest"),
    [
        (common_pb2.BUFFER_FULL, ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas),
        (common_pb2.NOT_OWNER, ErrorCode.not_leader_or_follower, ErrorCode.not_leader_or_follower),
        (common_pb2.TOO_LARGE, ErrorCode.message_too_large, ErrorCode.not_enough_replicas),
    ],
)
async def test_a_refusal_also_refuses_queued_appends_to_its_partition(
    status: common_pb2.Status, first: ErrorCode, rest: ErrorCode
) -> None:
    storage = FakeStorage()
    storage.refuse[T_ID, 0] = [status]
    one, two = gate(storage, 1, 2)
    async with running_link(storage) as appends:
        refused = appends.put(value=b"0")
        await wait_all_tasks_blocked()
        other = appends.put(1, value=b"1")
        await wait_all_tasks_blocked()
        behind = [appends.put(value=b"2"), appends.put(value=b"3")]
        other_partition = appends.put(1, value=b"4")
        one.set()
        await wait_all_tasks_blocked()
        two.set()
        await wait_all_tasks_blocked()
        assert (refused.error, [append.error for append in behind]) == (first, [rest, rest])
        assert (other.error, other_partition.error) == (0, 0)
        assert [value for message in storage.appends for value in values(message)] == [(0, b"0"), (1, b"1"), (1, b"4")]
        again = appends.put(value=b"5")
        await wait_all_tasks_blocked()
        assert (again.finished, again.error) == (True, 0)


async def test_batches_of_one_partition_keep_their_order() -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        put = []
        for number in range(50):
            put.append(appends.put(value=b"%c" % (48 + number)))
            if number % 7 == 0:
                await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert [append.base_offset for append in put] == list(range(50))
