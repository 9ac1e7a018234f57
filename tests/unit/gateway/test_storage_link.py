"""The link to one storage instance: numbered calls, refusals, held replies, broken streams."""

import pytest
import trio
from kio.schema.errors import ErrorCode
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.errors import KafscaleError, Refused, Unavailable
from tests.support.gateway.fake_storage import FakeStorage
from tests.unit.gateway.storage_links import KIB, T_ID, gate, ref, running_link, values


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
