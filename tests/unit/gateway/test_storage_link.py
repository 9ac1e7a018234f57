"""The link to one storage instance: numbered calls, refusals, held replies, broken streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.errors import KafscaleError, Refused, Unavailable
from kafscale.v1 import common_pb2
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import AppendRequest
from services.gateway.owners.link import StorageLink
from services.gateway.owners.pending import PendingAppend
from services.gateway.pauses import Pauses
from services.gateway.settings import GatewaySettings
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import batch

T_ID = b"t" * 16
KIB = 1024


def ref(partition: int = 0, topic_id: bytes = T_ID) -> PartitionRef:
    return PartitionRef(topic="t", topic_id=topic_id, partition=partition)


class Appends:
    """The appends of one test, and those that finished, in order."""

    def __init__(self, link: StorageLink) -> None:
        self.link = link
        self.finished: list[PendingAppend] = []

    def put(
        self, partition: int = 0, *, value: bytes = b"v", acks_all: bool = True, timeout: float = 30
    ) -> PendingAppend:
        append = PendingAppend(
            ref(partition),
            (T_ID, partition),
            batch(value),
            acks=-1 if acks_all else 1,
            deadline=trio.current_time() + timeout,
            on_finish=self.finished.append,
        )
        self.link.queue.put(append)
        return append


@asynccontextmanager
async def running_link(
    storage: FakeStorage,
    *,
    append_queue_bytes: int = 1 << 20,
    append_message_bytes: int = 1 << 20,
    append_messages: int = 2,
    append_gather_ms: int = 0,
    storage_timeout_ms: int = 30_000,
) -> AsyncIterator[Appends]:
    link = StorageLink(
        storage,
        GatewaySettings(
            append_queue_bytes=append_queue_bytes,
            append_message_bytes=append_message_bytes,
            append_messages=append_messages,
            append_gather_ms=append_gather_ms,
            storage_timeout_ms=storage_timeout_ms,
        ),
        moved=lambda key, owner: None,
        pauses=Pauses(5.0, lambda: 0.0),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        await wait_all_tasks_blocked()
        yield Appends(link)
        nursery.cancel_scope.cancel()


def values(message: AppendRequest) -> list[tuple[int, bytes]]:
    return [(append.partition.partition, append.records[-2:-1]) for append in message.appends]


def gate(storage: FakeStorage, *sequences: int) -> list[trio.Event]:
    events = []
    for sequence in sequences:
        storage.gates[sequence] = trio.Event()
        events.append(storage.gates[sequence])
    return events


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


async def test_a_held_reply_is_sent_when_its_last_record_is_committed() -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        first, second = appends.put(), appends.put()
        await wait_all_tasks_blocked()
        partition = storage.partition(ref())
        storage.commit(partition, 1)
        await wait_all_tasks_blocked()
        assert (first.finished, second.finished) == (True, False)
        storage.commit(partition, 2)
        await wait_all_tasks_blocked()
        assert (second.finished, second.error, second.base_offset) == (True, 0, 1)


async def test_a_commit_announced_before_the_reply_completes_it() -> None:
    storage = FakeStorage()
    (one,) = gate(storage, 1)
    async with running_link(storage) as appends:
        append = appends.put()
        await wait_all_tasks_blocked()
        assert not append.finished, "the commit was announced before the reply"
        one.set()
        await wait_all_tasks_blocked()
        assert (append.finished, append.error) == (True, 0)


async def test_a_loss_announced_before_the_reply_fails_it() -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    (one,) = gate(storage, 1)
    async with running_link(storage) as appends:
        append = appends.put()
        await wait_all_tasks_blocked()
        storage.announce(storage.partition(ref()), lost=True)
        await wait_all_tasks_blocked()
        one.set()
        await wait_all_tasks_blocked()
        assert append.error == ErrorCode.not_enough_replicas_after_append


async def test_an_acks_all_reply_waits_for_its_own_topic_id_and_epoch() -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        append = appends.put()
        await wait_all_tasks_blocked()
        partition = storage.partition(ref())
        partition.high_watermark = 100
        storage.announce(partition, ref=ref(topic_id=b"n" * 16))
        storage.announce(partition, epoch=0)
        await wait_all_tasks_blocked()
        assert not append.finished, "events of another topic id or an older epoch do not apply"
        storage.announce(partition, epoch=2)
        await wait_all_tasks_blocked()
        assert append.error == ErrorCode.not_enough_replicas_after_append


async def test_a_lost_partition_acks_only_appends_up_to_the_high_watermark() -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        first, second = appends.put(), appends.put()
        await wait_all_tasks_blocked()
        partition = storage.partition(ref())
        partition.high_watermark = 1
        storage.announce(partition, lost=True)
        await wait_all_tasks_blocked()
        assert (first.error, second.error) == (0, ErrorCode.not_enough_replicas_after_append)


@pytest.mark.parametrize("failure", [Unavailable("no answer"), Refused("larger than the peer accepts")])
async def test_an_append_without_an_answer_is_not_repeated_and_opens_a_new_stream(
    autojump_clock: MockClock, failure: KafscaleError
) -> None:
    storage = FakeStorage()
    storage.append_fails = failure
    async with running_link(storage) as appends:
        unknown = appends.put(value=b"0")
        await wait_all_tasks_blocked()
        assert unknown.error == ErrorCode.not_enough_replicas_after_append
        storage.append_fails = None
        after = appends.put(value=b"1")
        await storage.wait_until(lambda: len(storage.appends) == 2)
        await wait_all_tasks_blocked()
        assert after.error == 0
        assert [values(message) for message in storage.appends] == [[(0, b"0")], [(0, b"1")]]
        assert [message.sequence for message in storage.appends] == [1, 1]
        assert len({message.stream_id for message in storage.appends}) == 2


async def test_a_broken_stream_fails_sent_appends_and_refuses_queued_ones(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        held = appends.put()
        await wait_all_tasks_blocked()
        gate(storage, 2, 3)
        under_way = appends.put(1)
        await wait_all_tasks_blocked()
        also = appends.put(1)
        await wait_all_tasks_blocked()
        queued = appends.put(1)
        storage.break_streams()
        await storage.wait_until(lambda: len(storage.opened) == 2)
        await wait_all_tasks_blocked()
        after_append = ErrorCode.not_enough_replicas_after_append
        assert [held.error, under_way.error, also.error] == [after_append] * 3
        assert queued.error == ErrorCode.not_leader_or_follower
        assert len(storage.appends) == 3


async def test_a_silent_stream_is_abandoned(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        append = appends.put(timeout=3600)
        started = trio.current_time()
        await storage.wait_until_opened(2)
        assert append.error == ErrorCode.not_enough_replicas_after_append
        assert 10 <= trio.current_time() - started < 15


async def test_a_stream_with_events_in_time_is_kept(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    async with running_link(storage) as appends:
        appends.put()
        for _ in range(10):
            await trio.sleep(9.9)
            storage.announce(storage.partition(ref(0)))
        assert len(storage.opened) == 1


async def test_a_producers_timeout_ends_every_kind_of_wait(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        held = appends.put(timeout=2)
        await wait_all_tasks_blocked()
        gate(storage, 2, 3)
        under_way = appends.put(timeout=2)
        await wait_all_tasks_blocked()
        appends.put(1, timeout=2)
        await wait_all_tasks_blocked()
        queued = appends.put(timeout=2)
        patient = appends.put(2, timeout=8)
        await trio.sleep(2.2)
        timed_out = ErrorCode.request_timed_out
        assert [held.error, under_way.error] == [timed_out] * 2
        assert queued.error == ErrorCode.not_leader_or_follower
        assert not patient.finished


async def test_appends_wait_for_a_stream_as_long_as_their_producers_do(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    storage.auto_ready = False
    async with running_link(storage) as appends:
        impatient, patient = appends.put(timeout=1), appends.put(1, timeout=30)
        await trio.sleep(2)
        assert impatient.error == ErrorCode.not_leader_or_follower
        storage.auto_ready = True
        storage.break_streams()
        await storage.wait_until_opened(2)
        await wait_all_tasks_blocked()
        assert (patient.finished, patient.error) == (True, 0)


async def test_bytes_in_flight_are_bounded(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    one, two = gate(storage, 1, 2)
    async with running_link(storage, append_queue_bytes=2 * KIB) as appends:
        assert not appends.link.queue.full
        for _ in range(3):
            appends.put(value=b"x" * 700)
            await wait_all_tasks_blocked()
        assert appends.link.queue.full
        with trio.move_on_after(1) as waiting:
            await appends.link.queue.wait_for_room()
        assert waiting.cancelled_caught
        one.set()
        await appends.link.queue.wait_for_room()
        assert not appends.link.queue.full
        two.set()


async def test_commits_of_a_leaving_instance_are_acked_after_its_departure_is_known() -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    (_, two) = gate(storage, 1, 2)
    storage.gates.pop(1)
    async with running_link(storage) as appends:
        held = appends.put()
        await wait_all_tasks_blocked()
        answered_late = appends.put(1)
        await wait_all_tasks_blocked()
        appends.link.end()
        refused = appends.put()
        await wait_all_tasks_blocked()
        assert (refused.error, held.finished) == (ErrorCode.not_leader_or_follower, False)
        assert (appends.link.owes((T_ID, 0)), appends.link.owes((T_ID, 2))) == (True, False)
        for partition in (0, 1):
            storage.commit(storage.partition(ref(partition)), 1)
        storage.break_streams()
        await wait_all_tasks_blocked()
        assert (held.finished, held.error, answered_late.finished) == (True, 0, False)
        two.set()
        await wait_all_tasks_blocked()
        assert (answered_late.finished, answered_late.error) == (True, 0)
        assert len(storage.opened) == 1


async def test_a_silent_instance_that_has_left_is_not_waited_for_long(autojump_clock: MockClock) -> None:
    storage = FakeStorage()
    storage.auto_commit = False
    async with running_link(storage) as appends:
        held = appends.put(timeout=3600)
        await wait_all_tasks_blocked()
        appends.link.end()
        assert (held.finished, appends.link.owes((T_ID, 0))) == (False, True)
        await trio.sleep(5)
        assert held.error == ErrorCode.not_enough_replicas_after_append
        assert not appends.link.owes((T_ID, 0))
