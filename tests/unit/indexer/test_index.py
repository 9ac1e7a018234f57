"""Building, verifying and rebuilding of indexes."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Refused, Unavailable
from kafscale.objects.interface import Body, Object
from kafscale.objects.memory import Call, Fault, MemoryObjectStore
from kafscale.segment.index import build_index, parse_index
from kafscale.segment.writer import BuiltSegment
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import SegmentBatches, SegmentRef, WriteIndexesRequest
from services.indexer.errors import InvalidRequest
from tests.support.samples.segments import make_batch, make_segment
from tests.unit.indexer.conftest import INTERVAL, World


async def _segment(world: World) -> BuiltSegment:
    """Offsets 0 to 11 in six batches, with an index of three entries."""
    return await world.add(*[[10 * n, 10 * n + 5] for n in range(6)])


def _batches(world: World, base: int, *positions: int) -> SegmentBatches:
    """Batches of two records each from ``base``."""
    offsets = range(base, base + 2 * len(positions), 2)
    return SegmentBatches(segment=world.ref(base), offsets=offsets, positions=positions)


async def test_indexes_are_stored_with_the_interval_of_the_settings(world: World) -> None:
    request = WriteIndexesRequest(segments=[_batches(world, 0, 32, 200, 400, 600), _batches(world, 8, 32)])
    # The leftover of a dead owner is replaced.
    await world.store.put_if_absent(world.index_key(8), b"another index")

    assert list((await world.service.write_indexes(request)).errors) == ["", ""]

    assert (await world.store.get(world.index_key(0))).body == build_index([0, 4], [32, 400], INTERVAL)
    assert (await world.store.get(world.index_key(8))).body == build_index([8], [32], INTERVAL)


async def test_an_index_that_cannot_be_stored_does_not_affect_the_others(world: World) -> None:
    wrong = SegmentBatches(segment=world.ref(0), offsets=[0, 2], positions=[32])
    refused = world.index_key(4)

    def fault(call: Call) -> Fault | None:
        return Fault(error=Refused("read-only")) if call.key == refused else None

    world.store.plan = fault
    request = WriteIndexesRequest(segments=[wrong, _batches(world, 4, 32), _batches(world, 8, 32)])

    errors = list((await world.service.write_indexes(request)).errors)

    assert "2 offsets but 1 positions" in errors[0]
    assert "read-only" in errors[1]
    assert errors[2] == ""
    assert (await world.store.get(world.index_key(8))).body


async def test_an_index_whose_put_is_not_answered_does_not_delay_the_answer_for_long(
    world: World, autojump_clock: MockClock
) -> None:
    slow = world.index_key(4)
    world.store.plan = lambda call: Fault(hold=trio.Event()) if call.key == slow else None
    request = WriteIndexesRequest(segments=[_batches(world, 4, 32), _batches(world, 8, 32)])
    with trio.fail_after(4):
        errors = list((await world.service.write_indexes(request)).errors)
    assert "did not answer" in errors[0]
    assert errors[1] == ""


async def test_verify_detects_an_intact_missing_unreadable_or_foreign_index(world: World) -> None:
    built = await _segment(world)
    ref, key = world.ref(0), world.index_key(0)
    assert (await world.service.verify(ref)).intact

    await world.overwrite(key, b"IDX")
    reply = await world.service.verify(ref)
    assert not reply.intact
    assert "header has 16 bytes" in reply.detail

    await world.overwrite(key, build_index([0, 5], [32, built.positions[2]], INTERVAL))
    reply = await world.service.verify(ref)
    assert not reply.intact
    assert "begins at 4" in reply.detail

    await world.store.delete_many([key])
    reply = await world.service.verify(ref)
    assert (reply.intact, reply.detail) == (False, f"{key}: missing")


async def test_verify_reports_a_damaged_or_missing_segment(world: World) -> None:
    built = await _segment(world)
    await world.overwrite(world.segment_key(0), built.data[:200] + b"?" + built.data[201:])
    reply = await world.service.verify(world.ref(0))
    assert not reply.intact
    assert "checksum" in reply.detail

    await world.store.delete_many([world.segment_key(0)])
    reply = await world.service.verify(world.ref(0))
    assert (reply.intact, reply.detail) == (False, f"{world.segment_key(0)}: missing")


async def test_verify_is_unavailable_if_the_store_is(world: World) -> None:
    await _segment(world)
    world.store.plan = lambda _call: Fault(error=Unavailable("slow down"))

    with pytest.raises(Unavailable):
        await world.service.verify(world.ref(0))


@pytest.mark.parametrize("damage", [None, b"", b"IDX\0garbage", build_index([0, 5], [32, 300], INTERVAL)])
async def test_rebuild_restores_a_lost_or_damaged_index_byte_for_byte(world: World, damage: bytes | None) -> None:
    await _segment(world)
    key = world.index_key(0)
    right = (await world.store.get(key)).body
    if damage is None:
        await world.store.delete_many([key])
    else:
        await world.overwrite(key, damage)

    reply = await world.service.rebuild(world.ref(0))

    assert (reply.status, reply.index, reply.rebuilt) == (Status.OK, right, True)
    assert (await world.store.get(key)).body == right


async def test_rebuild_keeps_a_correct_index_even_with_another_interval(world: World) -> None:
    built = await _segment(world)
    other = build_index(built.offsets, built.positions, interval=2)
    await world.overwrite(world.index_key(0), other)
    puts = world.store.count("put_if_absent", "replace_if_match")

    reply = await world.service.rebuild(world.ref(0))
    assert (reply.index, reply.rebuilt) == (other, False)
    assert world.store.count("put_if_absent", "replace_if_match") == puts


async def test_rebuild_of_a_damaged_or_missing_segment_writes_nothing(world: World) -> None:
    built = await _segment(world)
    await world.store.delete_many([world.index_key(0)])
    await world.overwrite(world.segment_key(0), built.data[:200] + b"?" + built.data[201:])
    puts = world.store.count("put_if_absent", "replace_if_match")

    reply = await world.service.rebuild(world.ref(0))
    assert reply.status == Status.DAMAGED
    assert world.segment_key(0) in reply.detail
    await world.store.delete_many([world.segment_key(0)])
    assert (await world.service.rebuild(world.ref(0))).status == Status.DAMAGED
    assert world.store.count("put_if_absent", "replace_if_match") == puts


@pytest.mark.parametrize("error", [Unavailable("slow down"), Refused("access denied")])
async def test_rebuild_is_unavailable_if_the_store_is(world: World, error: Exception) -> None:
    await _segment(world)
    world.store.plan = lambda _call: Fault(error=error)

    reply = await world.service.rebuild(world.ref(0))

    assert (reply.status, reply.detail) == (Status.UNAVAILABLE, str(error))


async def test_rebuild_accepts_its_own_index_if_the_answer_to_its_put_was_lost(world: World) -> None:
    await _segment(world)
    await world.store.delete_many([world.index_key(0)])

    def lose_the_answer(call: Call) -> Fault | None:
        return Fault(error=Unavailable("lost"), applied="before") if call.kind == "put_if_absent" else None

    world.store.plan = lose_the_answer
    assert (await world.service.rebuild(world.ref(0))).status == Status.UNAVAILABLE

    reply = await world.service.rebuild(world.ref(0))
    assert (reply.status, reply.index) == (Status.OK, (await world.store.get(world.index_key(0))).body)


@pytest.mark.parametrize("moment", ["between the reads", "before the write"])
async def test_rebuild_never_replaces_the_index_that_another_owner_wrote_meanwhile(world: World, moment: str) -> None:
    await _segment(world)
    theirs = make_segment([make_batch([1, 2, 3, 4, 5])] * 3, base_offset=0, epoch=4)
    their_index = build_index(theirs.offsets, theirs.positions, INTERVAL)
    await world.overwrite(world.index_key(0), b"damaged")
    gets = 0

    async def another_owner_writes() -> None:
        nonlocal gets
        gets += 1
        if gets == 1:
            await world.overwrite(world.segment_key(0), theirs.data)
            await world.overwrite(world.index_key(0), their_index)

    class Overtaken(MemoryObjectStore):
        async def get(self, key: str) -> Object:
            found = await super().get(key)
            if moment == "between the reads":
                await another_owner_writes()
            return found

        async def replace_if_match(self, key: str, body: Body, etag: str) -> str:
            if moment == "before the write" and body not in (theirs.data, their_index):
                await another_owner_writes()
            return await super().replace_if_match(key, body, etag)

    world.store.__class__ = Overtaken
    reply = await world.service.rebuild(world.ref(0))

    assert gets > 0
    assert (reply.status, reply.index) == (Status.OK, their_index)
    assert (await world.store.get(world.index_key(0))).body == their_index


async def test_rebuild_replaces_an_index_next_to_another_owners_segment(world: World) -> None:
    other = make_segment([make_batch([1] * 3)] * 4, base_offset=0)
    built = await world.add(*[[10 * n, 10 * n + 5] for n in range(6)], index=False)
    await world.store.put_if_absent(world.index_key(0), build_index(other.offsets, other.positions, INTERVAL))

    index = parse_index((await world.service.rebuild(world.ref(0))).index)

    assert set(index.positions) <= set(built.positions)
    assert (await world.service.verify(world.ref(0))).intact


@pytest.mark.parametrize(("topic", "partition"), [("../other", 0), ("~rewritten/t", 0), ("", 0), ("t", -1)])
async def test_a_reference_that_no_topic_can_have_is_refused(world: World, topic: str, partition: int) -> None:
    ref = SegmentRef(topic=topic, partition=partition)
    assert (await world.service.rebuild(ref)).status == Status.INVALID
    with pytest.raises(InvalidRequest):
        await world.service.verify(ref)
