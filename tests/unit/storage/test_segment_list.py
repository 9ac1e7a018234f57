"""The list of a log's segments for operators."""

import gc
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.membership import Membership
from kafscale.objects.memory import Fault
from kafscale.segment.reader import ParsedSegment
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.indexer_pb2 import SegmentRef, VerifyReply
from kafscale.v1.storage_pb2 import SegmentsReply, SegmentsRequest
from services.storage.methods import segments as segment_list
from tests.support.storage.cluster import cluster
from tests.support.storage.harness import NAMESPACE, Caller, World, batch
from tests.unit.storage.test_fencing import segment_of

RECORDS = 3
SEGMENTS = 5


async def _segments(caller: Caller, ref: PartitionRef, **options: Any) -> SegmentsReply:
    return await caller.storage.segments(SegmentsRequest(partition=ref, **options), timeout=60)


async def _write(caller: Caller, ref: PartitionRef, segments: int = SEGMENTS) -> None:
    """Write segments of three records each."""
    for number in range(segments):
        appended = await caller.append(ref, batch(*(b"%d" % number,) * RECORDS))
        await caller.flush(ref)
        assert await caller.durable(appended)


def _key(ref: PartitionRef, base: int) -> str:
    return paths.segment_key(NAMESPACE, ref.topic, ref.partition, base)


def _bases(reply: SegmentsReply) -> list[int]:
    return [segment.base_offset for segment in reply.segments]


async def test_segments_are_listed_from_any_offset_in_pages(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        empty = await _segments(caller, ref)
        assert (empty.status, _bases(empty), empty.next, empty.high_watermark) == (Status.OK, [], 0, 0)
        await _write(caller, ref)
        reply = await _segments(caller, ref)
        assert (reply.next, reply.high_watermark) == (15, 15)
        listed = [(each.base_offset, each.end_offset, each.epoch, each.object) for each in reply.segments]
        assert listed == [(base, base + RECORDS, 1, _key(ref, base)) for base in (0, 3, 6, 9, 12)]
        sizes = {info.key: info.size for info in await world.objects.list_from("")}
        assert [each.bytes for each in reply.segments] == [sizes[each.object] for each in reply.segments]
        some = await _segments(caller, ref, start=4, limit=2)
        assert (_bases(some), some.next) == ([3, 6], 9)
        assert _bases(await _segments(caller, ref, start=some.next)) == [9, 12]
        assert _bases(await _segments(caller, ref, start=15)) == []
        assert (await caller.delete_records(ref, 4)).log_start == 4
        assert _bases(await _segments(caller, ref)) == [3, 6, 9, 12]
    async with world.service() as (caller, _):
        assert _bases(await _segments(caller, ref)) == [3, 6, 9, 12]


async def test_a_reply_has_a_bounded_number_of_segments(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_list, "_MAX_SEGMENTS", 4)
    monkeypatch.setattr(segment_list, "_MAX_VERIFIED", 2)
    async with (world := World(indexing=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
        assert _bases(await _segments(caller, ref, limit=100)) == [0, 3, 6, 9]
        assert _bases(await _segments(caller, ref, verify=True)) == [0, 3]


async def test_a_verifying_reply_is_bounded_in_bytes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (world := World(indexing=True)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
        sizes = [each.bytes for each in (await _segments(caller, ref)).segments]
        monkeypatch.setattr(segment_list, "_MAX_VERIFIED_BYTES", sum(sizes[:3]))
        reply = await _segments(caller, ref, verify=True)
        assert (_bases(reply), reply.next) == ([0, 3, 6], 9)
        monkeypatch.setattr(segment_list, "_MAX_VERIFIED_BYTES", 1)
        reply = await _segments(caller, ref, start=3, verify=True)
        assert (_bases(reply), reply.next) == ([3], 6)
        assert _bases(await _segments(caller, ref)) == [0, 3, 6, 9, 12]


async def test_few_segments_are_verified_at_a_time_and_none_stays_in_memory(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(indexing=True)
    whole, active, most = world.indexer.verify, 0, 0

    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, ParsedSegment) for each in gc.get_objects())

    async def verify(request: SegmentRef, *, timeout: float) -> VerifyReply:
        nonlocal active, most
        assert kept() == before
        active += 1
        most = max(most, active)
        await trio.sleep(1)
        active -= 1
        return await whole(request, timeout=timeout)

    monkeypatch.setattr(world.indexer, "verify", verify)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
        before = kept()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_faults, caller, ref)
    assert most == 2


async def test_segment_requests_to_another_instance_name_the_owner(autojump_clock: MockClock) -> None:
    async with cluster(World(), "a:1", "b:1") as two:
        ref = await two.world.topic(two.instances[0].catalog, partitions=1)
        await two.append_durably(ref, batch(b"x"))
        owner = two.assigned(ref)
        (other,) = (instance for instance in two.instances if instance is not owner)
        reply = await _segments(other.caller, ref)
        assert (reply.status, reply.owner) == (Status.NOT_OWNER, owner.caller.run_id)


async def _faults(caller: Caller, ref: PartitionRef) -> dict[int, str]:
    reply = await _segments(caller, ref, verify=True)
    assert reply.status == Status.OK, reply.detail
    return {each.base_offset: "; ".join(each.faults) for each in reply.segments if each.faults}


async def test_damaged_and_missing_objects_are_found(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
        assert await _faults(caller, ref) == {}
        body = bytearray((await world.objects.get(_key(ref, 3))).body)
        body[-30] ^= 1
        await _replace(world, _key(ref, 3), bytes(body))
        await _replace(world, paths.index_key(NAMESPACE, ref.topic, 0, 12), b"no index")
        await world.objects.delete_many([_key(ref, 9)])
        found = await _faults(caller, ref)
    # The end of segment 6 is checked before or after segment 9 is found missing.
    assert {3, 9, 12} <= set(found) <= {3, 6, 9, 12}
    assert _key(ref, 3) in found[3]
    assert found[9] == "orders-0: the segment at offset 9 is missing from the object store"
    assert "index" in found[12].lower()
    async with world.service() as (caller, _):
        # A missing segment that is not in the segment map is reported at the end of the previous one.
        found = await _faults(caller, ref)
    assert set(found) == {3, 6, 12}
    assert found[6] == "orders-0: the segment at offset 9 is missing from the object store"


async def test_missing_and_wrong_indexes_are_rebuilt(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
        keys = [paths.index_key(NAMESPACE, ref.topic, 0, base) for base in (3, 6, 9)]
        right = [(await world.objects.get(key)).body for key in keys]
        await _replace(world, keys[0], b"no index")
        await world.objects.delete_many([keys[1]])
        # No index is built from a damaged segment.
        await _replace(world, _key(ref, 9), b"no segment, but as long as its first bytes are" * 4)
        await world.objects.delete_many([keys[2]])
        reply = await _segments(caller, ref, verify=True, reindex=True)
        listed = [(each.base_offset, each.reindexed, bool(each.faults)) for each in reply.segments]
        assert [each for each in listed if each[0] != 6] == [
            *((0, False, False), (3, True, False), (9, False, True), (12, False, False))
        ]
        assert listed[2][:2] == (6, True)
        assert [(await world.objects.get(key)).body for key in keys[:2]] == right[:2]
        again = await _segments(caller, ref, verify=True, reindex=True)
        assert not any(each.reindexed for each in again.segments)
        world.objects.plan = lambda call: Fault(error=Unavailable("503")) if call.kind == "get" else None
        assert (await _segments(caller, ref, verify=True, reindex=True)).status == Status.UNAVAILABLE


async def test_missing_first_segments_do_not_hide_later_ones(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
    await world.objects.delete_many([_key(ref, 0), _key(ref, 3)])
    async with world.service() as (caller, _):
        reply = await _segments(caller, ref, limit=1)
        assert [(each.base_offset, each.end_offset, each.bytes, each.object) for each in reply.segments] == [
            (0, 6, 0, "")
        ]
        assert (list(reply.segments[0].faults), reply.next) == (
            ["orders-0: no segment holds the offsets from 0 to 5"],
            6,
        )
        # The owner handles it as if a reader had found it.
        await trio.sleep(1)
        assert _bases(await _segments(caller, ref)) == [6, 9, 12]
        assert (await caller.fetch(ref, 0)).log_start == 6
    await world.objects.delete_many([_key(ref, 6)])
    async with world.service() as (caller, _):
        reply = await _segments(caller, ref, verify=True)
        assert [(each.base_offset, each.end_offset, len(each.faults)) for each in reply.segments] == [
            (6, 9, 1),
            (9, 12, 0),
            (12, 15, 0),
        ]
    await world.objects.delete_many([_key(ref, base) for base in (6, 9, 12)])
    async with world.service() as (caller, _):
        reply = await _segments(caller, ref, start=10, verify=True)
        assert [(each.base_offset, each.end_offset, len(each.faults)) for each in reply.segments] == [(10, 15, 1)]
        assert reply.next == 15


async def test_an_owner_without_a_proven_lease_reports_no_missing_segments(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
    await world.objects.delete_many([_key(ref, 0)])
    async with world.service() as (caller, _):
        assert (await caller.fetch(ref, 3)).log_start == 0
        with monkeypatch.context() as lapsed:
            lapsed.setattr(Membership, "proven", False)
            reply = await _segments(caller, ref)
        assert (reply.status, _bases(reply)) == (Status.NOT_OWNER, [])


@pytest.mark.parametrize("base", [0, 6])
async def test_a_reply_may_begin_with_a_damaged_segment(autojump_clock: MockClock, base: int) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
    await _replace(world, _key(ref, base), b"no segment, but as long as its first bytes are" * 4)
    async with world.service() as (caller, _):
        reply = await _segments(caller, ref, start=base, limit=1, verify=True)
        assert [each.object for each in reply.segments if each.faults] == [_key(ref, base)]
        assert reply.next == base + RECORDS


async def test_a_dead_owners_segment_is_not_listed(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref, 1)
    async with world.service() as (caller, _):
        await _write(caller, ref, 2)
    # A segment of epoch 1 among offsets of epoch 2.
    await world.objects.put_if_absent(_key(ref, 4), segment_of(1, 4, batch(b"left")))
    async with world.service() as (caller, _):
        reply = await _segments(caller, ref, verify=True)
        assert [(each.base_offset, list(each.faults)) for each in reply.segments] == [(0, []), (3, []), (6, [])]


async def test_an_unavailable_store_is_not_reported_as_damage(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
        world.objects.plan = lambda call: Fault(error=Unavailable("503")) if call.kind == "get" else None
        reply = await _segments(caller, ref, verify=True)
        assert (reply.status, reply.detail, _bases(reply)) == (Status.UNAVAILABLE, "503", [])
        world.objects.plan = lambda call: None
        assert await _faults(caller, ref) == {}


async def test_segments_cannot_be_verified_without_an_indexer(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        await _write(caller, ref)
        assert (await _segments(caller, ref, verify=True)).status == Status.UNAVAILABLE


async def _replace(world: World, key: str, body: bytes) -> None:
    await world.objects.delete_many([key])
    await world.objects.put_if_absent(key, body)
