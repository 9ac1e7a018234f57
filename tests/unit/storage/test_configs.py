"""Changed topic configs apply at once, also to buffered records."""

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale import paths
from kafscale.metadata.topics import TopicCatalog
from kafscale.objects.memory import Fault
from kafscale.segment.format import SegmentHeader
from kafscale.v1.common_pb2 import PartitionRef, Status
from services.storage.log.partition import Partition
from services.storage.owning.owned import OwnedPartitions
from tests.support.storage.harness import NAMESPACE, Caller, World, batch, siblings


def _segments(world: World) -> int:
    return sum(call.kind == "put_if_absent" and call.key.endswith(".kfs") for call in world.objects.calls)


async def _configure(catalog: TopicCatalog, ref: PartitionRef, **configs: str) -> None:
    new = {name.replace("_", "."): value for name, value in configs.items()}
    await catalog.configure(ref.topic_id, lambda _: new)
    await wait_all_tasks_blocked()


async def _seconds_until_durable(caller: Caller, ref: PartitionRef) -> float:
    began = trio.current_time()
    appended = await caller.append(ref, batch(b"x"))
    assert await caller.durable(appended)
    return trio.current_time() - began


async def test_flush_ms_overrides_the_clusters_interval(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service(flush_interval_ms=500) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "9000"})
        await _seconds_until_durable(caller, ref)
        assert 8 < await _seconds_until_durable(caller, ref) < 10
        await _configure(catalog, ref, flush_ms="2000")
        await _seconds_until_durable(caller, ref)
        assert 1 < await _seconds_until_durable(caller, ref) < 3
        await _configure(catalog, ref)
        await _seconds_until_durable(caller, ref)
        assert await _seconds_until_durable(caller, ref) < 1


async def test_a_shorter_flush_ms_applies_to_buffered_records(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service(flush_interval_ms=500) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "9000"})
        await _seconds_until_durable(caller, ref)
        appended = await caller.append(ref, batch(b"waits"))
        await trio.sleep(5)
        assert (await caller.fetch(ref, 0)).high_watermark == 1
        await _configure(catalog, ref, flush_ms="1000")
        with trio.fail_after(2):
            assert await caller.durable(appended)


async def test_kafkas_default_flush_ms_does_not_delay_producers(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service(flush_interval_ms=500) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": str(2**63 - 1)})
        await _seconds_until_durable(caller, ref)
        assert await _seconds_until_durable(caller, ref) < 1


async def test_segment_bytes_applies_from_the_next_append(autojump_clock: MockClock) -> None:
    async with (world := World()).service(flush_interval_ms=600_000) as (caller, catalog):
        ref = await world.topic(catalog, configs={"segment.bytes": "5000"})
        await _seconds_until_durable(caller, ref)
        before = _segments(world)
        for _ in range(10):
            last = await caller.append(ref, batch(bytes(1_000)))
        assert await caller.durable(last)
        assert _segments(world) == before + 2
        await _configure(catalog, ref, segment_bytes="1000")
        for _ in range(3):
            last = await caller.append(ref, batch(bytes(1_000)))
        assert await caller.durable(last)
        assert _segments(world) == before + 5


async def test_segment_bytes_is_capped_at_a_quarter_of_the_buffer(autojump_clock: MockClock) -> None:
    async with (world := World()).service(partition_buffer_bytes=40_000, flush_interval_ms=600_000) as (
        caller,
        catalog,
    ):
        ref = await world.topic(catalog)
        await _configure(catalog, ref, segment_bytes="1000000")
        await _seconds_until_durable(caller, ref)
        before = _segments(world)
        for _ in range(10):
            last = await caller.append(ref, batch(bytes(2_000)))
        assert await caller.durable(last)
        assert _segments(world) == before + 2


async def test_compression_type_applies_to_the_next_segment(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        codecs = []
        for codec in ("uncompressed", "zstd", "gzip"):
            await _configure(catalog, ref, compression_type=codec)
            appended = await caller.append(ref, batch(bytes(5_000)))
            await caller.flush(ref)
            key = paths.segment_key(NAMESPACE, ref.topic, 0, appended.base_offset)
            codecs.append(SegmentHeader.parse((await world.objects.get(key)).body).flags & 7)
        assert codecs == [0, 4, 1]


async def test_configs_changed_during_a_take_over_apply(autojump_clock: MockClock) -> None:
    async with (world := World(intake=False)).service(flush_interval_ms=500) as (caller, catalog):
        ref = await world.topic(catalog, configs={"flush.ms": "9000"})
        held = trio.Event()
        world.objects.plan = lambda call: Fault(hold=held) if call.kind == "list_from" else None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_seconds_until_durable, caller, ref)
            await wait_all_tasks_blocked()
            await _configure(catalog, ref, flush_ms="1000")
            held.set()
        assert await _seconds_until_durable(caller, ref) < 2


async def test_added_partitions_are_taken_over_and_written(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        new = PartitionRef(topic=ref.topic, topic_id=ref.topic_id, partition=4)
        refused = await caller.append(new, batch(b"too early"))
        assert refused.status == Status.UNKNOWN_TOPIC
        await catalog.grow(ref.topic_id, 5)
        # Appends do not wait for a take-over that has failed within the last ten seconds.
        await trio.sleep(11)
        appended = await caller.append(new, batch(b"x"))
        assert await caller.durable(appended, new)
        assert await caller.read_all(new) == [b"x"]


async def test_a_config_change_visits_only_the_partitions_of_its_topic(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[str] = []
    configure = OwnedPartitions.configure

    def record_and_configure(owned: OwnedPartitions, partition: Partition, configs: Mapping[str, str]) -> bool:
        visited.append(partition.name)
        return configure(owned, partition, configs)

    async with (world := World()).service() as (caller, catalog):
        other = await world.topic(catalog, "other", partitions=3)
        ref = await world.topic(catalog, "changes", partitions=2)
        for each in (*siblings(other, 3), *siblings(ref, 2)):
            assert await caller.durable(await caller.append(each, batch(b"x")), each)
        monkeypatch.setattr(OwnedPartitions, "configure", record_and_configure)
        await _configure(catalog, ref, flush_ms="1000")
        assert visited == ["changes-0", "changes-1"]
        visited.clear()
        await world.topic(catalog, "new")
        await wait_all_tasks_blocked()
        assert not [name for name in visited if not name.startswith("new")]
