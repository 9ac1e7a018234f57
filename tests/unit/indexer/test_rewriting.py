"""Rewriting of logs: merging, compaction, what ends it, and the other methods on rewritten objects."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from kafscale.errors import Unavailable
from kafscale.objects.interface import Object
from kafscale.objects.memory import Fault, MemoryObjectStore
from kafscale.records.batch import HORIZON_BIT, pack_header, peek_one, seal
from kafscale.records.checksum import crc32c
from kafscale.records.record import Record, build_batch
from kafscale.rewritten.keys import RewrittenKey, rewritten_prefix
from kafscale.rewritten.object import index_of, parse_object
from kafscale.segment.format import FOOTER_SIZE, SegmentFooter
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import (
    LastBatch,
    LocateTimestampRequest,
    RewriteInput,
    RewriteRequest,
    SegmentRef,
)
from kafscale.v1.rewritten_pb2 import RewrittenEntry
from services.indexer.monitoring import families
from tests.support.rewriting import ATTEMPT, BOTH, EPOCH, HORIZON_MS, NOW_MS, World, batch, failure_of, steps_of


@pytest.fixture
def world() -> World:
    return World()


@BOTH
async def test_a_merge_has_all_batches_byte_for_byte(world: World, own_process: bool) -> None:
    await world.add(batch(("a", "1"), ("b", "1")), batch(("a", "2")), epoch=0, lacking=3)
    await world.add(batch(("c", None)), epoch=3)
    await world.add_rewritten(batch(("a", "3")), batch(("d", "x" * 1000)), lacking=2)
    world.add_nothing(5)
    service = world.service(own_process=own_process)
    (step,) = await steps_of(service, world.merge())
    (entry,) = step.entries
    batches = await world.batches(entry)
    assert [peek_one(one).base_offset for one in batches] == [0, 2, 6, 7, 8]
    assert [peek_one(one).leader_epoch for one in batches] == [0, 0, 3, 3, 3]
    assert await world.records(step) == {
        0: ("a", "1"), 1: ("b", "1"), 2: ("a", "2"), 6: ("c", None), 7: ("a", "3"), 8: ("d", "x" * 1000)
    }  # fmt: skip
    assert (entry.base_offset, entry.next_offset, entry.epoch, entry.attempt) == (0, 16, EPOCH, ATTEMPT)
    assert (entry.created_ms, step.pass_end) == (NOW_MS, 0)
    assert (step.records_in, step.records_out, step.bytes_out) == (6, 6, entry.size)
    assert step.bytes_in == service.counters.rewrite_read_bytes
    assert len(await world.stored()) == 2
    shown = {family.name: family.read() for family in families(service.counters)}
    assert shown["kafscale_indexer_rewrites_total"]["merge", "done"] == 1
    assert shown["kafscale_indexer_rewrites_in_progress"] == shown["kafscale_indexer_rewrites_waiting"] == {(): 0}


async def test_steps_and_sizes_divide_the_objects(world: World) -> None:
    for number in range(4):
        await world.add(batch((f"{number}", "x" * 500)), batch((f"{number}", "y" * 500)))
    request = world.merge(world.inputs[:3], world.inputs[3:], target_bytes=1500)
    first, second = await steps_of(world.service(), request)
    assert [entry.next_offset for entry in first.entries] == [2, 4, 6]
    assert [entry.next_offset for entry in second.entries] == [8]
    assert len(await world.records(first, second)) == 8


@BOTH
async def test_compaction_keeps_the_last_record_of_each_key(world: World, own_process: bool) -> None:
    await world.add(batch(("a", "1"), ("b", "1")), batch(("a", "2"), ("c", "1")))
    await world.add(batch(("a", "3"), ("b", None)))
    await world.add(batch(("d", "1"), ("c", "2")))
    first, second = await steps_of(
        world.service(own_process=own_process), world.compact(world.inputs[:1], world.inputs[1:])
    )
    # Nothing of the first segment is left.
    assert list(first.entries) == [RewrittenEntry(next_offset=4)]
    assert await world.records(first, second) == {4: ("a", "3"), 5: ("b", None), 6: ("d", "1"), 7: ("c", "2")}
    assert (first.pass_end, second.pass_end) == (8, 8)
    assert (first.records_in, first.records_out, second.records_in, second.records_out) == (4, 0, 4, 4)
    tombstone = peek_one((await world.batches(second.entries[0]))[0])
    assert (tombstone.attributes & HORIZON_BIT, tombstone.base_timestamp) == (HORIZON_BIT, HORIZON_MS)


async def test_tombstones_go_after_their_horizon_and_last_batches_of_producers_stay(world: World) -> None:
    await world.add(batch(("a", None)), batch(("b", "1"), producer=7), batch(("b", "2")))
    (step,) = await steps_of(world.service(), world.compact())
    compacted = RewriteInput(start=0, end=3, rewritten=step.entries[0])
    world.inputs = [compacted]
    for now_ms, left in ((None, {0, 2}), (HORIZON_MS - 1, {0, 2}), (HORIZON_MS, {2})):
        request = world.compact(now_ms=now_ms, horizon_ms=HORIZON_MS + 1)
        request.attempt += 1 + len(left)
        (again,) = await steps_of(world.service(), request)
        assert (await world.records(again)).keys() == left

    world.inputs = [RewriteInput(start=0, end=3, epoch=3)]
    request = world.compact(producers=[LastBatch(producer_id=7, epoch=0, last_offset=1)])
    request.attempt += 10
    (step,) = await steps_of(world.service(), request)
    batches = await world.batches(step.entries[0])
    assert [(peek_one(one).base_offset, peek_one(one).record_count) for one in batches] == [(0, 1), (1, 0), (2, 1)]


@BOTH
async def test_a_pass_ends_where_the_keys_do_not_fit_in_memory(world: World, own_process: bool) -> None:
    # Two keys fit. The fourth segment has a third and a fourth one.
    for values in ("1", "2", "3"):
        await world.add(batch(("a", values), ("b", values)))
    await world.add(batch(("a", "4"), ("c", "4")), batch(("d", "4")))
    await world.add(batch(("b", "5")))
    steps = world.inputs[:2], world.inputs[2:4], world.inputs[4:]
    first, second = await steps_of(world.service(own_process=own_process), world.compact(*steps, memory_bytes=3 * 24))
    assert [(step.start, step.end, step.pass_end) for step in (first, second)] == [(0, 4, 6), (4, 6, 6)]
    # The last record of `a` that was found is above the end of the pass.
    assert await world.records(first, second) == {5: ("b", "3")}


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_pass_of_which_too_few_keys_fit_in_memory_is_refused(world: World, resumed: bool) -> None:
    if resumed:
        await world.add(batch(("a", "1")))
    await world.add(batch(("b", "1"), ("c", "1"), ("d", "1")))
    service = world.service()
    status, detail = await failure_of(service, world.compact(memory_bytes=3 * 24, resumed=resumed))
    assert status == Status.INVALID
    assert "KAFSCALE_COMPACTION_MEMORY" in detail
    assert await world.stored() == []
    assert service.counters.rewrites == {("compact", "invalid"): 1}


async def test_a_resumed_pass_removes_what_later_keys_replace_in_its_remaining_steps(world: World) -> None:
    await world.add_rewritten(batch(("a", "1")), lacking=4)
    await world.add(batch(("b", "1"), ("c", "1")))
    await world.add(batch(("b", "2")))
    (step,) = await steps_of(world.service(), world.compact(world.inputs[1:], resumed=True))
    assert (step.start, step.end, step.pass_end) == (5, 8, 8)
    assert await world.records(step) == {6: ("c", "1"), 7: ("b", "2")}


async def test_keys_are_collected_from_dirty_objects_alone(world: World) -> None:
    await world.add_rewritten(batch(("a", "1"), ("a", "2"), ("b", "1")))
    await world.add(batch(("b", "2")))
    (step,) = await steps_of(world.service(), world.compact(dirty=world.inputs[1:]))
    assert await world.records(step) == {0: ("a", "1"), 1: ("a", "2"), 3: ("b", "2")}


async def test_a_rewritten_object_of_which_all_stays_is_not_stored_again(world: World) -> None:
    entry = await world.add_rewritten(batch(("a", "1")), batch(("b", "1")))
    await world.add(batch(("c", "1")))
    world.add_nothing(3)
    steps = world.inputs[:1], world.inputs[1:2], world.inputs[2:]
    first, second, third = await steps_of(world.service(), world.compact(*steps))
    assert list(first.entries) == [entry]
    assert (first.bytes_in, first.bytes_out, first.records_out) == (entry.size, entry.size, 2)
    # A segment becomes an object of the rewritten log in any case.
    assert [each.epoch for each in second.entries] == [EPOCH]
    assert list(third.entries) == [RewrittenEntry(next_offset=world.next_offset)]
    assert len(await world.stored()) == 2


async def test_a_log_may_start_within_its_first_object(world: World) -> None:
    await world.add_rewritten(batch(("a", "1")), batch(("b", "1")), batch(("c", "1")))
    await world.add(batch(("b", "2")))
    world.inputs[0].start = 2
    (step,) = await steps_of(world.service(), world.compact())
    (entry,) = step.entries
    assert (step.start, step.end, entry.base_offset, entry.next_offset) == (2, 4, 0, 4)
    assert (await world.records(step)).keys() == {0, 2, 3}


@BOTH
async def test_a_damaged_object_ends_the_rewrite_and_nothing_is_stored(world: World, own_process: bool) -> None:
    await world.add(batch(("a", "1")))
    key = await world.add(batch(("b", "1")))
    data = bytearray((await world.store.get(key)).body)
    data[-FOOTER_SIZE - 1] ^= 1
    # With a footer for the damaged bytes, as if they had been damaged before the segment was built.
    footer = SegmentFooter(crc32c(memoryview(data)[32:-FOOTER_SIZE]), 1).encode()
    await world.overwrite(key, bytes(data[:-FOOTER_SIZE]) + footer)
    service = world.service(own_process=own_process)
    for request in (world.merge(), world.compact()):
        status, detail = await failure_of(service, request)
        assert status == Status.DAMAGED
        assert detail.startswith(f"{key}: ")
        assert "CRC" in detail
    assert await world.stored() == []
    assert service.counters.rewrites == {("merge", "damaged"): 1, ("compact", "damaged"): 1}


async def test_a_damaged_rewritten_object_and_a_batch_that_is_too_large_are_reported(world: World) -> None:
    entry = await world.add_rewritten(batch(("a", "1")))
    key = str(RewrittenKey.of(entry, "ns", "t", 0))
    right = (await world.store.get(key)).body
    await world.overwrite(key, right[:90] + b"?" + right[91:])
    assert (await failure_of(world.service(), world.merge()))[0] == Status.DAMAGED
    await world.overwrite(key, right)
    status, detail = await failure_of(world.service(), world.compact(batch_bytes=1))
    assert (status, detail.startswith(f"{key}: ")) == (Status.DAMAGED, True)


@pytest.mark.parametrize("change", [{"epoch": 4}, {"end": 2}, {"end": 4}], ids=["epoch", "ends later", "ends earlier"])
async def test_a_segment_must_be_the_one_that_is_meant(world: World, change: dict[str, int]) -> None:
    key = await world.add(batch(("a", "1"), ("a", "1"), ("a", "1")))
    for name, value in change.items():
        setattr(world.inputs[0], name, value)
    status, detail = await failure_of(world.service(), world.merge())
    assert (status, detail.startswith(f"{key}: offsets 0 up to 3 of epoch 3")) == (Status.DAMAGED, True)


async def test_a_missing_object_is_damage(world: World) -> None:
    key = await world.add(batch(("a", "1")))
    await world.store.delete_many([key])
    assert await failure_of(world.service(), world.merge()) == (Status.DAMAGED, f"{key}: missing")


async def test_a_store_that_does_not_answer_makes_the_rewrite_unavailable(world: World) -> None:
    await world.add(batch(("a", "1")))
    world.store.plan = lambda _: Fault(error=Unavailable("slow down"))
    assert await failure_of(world.service(), world.merge()) == (Status.UNAVAILABLE, "slow down")


@pytest.mark.parametrize("kind", ["kfs", "index"])
async def test_another_object_of_the_same_key_is_never_replaced(world: World, kind: str) -> None:
    await world.add(batch(("a", "1")))
    key = f"{rewritten_prefix('ns', 't', 0)}{0:020d}-{1:020d}-{EPOCH}-{ATTEMPT}.{kind}"
    await world.store.put_if_absent(key, b"another")
    status, detail = await failure_of(world.service(), world.merge())
    assert (status, detail) == (Status.UNAVAILABLE, f"{key}: another object has this key")
    assert (await world.store.get(key)).body == b"another"


async def test_a_step_is_reported_only_if_its_objects_can_be_read_back(world: World) -> None:
    await world.add(batch(("a", "1")), batch(("b", "1")))

    class Damaging(MemoryObjectStore):
        async def get(self, key: str) -> Object:
            found = await super().get(key)
            return Object(found.body[:100] + b"?" + found.body[101:], found.etag) if "~rewritten" in key else found

    world.store.__class__ = Damaging
    status, detail = await failure_of(world.service(), world.merge())
    assert status == Status.UNAVAILABLE
    assert "read back" in detail


def _dirty(request: RewriteRequest, *ends: int) -> None:
    """Replace the dirty objects by segments with these ends."""
    del request.compaction.dirty[:]
    for start, end in pairwise([0, *ends]):
        request.compaction.dirty.add(start=start, end=end, epoch=3)
    request.compaction.end = ends[-1]


_INCONSISTENT: dict[str, Callable[[RewriteRequest], object]] = {
    "no steps": lambda request: request.ClearField("steps"),
    "a step without inputs": lambda request: request.steps.add(),
    "no epoch": lambda request: request.ClearField("epoch"),
    "no attempt": lambda request: request.ClearField("attempt"),
    "no target": lambda request: request.ClearField("target_bytes"),
    "no memory": lambda request: request.compaction.ClearField("memory_bytes"),
    "a gap": lambda request: setattr(request.steps[0].inputs[0], "end", 1),
    "another object": lambda request: setattr(request.steps[0].inputs[1].rewritten, "base_offset", 1),
    "an end that no object has": lambda request: setattr(request.compaction, "end", 5),
    "steps above the end": lambda request: _dirty(request, 2),
    "steps above dirty objects": lambda request: request.steps[0].inputs.pop(0),
    "an end within an object": lambda request: _dirty(request, 1, 4),
}


@pytest.mark.parametrize("name", _INCONSISTENT)
async def test_inconsistent_requests_are_refused(world: World, name: str) -> None:
    await world.add(batch(("a", "1"), ("b", "1")))
    await world.add_rewritten(batch(("a", "2"), ("b", "2")))
    request = world.compact()
    await steps_of(world.service(), request)
    _INCONSISTENT[name](request)
    status, _ = await failure_of(world.service(), request)
    assert status == Status.INVALID


async def test_the_index_of_a_rewritten_object_is_verified_and_rebuilt(world: World) -> None:
    await world.add(batch(("skipped", "1")))
    entry = await world.add_rewritten(*[batch((str(number), "x" * 30_000)) for number in range(9)], lacking=3)
    key = RewrittenKey.of(entry, "ns", "t", 0)
    ref = SegmentRef(topic="t", partition=0, base_offset=1, rewritten=entry)
    service = world.service()
    right = (await world.store.get(str(key.index))).body
    assert right == index_of(parse_object(entry, (await world.store.get(str(key))).body))
    assert (await service.verify(ref)).intact
    reply = await service.rebuild(ref)
    assert (reply.index, reply.rebuilt) == (right, False)

    for damage in (b"IDX", right[:-1] + b"?"):
        await world.overwrite(str(key.index), damage)
        assert not (await service.verify(ref)).intact
        reply = await service.rebuild(ref)
        assert (reply.status, reply.index, reply.rebuilt) == (Status.OK, right, True)
    await world.store.delete_many([str(key.index)])
    assert (await service.verify(ref)).detail == f"{key.index}: missing"
    assert (await service.rebuild(ref)).rebuilt

    data = (await world.store.get(str(key))).body
    await world.overwrite(str(key), data[:200] + b"?" + data[201:])
    reply = await service.rebuild(ref)
    assert (reply.status, reply.detail.startswith(f"{key}: ")) == (Status.DAMAGED, True)
    await world.store.delete_many([str(key)])
    assert (await service.verify(ref)).detail == f"{key}: missing"
    assert (await service.rebuild(ref)).status == Status.DAMAGED


async def test_records_of_rewritten_objects_are_found_by_time(world: World) -> None:
    records = [Record(i, 100 * i, b"k", b"v") for i in range(3)]
    emptied = peek_one(batch(("k", "v")))._replace(record_count=0, producer_id=7, base_timestamp=-1)
    empty = bytearray(pack_header(emptied))
    seal(empty)
    entry = await world.add_rewritten(build_batch(records, base_offset=0), bytes(empty), lacking=6)
    later = build_batch([Record(0, 300, b"k", b"v")], base_offset=0)
    await world.add(later)
    request = LocateTimestampRequest(
        topic="t", partition=0, base_offsets=[0, 10], epochs=[5, 3], rewritten=[entry], timestamp=150
    )
    service = world.service()
    reply = await service.locate_timestamp(request)
    assert (reply.status, reply.found, reply.offset, reply.timestamp) == (Status.OK, True, 2, 200)
    assert reply.segment == SegmentRef(topic="t", partition=0, base_offset=0, rewritten=entry)
    assert list(reply.newest) == [200, -2]
    request.timestamp = 250
    reply = await service.locate_timestamp(request)
    assert (reply.offset, reply.segment, list(reply.newest)) == (
        10,
        SegmentRef(topic="t", partition=0, base_offset=10),
        [200, 300],
    )
    request.timestamp = -3
    assert (await service.locate_timestamp(request)).offset == 10
    request.rewritten[0].base_offset = 5
    assert (await service.locate_timestamp(request)).status == Status.INVALID
