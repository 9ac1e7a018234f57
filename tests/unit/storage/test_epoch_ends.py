"""The ends of leader epochs, by Kafka's rules for OffsetForLeaderEpoch."""

import trio
from trio.testing import MockClock

from kafscale.v1.common_pb2 import Status
from services.storage.log.partition import CommittedLog
from services.storage.log.segments import SegmentMap
from tests.support.storage.cluster import cluster
from tests.support.storage.harness import World, batch


def _log(epochs: list[tuple[int, int]], end: int) -> CommittedLog:
    return CommittedLog("orders", b"id", 0, epochs, 0, end, SegmentMap(end))


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    log = _log([(3, 10), (5, 20), (9, 30)], 42)
    assert [log.end_of_epoch(epoch) for epoch in (3, 5, 9)] == [(3, 20), (5, 30), (9, 42)]


def test_an_epoch_without_records_gets_the_end_of_the_previous_epoch() -> None:
    log = _log([(3, 10), (5, 20), (9, 30)], 42)
    assert [log.end_of_epoch(epoch) for epoch in (4, 6, 8)] == [(3, 20), (5, 30), (5, 30)]


def test_a_future_epoch_has_no_end() -> None:
    log = _log([(3, 10), (5, 20)], 42)
    assert [log.end_of_epoch(epoch) for epoch in (6, 100, -1)] == [(-1, -1)] * 3


def test_an_epoch_older_than_the_history_ends_where_the_history_begins() -> None:
    log = _log([(3, 10), (5, 20)], 42)
    assert [log.end_of_epoch(epoch) for epoch in (1, 2)] == [(1, 10), (2, 10)]


def test_epoch_0_ends_with_the_log_unless_its_first_records_were_imported() -> None:
    assert _log([(3, 10), (5, 20)], 42).end_of_epoch(0) == (0, 42)
    assert _log([(0, 0), (5, 20)], 42).end_of_epoch(0) == (0, 20)


async def test_the_owner_knows_epoch_ends_across_ownership_changes(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1") as moving:
        ref = await moving.world.topic(moving.instances[0].catalog, partitions=1)
        ends = {}
        for number in range(4):
            appended = await moving.append_durably(ref, batch(b"x"))
            ends[appended.epoch] = appended.end_offset
            former = moving.assigned(ref)
            await moving.start(f"{number}:1")
            await former.stop()
        await trio.sleep(1)
        owner = moving.assigned(ref)
        assert len(ends) == 4
        for epoch, end in ends.items():
            answer = await owner.caller.epoch_end(ref, epoch)
            assert (answer.status, answer.epoch, answer.end_offset) == (Status.OK, epoch, end)
        present = (await moving.state(ref)).epoch
        unknown = await owner.caller.epoch_end(ref, present + 1)
        assert (unknown.status, unknown.epoch, unknown.end_offset) == (Status.OK, -1, -1)
        assert (await owner.caller.epoch_end(ref, 1, present)).status == Status.OK
        assert (await owner.caller.epoch_end(ref, 1, present - 1)).status == Status.FENCED_EPOCH
        assert (await owner.caller.epoch_end(ref, 1, present + 1)).status == Status.UNKNOWN_EPOCH
        others = [await other.caller.epoch_end(ref, 1) for other in moving.instances if other is not owner]
        assert all((answer.status, answer.owner) == (Status.NOT_OWNER, owner.caller.run_id) for answer in others)
