"""Records that are durable before they are in a segment: clients see them, and what goes by segments does not."""

from trio.testing import MockClock

from kafscale.v1.common_pb2 import PartitionRef, Status
from services.storage.log.partition import Partition
from services.storage.reading.offsets import MAX_TIMESTAMP
from tests.support.storage.harness import Caller, World, batch, values


def _own(caller: Caller, ref: PartitionRef) -> Partition:
    run = caller.service.current
    assert run is not None
    partition = run.owned.get((ref.topic_id, ref.partition))
    assert partition is not None
    return partition


async def test_clients_see_durable_records_before_they_are_in_a_segment(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.append(ref, batch(b"a", b"b", timestamp=1_000))
        await caller.flush(ref)
        for timestamp, value in ((2_000, b"c"), (4_000, b"d"), (3_000, b"e"), (9_000, b"not durable")):
            await caller.append(ref, batch(value, timestamp=timestamp))
        _own(caller, ref).buffer.durable_end = 5

        assert await caller.read_all(ref) == [b"a", b"b", b"c", b"d", b"e"]
        assert values((await caller.fetch(ref, 3)).records) == [b"d", b"e"]
        assert values((await caller.fetch(ref, 3, max_bytes=1)).records) == [b"d"]
        fetched = await caller.fetch(ref, 5)
        assert (fetched.status, fetched.high_watermark, fetched.records) == (Status.OK, 5, b"")
        found = [(await caller.offset_at(ref, timestamp)).offset for timestamp in (-1, 1_000, 1_001, 3_001, 4_001)]
        assert found == [5, 0, 2, 3, -1]
        assert (await caller.offset_at(ref, MAX_TIMESTAMP)).offset == 3
        assert (await caller.epoch_end(ref, 1)).end_offset == 5

        [plan] = await caller.plan(ref)
        assert plan.high_watermark >= 5, "durable records are put into segments for a plan"


async def test_deleting_durable_records_stores_them_first(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        for value in (b"a", b"b", b"c"):
            await caller.append(ref, batch(value))
        _own(caller, ref).buffer.durable_end = 2

        truncated = await caller.delete_records(ref, 2)
        assert (truncated.status, truncated.log_start) == (Status.OK, 2)
        assert await caller.read_all(ref, 2) == [b"c"]
