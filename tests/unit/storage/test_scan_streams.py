"""Scan: whole batches of a range, streamed in pieces by any instance."""

from collections.abc import Iterable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import Unavailable
from kafscale.metadata.interface import Put
from kafscale.objects.memory import Fault
from kafscale.records.batch import walk
from kafscale.records.checksum import crc32c
from kafscale.records.record import Record, build_batch, read_records
from kafscale.segment.format import SegmentFooter, SegmentHeader
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.indexer_pb2 import SegmentRef
from kafscale.v1.metadata_pb2 import EpochHistory, PartitionState
from kafscale.v1.storage_pb2 import ScanPiece, ScanRequest
from tests.support.storage.cluster import Cluster, cluster
from tests.support.storage.harness import NAMESPACE, TIMEOUT, Caller, World, batch, state_key

COUNT = ScanRequest.COUNT


def scanned(pieces: Iterable[ScanPiece], start: int, end: int) -> list[tuple[int, bytes | None]]:
    """Return offsets and values of the records from ``start`` to ``end``, and check what must hold for every stream."""
    found = []
    expected = start
    for piece in pieces:
        assert piece.status == Status.OK, piece.detail
        assert piece.first_offset <= expected, "offsets are missing between two pieces"
        batches = list(walk(piece.records))
        if batches:
            assert batches[0][1].base_offset == piece.first_offset
            assert batches[-1][1].next_offset <= piece.next_offset
            assert {max(header.leader_epoch, 0) for _, header in batches} == {piece.epoch}
        for position, header in batches:
            batch = piece.records[position : position + header.size]
            records = read_records(batch, max_bytes=1 << 24)
            found += [(record.offset, record.value) for record in records if start <= record.offset < end]
        assert piece.next_offset > expected or (start >= end), "the stream makes no progress"
        expected = piece.next_offset
    assert expected >= end
    return found


async def imported(world: World, ref: PartitionRef, segments: list[list[int]]) -> None:
    """Create a log as imported from KafScale 1: batches of three records at these offsets, with gaps between them."""
    end = 0
    for bases in segments:
        body = b""
        for base in bases:
            body += build_batch([Record(base + i, 1_000, None, b"%d" % i) for i in range(3)], base_offset=base)
            end = base + 3
        header = SegmentHeader(0, bases[0], 3 * len(bases), 1_000, 0)
        stored = header.encode() + body + SegmentFooter(crc32c(body), end - 1).encode()
        await world.objects.put_if_absent(paths.segment_key(NAMESPACE, ref.topic, ref.partition, bases[0]), stored)
    state = PartitionState(format=1, topic_id=ref.topic_id, high_watermark=end, producers_from=end)
    history = EpochHistory(format=1, topic_id=ref.topic_id, entries=[EpochHistory.Entry(epoch=0, first_offset=0)])
    history_key = paths.epoch_history_key(NAMESPACE, ref.topic, ref.partition)
    puts = [Put(state_key(ref), state.SerializeToString()), Put(history_key, history.SerializeToString())]
    assert (await world.metadata.txn((), puts)).succeeded


async def two_instances(two: Cluster, partitions: int = 1) -> tuple[PartitionRef, Caller, Caller]:
    """Return an empty partition, its assigned owner and another instance. Both know the topic."""
    ref = await two.world.topic(two.instances[0].catalog, partitions=partitions)
    await trio.sleep(1)
    owner = two.assigned(ref)
    (other,) = [instance for instance in two.instances if instance is not owner]
    return ref, owner.caller, other.caller


def filled(segments: int, batches: int = 4) -> list[tuple[int, bytes | None]]:
    """Return the offsets and values that `Caller.fill` appends."""
    names = [b"%d.%d.%d" % (s, b, i) for s in range(segments) for b in range(batches) for i in range(50)]
    return list(enumerate(names))


@pytest.mark.parametrize("settings", [{}, {"cache_size": 0}, {"cache_size": 0, "scan_read_bytes": 1_000}])
async def test_any_instance_scans_any_range(autojump_clock: MockClock, settings: dict[str, Any]) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", **settings) as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 5)
        expected = filled(5)
        for caller in (owner, other):
            for start, end in ((0, 1000), (0, 1), (999, 1000), (1, 999), (199, 201), (75, 76), (50, 50), (9, 3)):
                pieces = await caller.scan(ref, start, end)
                assert scanned(pieces, start, end) == expected[start:end]
        assert await two.owner(ref) == owner.run_id, "a scan takes over nothing"


async def test_a_scan_outside_the_log_is_out_of_range(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 5)
        await owner.delete_records(ref, 400)
        await trio.sleep(1)
        for caller in (owner, other):
            (piece,) = await caller.scan(ref, 100, 900)
            assert (piece.status, piece.first_offset, piece.log_start) == (Status.OFFSET_OUT_OF_RANGE, 100, 400)
            (piece,) = await caller.scan(ref, 500, 1001)
            assert piece.status == Status.OFFSET_OUT_OF_RANGE
            assert scanned(await caller.scan(ref, 400, 1000), 400, 1000) == filled(5)[400:]


async def test_a_scan_ends_at_damage_and_reports_its_position(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 3)
        key = paths.segment_key(NAMESPACE, ref.topic, 0, 200)
        stored = await two.world.objects.get(key)
        torn = bytearray(stored.body)
        torn[len(torn) // 2] ^= 1
        await two.world.objects.replace_if_match(key, bytes(torn), stored.etag)
        for caller in (owner, other):
            pieces = await caller.scan(ref, 0, 600)
            assert pieces[-1].status == Status.DAMAGED
            assert key in pieces[-1].detail
            assert pieces[-1].first_offset == 200
            assert scanned(pieces[:-1], 0, 200) == filled(3)[:200]
            assert scanned(await caller.scan(ref, 400, 600), 400, 600) == filled(3)[400:]


async def test_a_count_scan_returns_no_records(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 5)
        for caller in (owner, other):
            for start, end in ((0, 1000), (0, 1), (999, 1000), (1, 999), (199, 201), (75, 76), (50, 50)):
                pieces = await caller.scan(ref, start, end, mode=COUNT)
                assert sum(piece.count for piece in pieces) == end - start
                assert not any(piece.records for piece in pieces)
                assert pieces[-1].next_offset >= end


async def test_a_scan_overtaken_by_retention_ends_out_of_range(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 30)
        for caller in (owner, other):
            pieces = []
            request = ScanRequest(partition=ref, start=0 if caller is owner else 3000, end=6000)
            async with caller.storage.scan(request) as stream:
                pieces.append(await stream.receive())
                # The service has read ahead as far as it may.
                await trio.sleep(1)
                log_start = 3000 if caller is owner else 5000
                await owner.delete_records(ref, log_start)
                await trio.sleep(5)
                while pieces[-1].status == Status.OK:
                    pieces.append(await stream.receive())
            assert (pieces[-1].status, pieces[-1].log_start) == (Status.OFFSET_OUT_OF_RANGE, log_start)
            end = pieces[-1].first_offset
            assert end < log_start
            assert scanned(pieces[:-1], request.start, end) == filled(30)[request.start : end]


async def test_a_scan_continues_across_a_take_over(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 30)
        async with other.storage.scan(ScanRequest(partition=ref, start=0, end=6000)) as stream:
            pieces = [await stream.receive()]
            (killed,) = [instance for instance in two.instances if instance.caller is owner]
            await killed.kill()
            await two.append_durably(ref, batch(b"of the next epoch"))
            assert await two.owner(ref) == other.run_id
            while pieces[-1].next_offset < 6000:
                pieces.append(await stream.receive())
        assert scanned(pieces, 0, 6000) == filled(30)
        again = await two.start(killed.address)
        await trio.sleep(30)
        for caller in (again.caller, other):
            assert scanned(await caller.scan(ref, 5999, 6001), 5999, 6001)[1:] == [(6000, b"of the next epoch")]


async def test_a_stopping_instance_ends_its_scans_retriably(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, _ = await two_instances(two)
        await owner.fill(ref, 30)
        async with owner.storage.scan(ScanRequest(partition=ref, start=0, end=6000)) as stream:
            pieces = [await stream.receive()]
            await trio.sleep(1)
            await two.assigned(ref).stop()
            while pieces[-1].status == Status.OK:
                pieces.append(await stream.receive())
        assert pieces[-1].status == Status.UNAVAILABLE
        assert scanned(pieces[:-1], 0, pieces[-1].first_offset) == filled(30)[: pieces[-1].first_offset]


async def test_a_store_that_does_not_answer_ends_a_scan_retriably(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await owner.fill(ref, 3)
        key = paths.segment_key(NAMESPACE, ref.topic, 0, 200)
        for caller in (owner, other):
            await caller.plan(ref)
            two.world.objects.plan = lambda call: Fault(error=Unavailable("503")) if call.keys == (key,) else None
            pieces = await caller.scan(ref, 0, 600)
            two.world.objects.plan = None
            assert (pieces[-1].status, pieces[-1].first_offset) == (Status.UNAVAILABLE, 200)
            assert scanned(pieces[:-1], 0, 200) + scanned(await caller.scan(ref, 200, 600), 200, 600) == filled(3)


async def test_a_scan_beyond_the_limit_waits_and_is_then_refused(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", scan_streams=1, scan_wait_ms=5_000) as two:
        ref, owner, _ = await two_instances(two)
        await owner.fill(ref, 30)
        async with owner.storage.scan(ScanRequest(partition=ref, start=0, end=6000)) as stream:
            await stream.receive()
            with pytest.raises(Unavailable, match="1 scans are already running"):
                await owner.scan(ref, 0, 600)
            async with trio.open_nursery() as nursery:
                found: list[ScanPiece] = []

                async def wait() -> None:
                    found.extend(await owner.scan(ref, 0, 600))

                nursery.start_soon(wait)
                await trio.sleep(3)
                while (await stream.receive()).next_offset < 6000:
                    pass
        assert scanned(found, 0, 600) == filled(3)


async def test_scans_do_not_change_the_cache(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with world.service(cache_size=40_000) as (caller, catalog):
        ref = await world.topic(catalog, partitions=1)
        await caller.fill(ref, 30)

        async def read_from_the_store() -> list[int]:
            found = []
            for start in range(5_800, -1, -200):
                reads = world.objects.count("get", "get_range")
                assert scanned(await caller.scan(ref, start, start + 200), start, start + 200)
                found += [start] if world.objects.count("get", "get_range") > reads else []
            return found

        not_cached = await read_from_the_store()
        assert 0 < len(not_cached) < 30
        assert await read_from_the_store() == not_cached


async def test_missing_offsets_do_not_stop_a_scan(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with cluster(world, "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        await imported(world, ref, [[0, 10, 20], [50, 60], [70]])
        for caller in (owner, other):
            for start, end in ((0, 73), (5, 15), (13, 19), (25, 55), (55, 72), (3, 71)):
                values = scanned(await caller.scan(ref, start, end), start, end)
                expected = [base + i for base in (0, 10, 20, 50, 60, 70) for i in range(3)]
                expected = [offset for offset in expected if start <= offset < end]
                assert [offset for offset, _ in values] == expected
                pieces = await caller.scan(ref, start, end, mode=COUNT)
                assert sum(piece.count for piece in pieces) == len(expected)


async def test_a_scan_reads_a_large_segment_with_missing_offsets_once(autojump_clock: MockClock) -> None:
    world = World(indexing=True)
    async with cluster(world, "a:1", "b:1", cache_size=0, scan_read_bytes=100) as two:
        ref, _, other = await two_instances(two)
        bases = range(0, 20_000, 10)
        await imported(world, ref, [list(bases)])
        await world.indexer.rebuild(SegmentRef(topic=ref.topic, partition=0, base_offset=0), timeout=TIMEOUT)
        await other.plan(ref)
        # The first scan finds the gaps with the index and a ranged read.
        for reads, parts in ((2, 1), (1, 0), (1, 0)):
            world.objects.calls.clear()
            found = scanned(await other.scan(ref, 0, 19_993, piece_bytes=65_536), 0, 19_993)
            assert [offset for offset, _ in found] == [base + i for base in bases for i in range(3)]
            assert (world.objects.count("get"), world.objects.count("get_range")) == (reads, parts)
            assert len(world.objects.calls) == reads + parts


@pytest.mark.parametrize("settings", [{}, {"cache_size": 0}], ids=["cached", "not cached"])
@pytest.mark.parametrize("scan", [False, True], ids=["by the owner", "by any instance"])
async def test_a_fetch_at_a_missing_offset_returns_the_next_batch(
    scan: bool, settings: dict[str, Any], autojump_clock: MockClock
) -> None:
    world = World(indexing=True)
    async with cluster(world, "a:1", "b:1", **settings) as two:
        ref, owner, other = await two_instances(two)
        bases = [0, 10, 20, 50, 60, 70]
        await imported(world, ref, [[0, 10, 20], [50, 60], [70]])
        await two.append_durably(ref, batch(b"3"))
        caller = other if scan else owner
        for _ in range(2):
            for offset in range(73):
                expected = next(base for base in bases if base + 3 > offset)
                for max_bytes in (1, 1 << 20):
                    fetched = await caller.fetch(ref, offset, max_bytes=max_bytes, scan=scan)
                    assert fetched.status == Status.OK, fetched.detail
                    assert next(walk(fetched.records))[1].base_offset == expected
            assert len(await caller.read_all(ref, scan=scan)) == 3 * len(bases) + 1


async def test_a_scan_by_time_omits_only_segments_that_are_surely_outside(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        for number in range(6):
            await two.append_durably(ref, batch(b"%d" % number, timestamp=1_000 * number))
            await owner.flush(ref)
        for caller in (owner, other):
            pieces = await caller.scan(ref, 0, 6, since_ms=3_000)
            assert [offset for offset, _ in scanned(pieces, 0, 6)] == [3, 4, 5]
            pieces = await caller.scan(ref, 0, 6, until_ms=2_000)
            assert {0, 1} <= {offset for offset, _ in scanned(pieces, 0, 6)}
            for since, until in ((0, 9_000), (1_000, 3_001), (5_001, 9_000)):
                pieces = await caller.scan(ref, 0, 6, since_ms=since, until_ms=until, mode=COUNT)
                assert sum(piece.count for piece in pieces) == sum(since <= 1_000 * n < until for n in range(6))
                assert pieces[-1].next_offset == 6


async def test_a_scan_by_time_reports_that_segments_were_deleted_during_it(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)

        async def append(numbers: range) -> None:
            for number in numbers:
                await two.append_durably(ref, batch(b"%d" % number, timestamp=1_000 * number))
                await owner.flush(ref)

        await append(range(2))
        # Now it knows that these two segments are old, and no later one.
        assert scanned(await other.scan(ref, 0, 2, since_ms=2_500), 0, 2) == []
        await append(range(2, 6))
        assert (await other.fetch(ref, 5, scan=True)).high_watermark == 6
        await owner.delete_records(ref, 4)
        await trio.sleep(0.2)
        *_, last = await other.scan(ref, 2, 6, since_ms=2_500)
        assert (last.status, last.log_start) == (Status.OFFSET_OUT_OF_RANGE, 4)
        assert [offset for offset, _ in scanned(await other.scan(ref, 4, 6, since_ms=2_500), 4, 6)] == [4, 5]


async def test_scans_and_plans_of_unknown_topics_are_refused(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1") as two:
        ref, _, other = await two_instances(two)
        beyond = PartitionRef(topic=ref.topic, topic_id=ref.topic_id, partition=7)
        unknown = PartitionRef(topic="nothing", topic_id=ref.topic_id, partition=0)
        another = PartitionRef(topic=ref.topic, topic_id=bytes(16), partition=0)
        expected = (Status.UNKNOWN_TOPIC, Status.UNKNOWN_TOPIC, Status.TOPIC_ID_MISMATCH)
        for target, status in zip((beyond, unknown, another), expected, strict=True):
            (piece,) = await other.scan(target, 0, 1)
            assert piece.status == status
            (plan,) = await other.plan(target)
            assert plan.status == status


async def test_an_older_record_behind_a_newer_one_is_not_omitted(autojump_clock: MockClock) -> None:
    async with cluster(World(indexing=True), "a:1", "b:1", cache_size=0) as two:
        ref, owner, other = await two_instances(two)
        times = [5_000, 1_000, 6_000]
        records = [Record(i, timestamp, None, b"%d" % i) for i, timestamp in enumerate(times)]
        await two.append_durably(ref, build_batch(records, base_offset=0))
        for caller in (owner, other):
            assert len(scanned(await caller.scan(ref, 0, 3, until_ms=2_000), 0, 3)) == 3
            pieces = await caller.scan(ref, 0, 3, until_ms=2_000, mode=COUNT)
            assert sum(piece.count for piece in pieces) == 1
