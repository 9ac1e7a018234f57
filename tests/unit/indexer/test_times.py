"""ListOffsets by time, for segments."""

import struct
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import Unavailable
from kafscale.objects.memory import Call, Fault
from kafscale.records import record
from kafscale.records.batch import peek_one, seal, with_log_append_time
from kafscale.records.codecs import Codec
from kafscale.segment.reader import parse_segment
from kafscale.segment.search import FoundRecord, first_at_or_after, largest_timestamp
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import LocateReply
from services.indexer.service import IndexerService
from services.indexer.settings import IndexerSettings
from tests.support.samples.segments import EPOCH, make_batch, make_segment
from tests.unit.indexer.conftest import World

T = TypeVar("T")
MAX_TIMESTAMP = -3


def _answer(reply: LocateReply) -> tuple[int, int] | None:
    assert reply.status == Status.OK, reply.detail
    return (reply.offset, reply.timestamp) if reply.found else None


async def test_a_lookup_returns_the_first_record_at_or_after_a_time_inside_its_batch(world: World) -> None:
    await world.add([100, 110, 120], [130, 140])
    second = await world.add([150, 160, 170], [180, 190])

    assert _answer(await world.locate(0)) == (0, 100)
    assert _answer(await world.locate(110)) == (1, 110)
    assert _answer(await world.locate(111)) == (2, 120)
    assert _answer(await world.locate(190)) == (9, 190)
    assert _answer(await world.locate(191)) is None
    reply = await world.locate(165)
    assert (reply.offset, reply.timestamp) == (7, 170)
    assert (reply.segment, reply.position) == (world.ref(5), second.positions[0])


async def test_a_lookup_with_unordered_times_returns_the_first_record_in_the_log(world: World) -> None:
    await world.add([500, 10], [20, 30])
    await world.add([40, 900], [50])

    assert _answer(await world.locate(30)) == (0, 500)
    assert _answer(await world.locate(501)) == (5, 900)
    assert _answer(await world.locate(501, start_offset=6)) is None


async def test_records_below_the_log_start_are_ignored(world: World) -> None:
    await world.add([100, 110, 120], [130, 140])

    assert _answer(await world.locate(0, start_offset=2)) == (2, 120)
    assert _answer(await world.locate(0, start_offset=4)) == (4, 140)
    assert _answer(await world.locate(MAX_TIMESTAMP, start_offset=4)) == (4, 140)
    assert _answer(await world.locate(0, start_offset=5)) is None


async def test_the_largest_timestamp_returns_its_first_record(world: World) -> None:
    await world.add([100, 900], [130, 900])
    await world.add([900, 140], [10])

    assert _answer(await world.locate(MAX_TIMESTAMP)) == (1, 900)
    assert _answer(await world.locate(MAX_TIMESTAMP, start_offset=2)) == (3, 900)
    assert _answer(await world.locate(MAX_TIMESTAMP, start_offset=4)) == (4, 900)
    assert _answer(await world.locate(MAX_TIMESTAMP, start_offset=5)) == (5, 140)


async def test_records_without_a_timestamp_are_never_returned(world: World) -> None:
    await world.add([-1, -1])

    assert _answer(await world.locate(0)) is None
    assert _answer(await world.locate(MAX_TIMESTAMP)) is None


async def test_log_append_time_applies_to_every_record_of_a_batch(world: World) -> None:
    await world.add(with_log_append_time(make_batch([5, 6]), 1000), with_log_append_time(make_batch([7, 8]), 2000))

    assert _answer(await world.locate(7)) == (0, 1000)
    assert _answer(await world.locate(1001)) == (2, 2000)
    assert _answer(await world.locate(MAX_TIMESTAMP)) == (2, 2000)


@pytest.mark.parametrize("codec", list(Codec))
async def test_compressed_batches_are_decoded(world: World, codec: Codec) -> None:
    await world.add(make_batch(list(range(100, 200)), codec=codec))

    assert _answer(await world.locate(150)) == (50, 150)
    assert _answer(await world.locate(MAX_TIMESTAMP)) == (99, 199)


async def test_a_lookup_without_segments_returns_nothing(world: World) -> None:
    assert _answer(await world.locate(0)) is None
    assert _answer(await world.locate(MAX_TIMESTAMP)) is None


async def test_objects_of_another_epoch_are_not_part_of_the_log(world: World) -> None:
    await world.add([100, 110])
    await world.add([120, 990], epoch=9)
    await world.add([130, 140])

    assert _answer(await world.locate(115)) == (4, 130)
    assert _answer(await world.locate(MAX_TIMESTAMP)) == (5, 140)
    assert _answer(await world.locate(115, epochs=[EPOCH, 9, EPOCH])) == (2, 120)


async def test_a_contradictory_request_is_invalid(world: World) -> None:
    await world.add([100])

    assert (await world.locate(5, epochs=[])).status == Status.INVALID
    assert (await world.locate(-2)).status == Status.INVALID


async def test_a_damaged_or_missing_segment_is_reported_and_never_skipped(world: World) -> None:
    built = await world.add([100, 110])
    await world.add([120, 130])
    await world.overwrite(world.segment_key(0), built.data[:-20] + b"?" + built.data[-19:])
    for timestamp in (125, MAX_TIMESTAMP):
        reply = await world.locate(timestamp)
        assert (reply.status, reply.found) == (Status.DAMAGED, False)
        assert world.segment_key(0) in reply.detail

    await world.store.delete_many([world.segment_key(0)])
    assert (await world.locate(125)).status == Status.DAMAGED


async def test_a_segment_under_another_ones_name_is_damaged(world: World) -> None:
    await world.add([100, 110])
    await world.add([120, 130])
    await world.overwrite(world.segment_key(2), make_segment([make_batch([120, 130])], base_offset=4).data)

    reply = await world.locate(115)
    assert reply.status == Status.DAMAGED
    assert "begins at offset 4" in reply.detail


async def test_an_undecodable_batch_is_judged_by_its_header(world: World) -> None:
    await world.add([100], make_batch(list(range(1000, 1100)), codec=Codec.GZIP, value=bytes(100_000)))
    service = IndexerService(world.store, "ns", IndexerSettings(decode_bytes=1 << 20))

    assert _answer(await world.locate(50, service=service)) == (0, 100)
    assert _answer(await world.locate(101, service=service)) == (1, 1099)
    assert _answer(await world.locate(MAX_TIMESTAMP, service=service)) == (1, 1099)
    assert _answer(await world.locate(1050)) == (51, 1050)


async def test_an_unavailable_store_is_reported(world: World) -> None:
    await world.add([100])
    world.store.plan = lambda _call: Fault(error=Unavailable("slow down"))

    assert (await world.locate(5)).status == Status.UNAVAILABLE


async def test_a_lookup_that_ends_in_the_first_segment_reads_no_other(world: World) -> None:
    for start in (100, 200, 300):
        await world.add([start, start + 10], index=False)
    world.store.calls.clear()

    await world.locate(105)

    assert [call.key for call in world.store.calls] == [world.segment_key(0)]


async def test_the_number_of_segments_in_memory_is_limited_over_all_requests(world: World) -> None:
    """The fixture allows 2 reads, so the third GET starts only when one of two is done."""
    for start in range(0, 80, 10):
        await world.add([start], index=False)
    held = trio.Event()
    world.store.plan = lambda call: Fault(hold=held) if call.kind == "get" else None
    world.store.calls.clear()
    service = world.service
    answers: list[tuple[int, int] | None] = []

    async def ask() -> None:
        answers.append(_answer(await world.locate(1000, service=service)))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert world.store.count("get") == 2
        held.set()
    assert answers == [None] * 3
    assert world.store.count("get") == 24


async def test_decoding_runs_off_the_event_loop(world: World) -> None:
    await world.add([100, 110])
    threads: set[threading.Thread] = set()

    async def noting(function: Callable[[], T]) -> T:
        def noted() -> T:
            threads.add(threading.current_thread())
            return function()

        return await trio.to_thread.run_sync(noted)

    service = IndexerService(world.store, "ns", IndexerSettings(), run_sync=noting)
    assert _answer(await world.locate(105, service=service)) == (1, 110)
    assert threads
    assert threading.current_thread() not in threads


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the first offset of each batch that is decoded to find its largest timestamp."""
    offsets = []
    real = record.largest_timestamp

    def noting(batch: memoryview, *, min_offset: int, max_bytes: int) -> tuple[int, int] | None:
        offsets.append(peek_one(batch).base_offset)
        return real(batch, min_offset=min_offset, max_bytes=max_bytes)

    monkeypatch.setattr(record, "largest_timestamp", noting)
    return offsets


async def test_only_the_newest_batch_is_decoded_if_times_rise(world: World, decoded: list[int]) -> None:
    for start in range(0, 500, 100):
        await world.add([start, start + 10], [start + 20], [start + 30])

    assert _answer(await world.locate(MAX_TIMESTAMP)) == (19, 430)
    assert decoded == [19]


async def test_only_the_first_of_many_batches_with_the_same_time_is_decoded(world: World, decoded: list[int]) -> None:
    await world.add([7], *[[9, 9]] * 5)

    assert _answer(await world.locate(MAX_TIMESTAMP)) == (1, 9)
    assert decoded == [1]


async def test_a_wrong_largest_time_in_a_header_does_not_hide_the_right_record(world: World) -> None:
    boasting = bytearray(make_batch([40]))
    struct.pack_into(">q", boasting, 35, 90)
    seal(boasting)
    await world.add([10, 40], bytes(boasting), [30])

    assert _answer(await world.locate(MAX_TIMESTAMP)) == (1, 40)
    assert _answer(await world.locate(50)) is None


async def test_an_answer_does_not_depend_on_the_order_of_reads(world: World) -> None:
    for start in (100, 200, 300, 400):
        await world.add([start, 1000 - start], index=False)
    first = world.segment_key(2)
    release = trio.Event()

    def hold(call: Call) -> Fault | None:
        return Fault(hold=release) if call.key == first else None

    world.store.plan = hold
    async with trio.open_nursery() as nursery:
        answers: list[tuple[int, int] | None] = []

        async def ask() -> None:
            answers.append(_answer(await world.locate(150, start_offset=2)))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        release.set()
    assert answers == [(2, 200)]


times = st.integers(-1, 40)


@given(
    batches=st.lists(st.lists(times, min_size=1, max_size=4), min_size=1, max_size=6),
    asked=st.integers(0, 41),
    start_offset=st.integers(0, 25),
)
@settings(max_examples=200)
def test_a_lookup_agrees_with_a_search_of_every_record(batches: list[list[int]], asked: int, start_offset: int) -> None:
    segment = parse_segment(make_segment([make_batch(batch) for batch in batches]).data)
    every = enumerate(time for batch in batches for time in batch)
    records = [(offset, time) for offset, time in every if offset >= start_offset]
    limits = {"start_offset": start_offset, "max_bytes": 1 << 20}

    found = first_at_or_after(segment, asked, **limits)
    assert _offset_and_time(found) == next(((offset, time) for offset, time in records if time >= asked), None)
    largest = largest_timestamp(segment, at_least=asked, **limits)
    of_age = [(offset, time) for offset, time in records if time >= asked]
    assert _offset_and_time(largest) == max(of_age, key=lambda one: (one[1], -one[0]), default=None)


def _offset_and_time(found: FoundRecord | None) -> tuple[int, int] | None:
    return found and (found.offset, found.timestamp)
