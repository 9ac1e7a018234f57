"""Partitions that cannot be read at their take-over are retried, and accept records after that succeeds."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.memory import no_answer
from kafscale.objects.interface import Object, ObjectInfo, ObjectNotFound, ObjectStore
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.segment.format import HEADER_SIZE
from kafscale.telemetry import State
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import LogSizesRequest, SizeQuery
from services.storage.monitoring import _partitions
from tests.support.storage.harness import NAMESPACE, TIMEOUT, Caller, World, batch, state_key
from tests.support.storage.sequences import numbered, send
from tests.unit.storage.test_described_producers import listed_producers

LONGEST_PAUSE = 60.0


class Endpoint:
    """An object store with faults. ``empty`` hides all objects; ``lists_nothing`` hides them from the next listing.

    The next object that ``garble`` accepts by its key is read with a flipped bit.
    """

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.empty = self.lists_nothing = False
        self.garble: Callable[[str], bool] = lambda key: False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get(self, key: str) -> Object:
        if self.empty:
            raise ObjectNotFound(key)
        found = await self._inner.get(key)
        if self.garble(key):
            self.garble = lambda key: False
            body = bytearray(found.body)
            body[len(body) // 2] ^= 1
            return Object(bytes(body), found.etag)
        return found

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        if self.empty:
            raise ObjectNotFound(key)
        found = await self._inner.get_range(key, start, length)
        if length == HEADER_SIZE and self.garble(key):
            self.garble = lambda key: False
            return found[:-2] + bytes([found[-2] ^ 1]) + found[-1:]
        return found

    async def list_from(self, prefix: str, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        nothing, self.lists_nothing = self.empty or self.lists_nothing, False
        return [] if nothing else await self._inner.list_from(prefix, start_after, limit)


def _endpoint(world: World) -> tuple[Endpoint, ObjectStore]:
    endpoint = Endpoint(world.objects)
    return endpoint, cast(ObjectStore, endpoint)


async def _write_and_kill(world: World, batches: int) -> PartitionRef:
    """Commit ``batches`` segments of an idempotent producer, and kill the owner."""
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(batches):
            assert await caller.durable(await send(caller, ref, number))
            await caller.flush(ref)
    await trio.sleep(60)
    return ref


def _health(caller: Caller) -> State:
    return _partitions(caller.service.current).state


async def test_a_single_bad_read_puts_no_partition_offline(autojump_clock: MockClock) -> None:
    world = World()
    ref = await _write_and_kill(world, 3)
    endpoint, objects = _endpoint(world)
    async with world.service(objects=objects) as (caller, _):
        endpoint.garble = lambda key: key.endswith(".kfs")
        assert (await send(caller, ref, 3)).status == Status.OK
        repeated = await send(caller, ref, 2)
        assert (repeated.status, repeated.base_offset) == (Status.OK, 2)
    async with world.service(objects=objects) as (caller, _):
        endpoint.garble = lambda key: "/~producers/" in key
        assert (await caller.delete_records(ref, -1)).status == Status.OK
    async with world.service(objects=objects) as (caller, _):
        endpoint.garble = lambda key: "/~producers/" in key
        repeated = await send(caller, ref, 2)
        assert (repeated.status, repeated.base_offset) == (Status.OK, 2)


async def test_a_partition_comes_back_online_when_its_objects_are_back(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    ref = await _write_and_kill(world, 3)
    endpoint, objects = _endpoint(world)
    async with world.service(objects=objects) as (caller, _):
        endpoint.empty = True
        first = await send(caller, ref, 3)
        assert (first.status, "mark" in first.detail) == (Status.DAMAGED, True)
        # An empty list would mean that the log has no producers.
        producers = await listed_producers(caller, ref)
        assert (producers.status, list(producers.producers)) == (Status.DAMAGED, [])
        await trio.sleep(600)
        assert (await send(caller, ref, 3)).status == Status.DAMAGED
        assert _health(caller) == State.DEGRADED
        assert 600 / LONGEST_PAUSE <= world.counters.offline_retries <= 600 / LONGEST_PAUSE + 8
        endpoint.empty = False
        await trio.sleep(LONGEST_PAUSE + 1)
        assert _health(caller) == State.HEALTHY
        repeated = await send(caller, ref, 1)
        assert (repeated.status, repeated.base_offset) == (Status.OK, 1)
        later = await send(caller, ref, 3)
        assert (later.status, later.base_offset) == (Status.OK, 3)
        assert await caller.durable(later)
        assert await caller.read_all(ref) == [b"0", b"1", b"2", b"3"]


async def test_a_log_whose_oldest_objects_were_deleted_starts_later(autojump_clock: MockClock) -> None:
    world = World()
    ref = await _write_and_kill(world, 6)
    await world.objects.delete_many([paths.segment_key(NAMESPACE, ref.topic, ref.partition, base) for base in range(3)])
    async with world.service() as (caller, _):
        repeated = await send(caller, ref, 5)
        assert (repeated.status, repeated.base_offset) == (Status.OK, 5)
        assert await caller.durable(await send(caller, ref, 6))
        await trio.sleep(1)
        fetched = await caller.fetch(ref, 0)
        assert (fetched.status, fetched.log_start) == (Status.OFFSET_OUT_OF_RANGE, 3)
        assert await caller.read_all(ref, 3) == [b"3", b"4", b"5", b"6"]
        assert _health(caller) == State.HEALTHY


async def test_a_missing_object_keeps_a_partition_offline_until_it_is_back(autojump_clock: MockClock) -> None:
    world = World()
    ref = await _write_and_kill(world, 6)
    key = paths.segment_key(NAMESPACE, ref.topic, ref.partition, 2)
    removed = await world.objects.get(key)
    await world.objects.delete_many([key])
    async with world.service() as (caller, _):
        assert (await send(caller, ref, 6)).status == Status.DAMAGED
        await trio.sleep(600)
        assert (await send(caller, ref, 6)).status == Status.DAMAGED
        await world.objects.put_if_absent(key, removed.body)
        await trio.sleep(LONGEST_PAUSE + 1)
        assert (await send(caller, ref, 6)).status == Status.OK


@pytest.mark.parametrize("graceful", [False, True])
async def test_an_offline_partition_is_handed_over(autojump_clock: MockClock, graceful: bool) -> None:
    world = World(intake=False)
    ref = await _write_and_kill(world, 3)
    endpoint, objects = _endpoint(world)
    async with world.service(objects=objects, graceful=graceful) as (caller, _):
        endpoint.empty = True
        assert (await send(caller, ref, 3)).status == Status.DAMAGED
    await trio.sleep(60)
    async with world.service() as (caller, _):
        repeated = await send(caller, ref, 2)
        assert (repeated.status, repeated.base_offset) == (Status.OK, 2)


async def test_a_single_bad_read_of_a_dead_owners_object_puts_no_partition_offline(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(graceful=False) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"0")))
        world.metadata.faults.append(no_answer("txn", key=state_key(ref), times=1_000))
        await caller.append(ref, batch(b"never committed"))
        await trio.sleep(1)
    world.metadata.faults.clear()
    await trio.sleep(60)
    endpoint, objects = _endpoint(world)
    async with world.service(objects=objects) as (caller, _):
        endpoint.garble = lambda key: key.endswith(".kfs")
        assert (await caller.append(ref, batch(b"1"))).status == Status.OK


async def test_a_single_bad_read_of_a_header_removes_no_segment(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(3):
            assert await caller.durable(await caller.append(ref, batch(b"%d" % number)))
    endpoint, objects = _endpoint(world)
    async with world.service(objects=objects) as (caller, _):
        endpoint.garble = lambda key: key == paths.segment_key(NAMESPACE, ref.topic, ref.partition, 0)
        await caller.fetch(ref, 0)
        # Retention would delete segments that it does not recognize.
        await trio.sleep(600)
        assert await caller.read_all(ref) == [b"0", b"1", b"2"]


async def test_a_single_bad_read_of_an_own_object_does_not_fence(autojump_clock: MockClock) -> None:
    world = World()
    endpoint, objects = _endpoint(world)
    async with world.service(objects=objects) as (caller, catalog):
        ref = await world.topic(catalog)
        puts = 0

        def lost_answer(call: Call) -> Fault | None:
            nonlocal puts
            puts += call.kind == "put_if_absent" and call.key.endswith(".kfs")
            return Fault(error=Unavailable("no answer"), applied="before") if puts == 1 else None

        world.objects.plan = lost_answer
        endpoint.garble = lambda key: key.endswith(".kfs")
        appended = await caller.append(ref, batch(b"0"))
        assert await caller.durable(appended)
        assert (await caller.append(ref, numbered(0))).status == Status.OK


async def test_a_misread_header_does_not_exclude_a_segment_from_the_log(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for value in (b"a", b"b", b"c"):
            assert await caller.durable(await caller.append(ref, batch(value)), ref)
            await caller.flush(ref)
    endpoint, objects = _endpoint(world)
    async with world.service(objects=objects) as (caller, _):
        endpoint.garble = lambda key: key.endswith("segment-00000000000000000000.kfs")
        request = LogSizesRequest(queries=[SizeQuery(partition=ref)])
        (size,) = (await caller.storage.log_sizes(request, timeout=TIMEOUT)).results
        assert (size.status, size.segments) == (Status.OK, 3)
        assert await caller.read_all(ref) == [b"a", b"b", b"c"]
