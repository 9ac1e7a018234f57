"""Which owner may write, replace and answer: checked against the metadata, or proven by the lease."""

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Delete, Put
from kafscale.metadata.memory import Fault, no_answer
from kafscale.records.batch import walk
from kafscale.segment.writer import build_segment
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import Member
from services.storage.log.buffer import WriteBuffer
from services.storage.owning.takeover import StillOwned
from tests.support.storage.harness import NAMESPACE, World, batch, siblings, state_key, values


def segment_of(epoch: int, base_offset: int, records: bytes) -> bytes:
    """Build the segment that an owner in ``epoch`` would store."""
    buffer = WriteBuffer(epoch=epoch, next_offset=base_offset, segment_bytes=1 << 20)
    buffer.append(records, walk(records))
    buffer.seal("size")
    (sealed,) = buffer.to_start(1)
    return build_segment(sealed.pieces, epoch=epoch, created_ms=0, flags=0).data


async def test_an_owner_that_registers_during_a_take_over_keeps_its_partition(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"x")))
    await trio.sleep(60)
    before = await world.metadata.get(state_key(ref))

    async def register() -> None:
        await trio.sleep(1)
        alive = Member(format=1, run_id="run-1", service="storage").SerializeToString()
        await world.metadata.txn((), [Put(paths.member_key(NAMESPACE, "storage", "run-1"), alive)])

    def fencing() -> None:
        world.metadata.faults.append(Fault(method="txn", key=state_key(ref), delay=2))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(register)
        with pytest.raises(StillOwned, match="run-1"):
            await world.take_over("run-2", ref, fencing=fencing)
    assert await world.metadata.get(state_key(ref)) == before


async def test_an_epoch_that_is_recorded_during_a_take_over_is_known_to_it(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        appended = await caller.append(ref, batch(b"x"))
        assert await caller.durable(appended)
        await caller.flush(ref)
    await trio.sleep(60)
    history_key = paths.epoch_history_key(NAMESPACE, ref.topic, ref.partition)
    recorded = await world.metadata.get(history_key)
    assert recorded is not None
    await world.metadata.txn((), [Delete(history_key)])
    # What the former owner stored after it had recorded its epoch, and did not commit.
    end = appended.end_offset
    key = paths.segment_key(NAMESPACE, ref.topic, ref.partition, end)
    await world.objects.put_if_absent(key, segment_of(1, end, batch(b"y")))

    async def record() -> None:
        await trio.sleep(1)
        await world.metadata.txn((), [Put(history_key, recorded.value)])

    delayed = iter([Fault(method="txn", key=state_key(ref), delay=2)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(record)
        taken = await world.take_over("run-2", ref, fencing=lambda: world.metadata.faults.extend(delayed))
    assert (taken.offline, taken.history) == (None, [(1, 0), (2, end)])


async def test_requests_that_need_a_proven_lease_fail_when_it_is_not_renewed(autojump_clock: MockClock) -> None:
    async with (world := World()).service(lease_ttl_seconds=10) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"x")))
        world.metadata.faults.append(no_answer("keep_alive", times=1_000))

        async def statuses() -> list[Status]:
            """Return the statuses of appends without and with acks=all, fetches around the end, and a lookup of it."""
            unacknowledged = await caller.append(ref, batch(b"y"), unacknowledged=True)
            acknowledged = await caller.append(ref, batch(b"z"))
            assert await caller.durable(acknowledged)
            answers = [await caller.fetch(ref, offset) for offset in (0, acknowledged.end_offset, 1_000)]
            found = await caller.offset_at(ref, -1)
            return [unacknowledged.status, acknowledged.status, *(answer.status for answer in answers), found.status]

        await trio.sleep(7)
        assert await statuses() == [Status.OK] * 4 + [Status.OFFSET_OUT_OF_RANGE, Status.OK]
        await trio.sleep(2)
        # Reads below the known end need no lease because committed records never change.
        assert await statuses() == [Status.NOT_OWNER, Status.OK, Status.OK] + [Status.NOT_OWNER] * 3
        answer = await caller.fetch(ref, 0)
        assert answer.records
        assert (answer.high_watermark, answer.log_start) == (-1, -1)


async def test_an_object_of_a_later_owner_fences_and_is_not_overwritten(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        first = await caller.append(ref, batch(b"first"))
        assert await caller.durable(first)
        key = paths.segment_key(NAMESPACE, ref.topic, 0, 1)
        theirs = segment_of(first.epoch + 1, 1, batch(b"theirs"))
        await world.objects.put_if_absent(key, theirs)
        await world.seize(ref)
        assert not await caller.durable(await caller.append(ref, batch(b"ours")))
        assert (await world.objects.get(key)).body == theirs


@pytest.mark.parametrize("later", [0, 1])
async def test_an_unexplained_object_of_the_same_or_a_later_epoch_is_not_overwritten(
    autojump_clock: MockClock, later: int
) -> None:
    async with (world := World(intake=False)).service(buffer_bytes=65536) as (caller, catalog):
        ref = await world.topic(catalog)
        first = await caller.append(ref, batch(b"first"))
        assert await caller.durable(first)
        key = paths.segment_key(NAMESPACE, ref.topic, 0, 1)
        theirs = segment_of(first.epoch + later, 1, batch(b"theirs"))
        await world.objects.put_if_absent(key, theirs)
        ours = batch(b"ours" * 10_000)
        assert not await caller.durable(await caller.append(ref, ours))
        assert (await caller.append(ref, batch(b"more"))).status == Status.DAMAGED
        # Its buffered records are dropped and do not count any more.
        assert (await caller.append(siblings(ref, 2)[1], ours)).status == Status.OK
        await trio.sleep(60)
        assert (await world.objects.get(key)).body == theirs
        assert await caller.read_all(ref) == [b"first"]


async def test_a_partition_that_goes_offline_during_a_commit_keeps_the_committed_records(
    autojump_clock: MockClock,
) -> None:
    async with (world := World(intake=False)).service(buffer_bytes=65536) as (caller, catalog):
        ref = await world.topic(catalog)
        first = await caller.append(ref, batch(b"first"))
        assert await caller.durable(first)
        theirs = segment_of(first.epoch + 1, 2, batch(b"theirs"))
        await world.objects.put_if_absent(paths.segment_key(NAMESPACE, ref.topic, 0, 2), theirs)
        await trio.sleep(1)
        world.metadata.faults.append(Fault(method="txn", key=state_key(ref), delay=5))
        assert (await caller.append(ref, batch(b"under way" * 1_000))).status == Status.OK
        await trio.sleep(0.6)
        assert (await caller.append(ref, batch(b"not stored"))).status == Status.OK
        await trio.sleep(10)
        assert (await caller.append(ref, batch(b"more"))).status == Status.DAMAGED
        assert await caller.read_all(ref) == [b"first", b"under way" * 1_000]
        # Its share of the buffers is freed exactly once.
        other = siblings(ref, 2)[1]
        assert (await caller.append(other, batch(b"x" * 60_000))).status == Status.OK
        assert (await caller.append(other, batch(b"x" * 6_000))).status == Status.BUFFER_FULL


async def test_an_assigned_but_uncommitted_offset_is_not_out_of_range(autojump_clock: MockClock) -> None:
    async with (world := World()).service(flush_interval_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"a"), unacknowledged=True))
        for value in (b"b", b"c"):
            acked = await caller.append(ref, batch(value), unacknowledged=True)
        assert (acked.status, acked.base_offset) == (Status.OK, 2)
        # A consumer may seek to an offset that its producer got, or to an end that an unanswered commit has moved.
        fetched = [await caller.fetch(ref, offset) for offset in (2, 3, 4)]
        assert [one.status for one in fetched] == [Status.OK, Status.OK, Status.OFFSET_OUT_OF_RANGE]
        assert [(one.records, one.high_watermark) for one in fetched] == [(b"", 1)] * 3
        assert await caller.durable(acked)
        assert values((await caller.fetch(ref, 2)).records) == [b"c"]


async def test_a_committed_offset_of_an_offline_partition_is_not_out_of_range(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        first = await caller.append(ref, batch(b"first"))
        assert await caller.durable(first)
        theirs = segment_of(first.epoch + 1, 2, batch(b"theirs"))
        await world.objects.put_if_absent(paths.segment_key(NAMESPACE, ref.topic, 0, 2), theirs)
        await trio.sleep(1)
        # The commit applies after the partition went offline, its answer is lost, and its repetition is slow.
        world.metadata.faults.append(Fault(method="txn", key=state_key(ref), delay=2, after=Unavailable("lost")))
        world.metadata.faults.append(Fault(method="txn", key=state_key(ref), delay=5))
        assert (await caller.append(ref, batch(b"committed"))).status == Status.OK
        await trio.sleep(0.6)
        assert (await caller.append(ref, batch(b"not stored"))).status == Status.OK
        await trio.sleep(3)
        assert (await caller.append(ref, batch(b"more"))).status == Status.DAMAGED
        assert [(await caller.fetch(ref, offset)).status for offset in (2, 3)] == [
            Status.OK,
            Status.OFFSET_OUT_OF_RANGE,
        ]


async def test_only_an_owner_that_read_the_metadata_reports_out_of_range(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"x")))
        assert (await caller.fetch(ref, 2)).status == Status.OFFSET_OUT_OF_RANGE
        world.metadata.faults.append(no_answer("get", key=state_key(ref)))
        assert (await caller.fetch(ref, 2)).status == Status.UNAVAILABLE
        assert (await caller.fetch(ref, 2)).status == Status.OFFSET_OUT_OF_RANGE
        await world.seize(ref)
        assert (await caller.fetch(ref, 2)).status == Status.NOT_OWNER
