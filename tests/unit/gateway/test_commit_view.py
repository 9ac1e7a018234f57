"""The partitions of a commit stream that a gateway remembers."""

import pytest
from kio.schema.errors import ErrorCode

from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.storage_pb2 import Committed
from services.gateway.owners.commit_view import CommitView, Key, Waiter
from services.gateway.owners.errors import MAY_BE_KEPT, TIMED_OUT
from services.gateway.owners.pending import PendingAppend


def _key(number: int) -> Key:
    return number.to_bytes(16, "big"), 0


def _event(
    number: int, *, high_watermark: int = 0, epoch: int = 1, lost: bool = False, in_memory: int = 0
) -> Committed:
    topic_id, partition = _key(number)
    ref = PartitionRef(topic="t", topic_id=topic_id, partition=partition)
    return Committed(partition=ref, epoch=epoch, high_watermark=high_watermark, lost=lost, in_memory=in_memory)


def _buffered(number: int, *, wait_for: int) -> PendingAppend:
    append = PendingAppend(PartitionRef(), _key(number), b"", acks=-1, deadline=100.0, on_finish=lambda _: None)
    append.epoch, append.wait_for = 1, wait_for
    return append


def test_the_number_of_remembered_partitions_is_bounded() -> None:
    view = CommitView()
    for number in range(5000):
        view.apply([_event(number, high_watermark=7)])
        view.apply([_event(number, high_watermark=7, lost=True)])
    assert len(view) < 2000
    committed, lost, forgotten = _buffered(4999, wait_for=7), _buffered(4999, wait_for=8), _buffered(0, wait_for=8)
    for append in (committed, lost, forgotten):
        view.hold(append)
    assert (committed.error, lost.error) == (ErrorCode.none, MAY_BE_KEPT)
    assert not forgotten.finished
    view.expire(100.0)
    assert forgotten.error == TIMED_OUT


def test_a_partition_with_waiting_requests_is_not_forgotten() -> None:
    view, waiter = CommitView(), Waiter()
    view.apply([_event(0)])
    view.watch(_key(0), waiter)
    held = _buffered(1, wait_for=5)
    view.hold(held)
    for number in (0, *range(2, 3000)):
        view.apply([_event(number, lost=True)])
    view.apply([_event(0, epoch=2), _event(1, high_watermark=5)])
    assert waiter.event.is_set()
    assert held.finished
    assert held.error is ErrorCode.none


@pytest.mark.parametrize("end", ["lost", "expired", "stream"])
def test_durable_records_held_for_memory_are_acknowledged_when_nothing_more_is_waited_for(end: str) -> None:
    view = CommitView()
    view.apply([_event(0, high_watermark=5, in_memory=5)])
    durable, buffered = _buffered(0, wait_for=5), _buffered(0, wait_for=6)
    for append in (durable, buffered):
        append.hold_until = 6
        view.hold(append)
    assert not durable.finished
    match end:
        case "lost":
            view.apply([_event(0, high_watermark=5, lost=True)])
        case "expired":
            view.expire(100.0)
        case _:
            view.end()
    assert (durable.error, buffered.error) == (ErrorCode.none, TIMED_OUT if end == "expired" else MAY_BE_KEPT)


def test_fetches_leave_nothing_in_the_view() -> None:
    view = CommitView()
    for number in range(100):
        waiter = Waiter()
        view.watch(_key(number), waiter)
        view.unwatch(_key(number), waiter)
    view.unwatch(_key(0), Waiter())
    assert len(view) == 0
