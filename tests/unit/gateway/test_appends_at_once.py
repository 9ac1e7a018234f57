"""A storage link to a storage instance in the same process."""

from collections.abc import Callable, Sequence
from typing import Any

import trio
from kio.schema.errors import ErrorCode
from trio.testing import wait_all_tasks_blocked

from kafscale.errors import Unavailable
from kafscale.records.batch import peek, walk
from kafscale.v1 import common_pb2
from kafscale.v1.storage_pb2 import CommitsEvent, Committed, PartitionAppended
from services.gateway.owners.appends import AppendMessage
from services.gateway.owners.errors import MAY_BE_KEPT, NEVER_KEPT
from services.gateway.owners.pending import PendingAppend
from tests.support.gateway.fake_storage import FakeStorage
from tests.support.gateway.harness import batch
from tests.unit.gateway.storage_links import T_ID, gate, ref, running_link, values


class _Here(FakeStorage):
    """A storage in this process, which at first accepts ``at_once`` messages at once."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.at_once = at_once
        self.report: Callable[[Committed], bool] = lambda _: False

    def append_at_once(
        self, message: AppendMessage, report: Callable[[Committed], bool]
    ) -> Sequence[PartitionAppended] | None:
        if self.at_once <= 0:
            return None
        self.at_once -= 1
        self.report = report
        return self.append_now(message.request())

    def send_event(self, event: Committed) -> None:
        if not self.report(event):
            super().send_event(event)


def test_an_append_has_the_batches_of_its_records_until_they_are_dropped() -> None:
    one, two = batch(b"a"), batch(b"b")
    for records, header in ((one, peek(one)), (one, None), (one + two, None)):
        append = PendingAppend(ref(), (T_ID, 0), records, acks=-1, deadline=0, on_finish=lambda _: None, header=header)
        append.keep_records()
        assert append.batches == list(walk(records))
        AppendMessage("stream", sequence=1, seen=0, wait_ms=0, appends=[append]).drop_records()
        assert append.batches == []


async def test_records_are_appended_without_a_switch_to_another_task() -> None:
    storage = _Here(at_once=10)
    storage.auto_commit = False
    async with running_link(storage, append_at_once=storage.append_at_once) as appends:
        buffered, durable = appends.put(acks_all=False), appends.put(value=b"a")
        assert (buffered.finished, durable.finished, buffered.records) == (True, False, b"")
        storage.commit(storage.partition(ref()))
        assert (durable.finished, durable.error, durable.base_offset) == (True, ErrorCode.none, 1)
        assert [message.wait_ms for message in storage.appends] == [0, 0]


async def test_a_message_that_must_wait_is_sent_by_a_task_and_later_ones_follow_it() -> None:
    storage = _Here(at_once=1)
    (first,) = gate(storage, 2)
    async with running_link(storage, append_at_once=storage.append_at_once) as appends:
        for value in (b"a", b"b", b"c", b"d"):
            appends.put(value=value)
        storage.at_once = 10
        await wait_all_tasks_blocked()
        assert [values(message) for message in storage.appends] == [[(0, b"a")], [(0, b"b")]]
        first.set()
        await wait_all_tasks_blocked()
        assert [values(message) for message in storage.appends[2:]] == [[(0, b"c"), (0, b"d")]]
        assert [message.sequence for message in storage.appends] == [1, 2, 3]
        assert [append.error for append in appends.finished] == [ErrorCode.none] * 4


async def test_what_waited_for_a_stream_is_appended_when_it_is_ready() -> None:
    storage = _Here(at_once=10)
    storage.auto_ready = False
    async with running_link(storage, append_at_once=storage.append_at_once) as appends:
        appends.put(value=b"a")
        await wait_all_tasks_blocked()
        assert storage.appends == []
        next(iter(storage.streams.values())).send.send_nowait(CommitsEvent(ready=True))
        await wait_all_tasks_blocked()
        assert [append.error for append in appends.finished] == [ErrorCode.none]


async def test_a_message_without_an_answer_ends_the_stream() -> None:
    storage = _Here(at_once=0)
    async with running_link(storage, append_at_once=storage.append_at_once) as appends:
        storage.append_fails = Unavailable("no answer")
        lost = appends.put(value=b"a")
        await wait_all_tasks_blocked()
        assert lost.error is MAY_BE_KEPT
        storage.append_fails, storage.at_once = None, 10
        await trio.sleep(0.2)
        await storage.wait_until_opened(2)
        await wait_all_tasks_blocked()
        appends.put(value=b"b")
        assert [append.error for append in appends.finished] == [MAY_BE_KEPT, ErrorCode.none]


async def test_an_error_ends_the_stream_and_leaves_the_outcome_open() -> None:
    storage = _Here(at_once=10)
    async with running_link(storage, append_at_once=storage.append_at_once) as appends:
        storage.append_fails = RuntimeError("a bug")
        first, later = appends.put(value=b"a"), appends.put(value=b"b")
        await wait_all_tasks_blocked()
        assert (first.error, later.error) == (MAY_BE_KEPT, NEVER_KEPT)
        storage.append_fails = None
        await storage.wait_until_opened(2)
        await wait_all_tasks_blocked()
        appends.put(value=b"c")
        await wait_all_tasks_blocked()
        assert appends.finished[-1].error is ErrorCode.none


async def test_appends_behind_a_refused_one_are_refused() -> None:
    storage = _Here(at_once=1)
    (first,) = gate(storage, 2)
    async with running_link(storage, append_at_once=storage.append_at_once) as appends:
        appends.put(1)
        storage.refuse[T_ID, 0] = [common_pb2.NOT_OWNER]
        for value in (b"b", b"c"):
            appends.put(value=value)
        first.set()
        await wait_all_tasks_blocked()
        assert [append.error for append in appends.finished][1:] == [ErrorCode.not_leader_or_follower] * 2
        assert len(storage.appends) == 2


async def test_an_event_that_cannot_be_applied_ends_the_stream_and_not_the_storage() -> None:
    storage = _Here(at_once=10)
    storage.auto_commit = False
    async with running_link(storage, append_at_once=storage.append_at_once) as appends:
        append = appends.put(value=b"a")
        report = storage.report
        unusable: Any = object()
        assert report(unusable)
        await wait_all_tasks_blocked()
        assert append.error is MAY_BE_KEPT
        assert not report(Committed()), "the stream has ended"
