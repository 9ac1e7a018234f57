"""Retention of compacted topics, and the metric of their size."""

from typing import cast

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.objects.interface import ObjectInfo, ObjectStore
from kafscale.objects.memory import MemoryObjectStore
from services.storage.log.known_segment import KnownSegment
from services.storage.log.partition import CommittedLog, Measured
from services.storage.log.segments import SegmentMap
from services.storage.monitoring import families
from services.storage.reading import finder
from services.storage.reading.finder import SegmentFinder
from services.storage.service import StorageService
from services.storage.settings import StorageSettings
from tests.support.storage.harness import NAMESPACE, World
from tests.unit.storage.test_retention import CHECK, HOUR, bases, fill


async def test_retention_applies_to_compacted_topics_only_with_delete_and_their_bytes_are_reported(
    autojump_clock: MockClock,
) -> None:
    def reported_bytes(service: StorageService) -> object:
        found = {family.name: family.read() for family in families(world.counters, lambda: service.current, settings)}
        return found["kafscale_storage_compacted_topics_bytes"][()]

    settings = StorageSettings()
    limits = {"retention.ms": str(24 * HOUR), "retention.bytes": "1"}
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog, configs={**limits, "cleanup.policy": "compact"})
        await fill(world, caller, ref, [10_000] * 3)
        assert reported_bytes(caller.service) == 0
        await trio.sleep(CHECK + 10)
        assert await bases(world) == [0, 2, 4]
        stored = await world.objects.list_from(f"{NAMESPACE}/orders/")
        assert reported_bytes(caller.service) == sum(info.size for info in stored if info.key.endswith(".kfs"))
        await catalog.configure(ref.topic_id, lambda configs: {**configs, "cleanup.policy": "compact,delete"})
        await trio.sleep(CHECK)
        assert await bases(world) == []
        assert reported_bytes(caller.service) == 0


async def test_a_log_larger_than_the_segment_map_is_measured_in_several_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "_PAGE", 50)
    segments = 3_000
    objects = MemoryObjectStore()
    for base in range(segments):
        await objects.put_if_absent(paths.segment_key(NAMESPACE, "t", 0, base), b"12345")
    listings: list[str] = []

    class Watched:
        async def list_from(self, prefix: str, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
            listings.append(start_after)
            return await objects.list_from(prefix, start_after, limit)

    known = SegmentMap(segments, limit=1_000)
    view = CommittedLog("t", bytes(16), 0, [(1, 0)], log_start=0, segments_end=segments, segments=known)
    finds = SegmentFinder(cast(ObjectStore, Watched()), NAMESPACE)
    first = await finds.measure(view, Measured())
    assert (len(listings), first) == (50, Measured(0, 2_500, 2_500 * 5)), "the next check continues"
    whole = await finds.measure(view, first)
    assert (len(listings), whole) == (60, Measured(0, segments, segments * 5))
    known.committed(KnownSegment(segments, 7, -1), segments + 1)
    view.segments_end += 1
    longer = await finds.measure(view, whole)
    assert (len(listings), longer) == (60, Measured(0, segments + 1, segments * 5 + 7)), "a commit needs no request"
    view.log_start = segments
    assert await finds.measure(view, longer) == Measured(segments, segments + 1, 7)
