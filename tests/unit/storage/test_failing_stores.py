"""Outages of S3 and of the metadata store: nothing is lost, available data is served, and the service recovers."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Refused, Unavailable
from kafscale.metadata.memory import Fault as MetadataFault
from kafscale.metadata.memory import Method, no_answer
from kafscale.objects.availability import StoreHealth, Thresholds
from kafscale.objects.memory import Call, Fault
from kafscale.objects.metrics import MeteredObjectStore
from kafscale.objects.retry import RetryingObjectStore
from kafscale.telemetry import State
from kafscale.v1.common_pb2 import PartitionRef, Status
from services.storage.reading.cache import LruCache, SegmentId
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, values


def slow_down(call: Call) -> Fault | None:
    return Fault(error=Unavailable("503 SlowDown"))


async def until_served(caller: Caller, ref: PartitionRef, offset: int) -> None:
    """Fetch until served, as a consumer does on retriable errors."""
    for _ in range(120):
        if (await caller.fetch(ref, offset)).status == Status.OK:
            return
        await trio.sleep(0.5)
    pytest.fail("not served again within a minute")


class UnhealthyWorld(World):
    """A world whose object store has the retries and health checks of a process."""

    def __init__(self) -> None:
        super().__init__()
        self.health = StoreHealth(Thresholds())
        self.bare = self.objects

    def wrap(self) -> None:
        metered = MeteredObjectStore(self.bare, self.health)
        self.objects = RetryingObjectStore(metered, lambda: 0.5)  # type: ignore[assignment]  # the tests use `bare`


async def test_appends_wait_during_an_s3_outage_and_are_stored_in_order_after_it(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    world.wrap()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"before")))
        world.bare.plan = slow_down
        appended = []
        for number in range(200):
            appended.append(await caller.append(ref, batch(b"%d" % number)))
            await trio.sleep(0.7)
        assert all(one.status == Status.OK for one in appended)
        assert not any(news.high_watermark > 1 for news in caller.news)
        # Cached reads continue.
        assert values((await caller.fetch(ref, 0)).records) == [b"before"]
        assert world.health.finding().state is State.UNAVAILABLE
        world.bare.plan = None
        back = trio.current_time()
        assert await caller.durable(appended[-1])
        assert trio.current_time() - back < 6
        assert await caller.read_all(ref) == [b"before", *(b"%d" % number for number in range(200))]


async def test_full_buffers_refuse_retriably_until_s3_is_back(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    world.wrap()
    async with world.service(partition_buffer_bytes=100_000, buffer_bytes=150_000) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"before")))
        world.bare.plan = slow_down
        statuses = [(await caller.append(ref, batch(b"x" * 9_000))).status for _ in range(30)]
        taken = statuses.count(Status.OK)
        assert 5 < taken < 12
        assert set(statuses[taken:]) == {Status.BUFFER_FULL}
        world.bare.plan = None
        await caller.flush(ref)
        assert (await caller.append(ref, batch(b"y"))).status == Status.OK
        await caller.flush(ref)
        assert len(await caller.read_all(ref)) == taken + 2


async def test_startup_and_take_overs_wait_while_s3_throttles(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.fill(ref, 2)
    world.wrap()
    world.bare.plan = slow_down
    async with trio.open_nursery() as nursery:

        async def recover() -> None:
            await trio.sleep(200)
            world.bare.plan = None

        nursery.start_soon(recover)
        async with world.service() as (caller, _):
            assert trio.current_time() >= 200
            world.bare.plan = slow_down
            fetched = await caller.fetch(ref, 0)
            assert (fetched.status, fetched.records) == (Status.UNAVAILABLE, b"")
            refused = await caller.append(ref, batch(b"too soon"))
            assert refused.status in (Status.UNAVAILABLE, Status.REFUSED_BEHIND)
            await trio.sleep(100)
            world.bare.plan = None
            await until_served(caller, ref, 0)
            assert len(await caller.read_all(ref)) == 400


async def test_slow_puts_cause_no_refusals(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    world.wrap()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        world.bare.plan = lambda call: Fault(delay=5.0) if call.kind == "put_if_absent" else None
        for number in range(20):
            appended = await caller.append(ref, batch(b"%d" % number))
            assert appended.status == Status.OK
            assert await caller.durable(appended)
            fetched = await caller.fetch(ref, number)
            assert values(fetched.records) == [b"%d" % number]
        assert world.health.finding().state is State.UNAVAILABLE


async def test_a_cold_scan_does_not_evict_the_tail() -> None:
    cache: LruCache[bytes] = LruCache(100, len)

    def key(base: int) -> SegmentId:
        return SegmentId(b"topic", 0, base, 1)

    for base in range(10):
        cache.put(key(base), bytes(10))
    for base in range(1000, 2000):
        cache.put(key(base), bytes(10), read_back=True)
        assert cache.used_bytes <= 100
    assert sum(key(base) in cache for base in range(10)) >= 7
    assert sum(key(base) in cache for base in range(1000, 2000)) >= 2
    # Writes do not evict all segments that readers have read either.
    for base in range(10, 100):
        cache.put(key(base), bytes(10))
    assert sum(key(base) in cache for base in range(1000, 2000)) == 2


async def test_lagging_readers_do_not_delay_producers(autojump_clock: MockClock) -> None:
    world = UnhealthyWorld()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for number in range(60):
            await caller.append(ref, batch(b"%d" % number + b"x" * 50_000))
            await caller.flush(ref)
    reading = {"now": 0, "most": 0}

    async with world.service(cache_size=10 * 60_000, reads_in_flight=4) as (caller, _):
        held = trio.Event()

        def plan(call: Call) -> Fault | None:
            if call.kind in ("get", "get_range") and call.key.endswith(".kfs"):
                reading["now"] += 1
                reading["most"] = max(reading["most"], reading["now"])
                return Fault(hold=held)
            return None

        last = await caller.append(ref, batch(b"tail"))
        assert await caller.durable(last)
        world.objects.plan = plan
        async with trio.open_nursery() as nursery:
            for offset in range(0, 60, 2):
                nursery.start_soon(caller.fetch, ref, offset)
            await trio.sleep(5)
            began = trio.current_time()
            appended = await caller.append(ref, batch(b"more"))
            assert await caller.durable(appended)
            assert trio.current_time() - began < 2
            assert values((await caller.fetch(ref, last.base_offset)).records)[:1] == [b"tail"]
            assert 1 <= reading["most"] <= 4
            world.objects.plan = None
            held.set()
        for offset in range(50):
            assert (await caller.fetch(ref, offset, max_bytes=1)).records
        before = len(world.objects.calls)
        assert values((await caller.fetch(ref, last.base_offset)).records)[:1] == [b"tail"]
        assert len(world.objects.calls) == before


async def test_without_etcd_acks_stop_with_the_lease_and_reads_continue(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service(lease_ttl_seconds=10) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"a", b"b")))
        world.metadata.faults.append(no_answer(times=10**9))
        # While the lease is proven, offsets and acks=1 are answered; acks=all waits for its commit.
        waiting = await caller.append(ref, batch(b"c"))
        assert waiting.status == Status.OK
        assert (await caller.append(ref, batch(b"d"), unacknowledged=True)).status == Status.OK
        assert (await caller.offset_at(ref, -1)).offset == 2
        await trio.sleep(30)
        assert (await caller.append(ref, batch(b"e"), unacknowledged=True)).status == Status.NOT_OWNER
        assert not any(news.high_watermark > 2 for news in caller.news)
        below = await caller.fetch(ref, 1)
        assert (below.status, values(below.records), below.high_watermark) == (Status.OK, [b"a", b"b"], -1)
        at_end = await caller.fetch(ref, 2)
        assert (at_end.status, at_end.records) == (Status.NOT_OWNER, b"")
        assert (await caller.offset_at(ref, -1)).status == Status.NOT_OWNER
        world.metadata.faults.clear()
        await trio.sleep(30)
        await until_served(caller, ref, 2)
        assert (await caller.offset_at(ref, -1)).status == Status.OK
        assert (await caller.read_all(ref))[:2] == [b"a", b"b"]


@pytest.mark.parametrize("method", ["grant_lease", "txn"])
async def test_the_service_survives_a_lease_lost_during_another_etcd_outage(
    autojump_clock: MockClock, method: str
) -> None:
    async with (world := World()).service(lease_ttl_seconds=10) as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"x")))
        world.metadata.faults.append(no_answer("keep_alive", times=8))
        world.metadata.faults.append(no_answer(method, times=60))  # type: ignore[arg-type]
        await trio.sleep(300)
        fetched = await caller.fetch(ref, 0)
        assert (fetched.status, values(fetched.records)) == (Status.OK, [b"x"])


REFUSALS: dict[str, tuple[Method, str]] = {
    "renewal": ("keep_alive", ""),
    "new lease": ("grant_lease", ""),
    "commit": ("txn", paths.partition_states_prefix(NAMESPACE)),
    "epoch history": ("txn", paths.epoch_histories_prefix(NAMESPACE)),
    "registration": ("txn", paths.members_prefix(NAMESPACE, "storage")),
    "read": ("read_prefix", ""),
    "watch": ("watch", ""),
    "get": ("get", ""),
}


@pytest.mark.parametrize(("method", "key"), REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("lost", [False, True], ids=["lease holds", "lease lost"])
async def test_the_service_survives_temporary_refusals_by_etcd(
    autojump_clock: MockClock, method: Method, key: str, lost: bool
) -> None:
    """As if somebody fixed the permissions of etcd's users while the process runs."""
    world = World(replace(World().settings, lease_ttl_seconds=10, retention_bytes=10**9, retention_check_ms=5_000))
    async with world.service() as (caller, catalog):
        ref, idle, _ = [await world.topic(catalog, name) for name in ("orders", "idle", "unused")]
        assert await caller.durable(await caller.append(ref, batch(b"a")))
        refusal = MetadataFault(method=method, key=key, before=Refused("etcdserver: permission denied"), times=10**9)
        world.metadata.faults.append(refusal)
        if lost:
            world.metadata.faults.append(no_answer("keep_alive", times=8))
        waiting = await caller.append(ref, batch(b"b"))
        await caller.append(idle, batch(b"c"))
        await trio.sleep(60)
        world.metadata.faults.remove(refusal)
        await trio.sleep(60)
        await until_served(caller, ref, 0)
        assert lost or (waiting.status == Status.OK and await caller.durable(waiting))
        assert (await caller.read_all(ref))[:1] == [b"a"]


@pytest.mark.parametrize("end", ["hand over", "delete"])
async def test_refusals_by_etcd_only_delay_a_hand_over_or_deletion(autojump_clock: MockClock, end: str) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"a")))
        states = paths.partition_states_prefix(NAMESPACE)
        world.metadata.faults.append(
            MetadataFault(method="txn", key=states, before=Refused("etcdserver: permission denied"), times=3)
        )
        if end == "delete":
            await catalog.mark_deleting(ref.topic)
            with trio.fail_after(60):
                await catalog.wait_free(ref.topic)
    async with world.service() as (caller, catalog):
        if end == "hand over":
            assert await caller.read_all(ref) == [b"a"]
        else:
            assert not catalog.view.by_name
