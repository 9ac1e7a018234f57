"""Offsets by timestamp, in segments of this run and of earlier ones."""

from typing import cast

import pytest
import trio
from trio.testing import MockClock

from kafscale.objects.interface import ObjectStore
from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import ListOffsetsRequest, PartitionQuery
from services.storage.reading.offsets import MAX_TIMESTAMP
from tests.support.storage.harness import TIMEOUT, Caller, World, batch
from tests.unit.storage.test_offline import Endpoint

each = pytest.mark.parametrize("indexing", [True, False], ids=["an indexer", "no indexer"])


@each
async def test_a_timestamp_gives_the_first_record_at_or_after_it(indexing: bool, autojump_clock: MockClock) -> None:
    async with (world := World(indexing=indexing)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        for timestamp in (1_000, 2_000, 3_000):
            await caller.append(ref, batch(b"a", b"b", timestamp=timestamp))
            await caller.flush(ref)
        timestamps = [0, 1_000, 1_001, 2_000, 3_000, 3_001, -1, -2]
        queries = [PartitionQuery(partition=ref, timestamp=timestamp, leader_epoch=-1) for timestamp in timestamps]
        reply = await caller.storage.list_offsets(ListOffsetsRequest(queries=queries), timeout=TIMEOUT)
        assert [result.offset for result in reply.results] == [0, 0, 2, 2, 4, -1, 6, 0]


@each
async def test_a_timestamp_is_found_in_segments_of_an_earlier_run(indexing: bool, autojump_clock: MockClock) -> None:
    world = World(indexing=indexing)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for timestamp in (1_000, 3_000, 2_000):
            await caller.append(ref, batch(b"a", b"b", timestamp=timestamp))
            await caller.flush(ref)
    async with world.service() as (caller, _):
        found = [(await caller.offset_at(ref, timestamp)).offset for timestamp in (0, 1_001, 3_000, 3_001)]
        assert found == [0, 2, 2, -1]
        await caller.append(ref, batch(b"a", timestamp=4_000))
        await caller.flush(ref)
        found = [(await caller.offset_at(ref, timestamp)).offset for timestamp in (0, 1_001, 3_001)]
        assert found == [0, 2, 6]


@each
async def test_the_largest_timestamp_is_searched_in_every_segment(indexing: bool, autojump_clock: MockClock) -> None:
    world = World(indexing=indexing)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for i in range(70):
            await caller.append(ref, batch(b"x", timestamp=9_000 if i == 66 else 1_000 + i))
            await caller.flush(ref)
        found = await caller.offset_at(ref, MAX_TIMESTAMP)
        assert (found.offset, found.timestamp) == (66, 9_000)
    async with world.service() as (caller, _):
        found = await caller.offset_at(ref, MAX_TIMESTAMP)
        assert (found.offset, found.timestamp) == (66, 9_000)


@each
async def test_a_lookup_reads_no_segments_after_the_first_match(indexing: bool, autojump_clock: MockClock) -> None:
    world = World(indexing=indexing)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for i in range(70):
            await caller.append(ref, batch(b"x", timestamp=1_000 + i))
            await caller.flush(ref)
    async with world.service() as (caller, _):
        world.objects.calls.clear()
        assert (await caller.offset_at(ref, 1_000)).offset == 0
        read = [call.key for call in world.objects.calls if call.kind == "get" and call.key.endswith(".kfs")]
        assert len(read) == 1


async def test_a_listing_without_the_last_segment_is_rejected(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for i in range(70):
            await caller.append(ref, batch(b"x", timestamp=1_000 + i))
            await caller.flush(ref)
    endpoint = Endpoint(world.objects)
    async with world.service(objects=cast(ObjectStore, endpoint)) as (caller, _):
        # A page describes the oldest segments, the partition's state the last one. Those between must be listed.
        assert (await caller.offset_at(ref, 1_000)).offset == 0
        endpoint.lists_nothing = True
        assert (await caller.offset_at(ref, 1_066)).status == Status.DAMAGED
        assert (await caller.offset_at(ref, 1_066)).offset == 66


@each
async def test_the_largest_timestamp_is_found_even_if_the_segment_map_is_reset(
    indexing: bool, autojump_clock: MockClock
) -> None:
    world = World(indexing=indexing)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for i in range(3):
            await caller.append(ref, batch(b"x", timestamp=1_000 + i))
            await caller.flush(ref)
    async with world.service() as (caller, _):
        await caller.append(ref, batch(b"x", timestamp=9_000))
        await caller.flush(ref)
        keys = [info.key for info in await world.objects.list_from("") if info.key.endswith(".kfs")]
        slow = keys[2]
        world.objects.plan = lambda call: Fault(delay=10.0) if call.key == slow else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_expect_newest, caller, ref, 3, 9_000)
            await trio.sleep(1)
            kept = await world.objects.get(keys[1])
            await world.objects.delete_many([keys[1]])
            assert (await caller.fetch(ref, 1)).status == Status.DAMAGED
            await world.objects.put_if_absent(keys[1], kept.body)


async def _expect_newest(caller: Caller, ref: PartitionRef, offset: int, timestamp: int) -> None:
    found = await caller.offset_at(ref, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (offset, timestamp)
