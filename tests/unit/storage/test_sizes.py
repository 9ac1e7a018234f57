"""The sizes of logs, for DescribeLogDirs."""

import math
from typing import Any

import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import LogSize, LogSizesRequest, SizeQuery
from tests.support.storage.cluster import cluster
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings, state_key


async def sizes(caller: Caller, *refs: PartitionRef) -> list[LogSize]:
    request = LogSizesRequest(queries=[SizeQuery(partition=ref) for ref in refs])
    return list((await caller.storage.log_sizes(request, timeout=60)).results)


async def stored(world: World, ref: PartitionRef) -> list[int]:
    """Return the sizes of the partition's segment objects, in order."""
    prefix = paths.partition_prefix(NAMESPACE, ref.topic, ref.partition)
    return [info.size for info in await world.objects.list_from(prefix) if info.key.endswith(".kfs")]


async def test_the_size_of_a_log_is_the_size_of_its_segments(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 3)
        (answer,) = await sizes(caller, ref)
        assert (answer.status, answer.bytes) == (Status.OK, sum(await stored(world, ref)))
        assert answer.segments == len(await stored(world, ref)) > 2
        deleted = await caller.delete_records(ref, 250)
        assert deleted.log_start == 250
        (answer,) = await sizes(caller, ref)
        assert (answer.bytes, answer.segments) == (sum((await stored(world, ref))[-2:]), 2)
    async with world.service() as (caller, _):
        # The next run must list the segments.
        (again,) = await sizes(caller, ref)
        assert again.bytes == answer.bytes


async def test_partitions_without_records_are_not_taken_over_for_their_size(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        refs = siblings(await world.topic(catalog), 3)
        assert [(answer.status, answer.bytes) for answer in await sizes(caller, *refs)] == [(Status.OK, 0)] * 3
        for ref in refs:
            assert await world.metadata.get(state_key(ref)) is None


async def test_a_size_request_to_another_instance_names_the_owner(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        ref = await two.world.topic(two.instances[0].catalog, partitions=1)
        await two.append_durably(ref, batch(b"x"))
        owner = two.assigned(ref)
        for instance in two.instances:
            (answer,) = await sizes(instance.caller, ref)
            if instance is owner:
                assert answer.bytes > 0
            else:
                assert (answer.status, answer.owner) == (Status.NOT_OWNER, owner.caller.run_id)
                (flushed,) = (await instance.caller.flush(ref)).results
                assert (flushed.status, flushed.owner) == (Status.NOT_OWNER, owner.caller.run_id)


async def test_an_unavailable_store_is_reported(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 3)
    async with world.service() as (caller, _):
        await caller.fetch(ref, 600)
        world.objects.plan = lambda call: Fault(error=Unavailable("503")) if call.kind == "list_from" else None
        (answer,) = await sizes(caller, ref)
        assert (answer.status, answer.bytes) == (Status.UNAVAILABLE, 0)


async def test_partitions_are_measured_concurrently_and_a_slow_one_does_not_delay_the_others(
    autojump_clock: MockClock,
) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        refs = siblings(await world.topic(catalog, partitions=6), 6)
        for ref in refs:
            await caller.fill(ref, 3)
    async with world.service(reads_in_flight=3) as (caller, _):
        for ref in refs:
            await caller.fetch(ref, 600)
        running = most = 0
        list_from = world.objects.list_from

        async def slow(prefix: str, *args: Any, **options: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            # The listing of the first partition never ends.
            await trio.sleep(math.inf if paths.partition_prefix(NAMESPACE, "orders", 0) in prefix else 1)
            running -= 1
            return await list_from(prefix, *args, **options)

        world.objects.list_from = slow  # type: ignore[method-assign]
        request = LogSizesRequest(queries=[SizeQuery(partition=ref) for ref in refs], wait_ms=10_000)
        results = (await caller.storage.log_sizes(request, timeout=60)).results
        assert [answer.status for answer in results] == [Status.UNAVAILABLE, *[Status.OK] * 5]
        assert all(answer.bytes > 0 for answer in results[1:])
        assert most == 3
