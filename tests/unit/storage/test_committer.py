"""Commits of many partitions in one transaction: they do not affect each other, and fit the store's limits."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.metadata.memory import Fault
from kafscale.v1.storage_pb2 import PartitionAppend
from tests.support.storage.harness import World, batch, siblings


async def test_a_fenced_partition_does_not_affect_others_in_its_transaction(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        first, lost, kept = siblings(await world.topic(catalog), 3)
        for ref in (first, lost, kept):
            await caller.append(ref, batch(b"before"))
        await caller.flush(first, lost, kept)
        await trio.sleep(1)
        # Partitions that become ready during a commit share the next one.
        world.metadata.faults.append(Fault(method="txn", delay=5))
        await caller.append(first, batch(b"slow"))
        await trio.sleep(1)
        too_late = await caller.append(lost, batch(b"too late"))
        shared = await caller.append(kept, batch(b"kept"))
        await trio.sleep(1)
        await world.seize(lost)
        assert not await caller.durable(too_late, lost)
        assert await caller.durable(shared, kept)
        after = await caller.append(kept, batch(b"after"))
        assert await caller.durable(after, kept)
        assert after.epoch == shared.epoch
        assert await caller.read_all(kept) == [b"before", b"kept", b"after"]


async def test_more_partitions_than_fit_into_one_transaction_are_committed(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=300), 300)
        await caller.flush(*refs)
        world.metadata.faults.append(Fault(method="txn", delay=5))
        reply = await caller.send(*(PartitionAppend(partition=ref, records=batch(b"x")) for ref in refs))
        for ref, appended in zip(refs, reply.results, strict=True):
            assert await caller.durable(appended, ref)
            assert await caller.read_all(ref) == [b"x"]


async def test_a_transaction_that_is_too_large_for_the_store_is_split(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (world := World(intake=False)).service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=50), 50)
        await caller.flush(*refs)
        monkeypatch.setattr("kafscale.metadata.state.MAX_PLAIN", 8)
        monkeypatch.setattr("kafscale.metadata.state.MAX_NESTED", 8)
        world.metadata.faults.append(Fault(method="txn", delay=5))
        reply = await caller.send(*(PartitionAppend(partition=ref, records=batch(b"x")) for ref in refs))
        for ref, appended in zip(refs, reply.results, strict=True):
            assert await caller.durable(appended, ref)
            assert await caller.read_all(ref) == [b"x"]
