"""Records wait until their buffer is full if producers then still send, and are stored once."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from kafscale.attempts import Attempts
from kafscale.objects.memory import Fault
from kafscale.records.batch import walk
from kafscale.records.record import Record, build_batch
from services.storage.log.buffer import WriteBuffer
from services.storage.log.filling import Filling
from tests.support.storage.harness import World, batch
from tests.unit.storage.acknowledging import SLOW_SEGMENTS

FULL = 1_000_000
SETTINGS = replace(SLOW_SEGMENTS, segment_bytes=FULL, intake_puts_per_second=0)
PUT = 0.002


def _slow_puts(world: World) -> None:
    world.objects.plan = lambda call: Fault(delay=PUT) if call.kind == "put_if_absent" else None


def _stored(world: World, kind: str) -> int:
    return sum(call.size for call in world.objects.calls if call.kind == "put_if_absent" and kind in call.key)


def _sequenced(sequence: int, value: bytes) -> bytes:
    return build_batch(
        [Record(0, 1, None, value)], base_offset=0, producer_id=1, producer_epoch=0, base_sequence=sequence
    )


async def test_records_of_producers_that_do_not_wait_are_stored_once(autojump_clock: MockClock) -> None:
    async with (world := World(SETTINGS)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
        _slow_puts(world)
        for _ in range(40):
            appended = await caller.append(ref, batch(b"x" * (FULL // 4)))
            await trio.sleep(0.004)
        assert await caller.durable(appended, ref)
        assert _stored(world, ".kfs") >= 9 * FULL
        assert _stored(world, "~intake") < 2 * FULL


@pytest.mark.parametrize("idempotent", [True, False])
async def test_producers_that_wait_are_delayed_at_most_a_few_times(
    autojump_clock: MockClock, *, idempotent: bool
) -> None:
    async with (world := World(SETTINGS)).service() as (caller, catalog):
        ref = await world.topic(catalog)
        assert await caller.durable(await caller.append(ref, batch(b"first")))
        _slow_puts(world)
        seconds = list[float]()
        for number in range(200):
            value = b"x" * (FULL // 4)
            records = _sequenced(number, value) if idempotent else batch(value)
            began = trio.current_time()
            assert await caller.durable(await caller.append(ref, records), ref)
            seconds.append(trio.current_time() - began)
            await trio.sleep(0.002)
        assert max(seconds) < 0.1
        delayed = sum(each > 2 * PUT for each in seconds)
        assert delayed == 0 if idempotent else 0 < delayed <= 3


def test_a_buffer_that_was_sealed_while_it_was_waited_for_does_not_count_as_waited_for_in_vain() -> None:
    half = batch(b"x" * (FULL // 2))
    buffer = WriteBuffer(epoch=1, next_offset=0, segment_bytes=FULL)
    filling, of_all = Filling(), Attempts(factor=2, most=63)
    for sealed in (True, False):
        buffer.append(half, walk(half))
        filling.arrived(0, may_go_on=True)
        assert filling.is_due(buffer, of_all)
        filling.begin(0, buffer, 1)
        if sealed:
            buffer.seal("request")
            buffer.to_chain(FULL)
        filling.end(buffer, of_all)
    buffer.seal("request")
    buffer.to_chain(FULL)
    buffer.append(half, walk(half))
    assert not filling.is_due(buffer, of_all)
