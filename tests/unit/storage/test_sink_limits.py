"""Limits for sinks: records in the metadata store, memory, and time on the event loop."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import Status
from services.storage.settings import StorageSettings
from tests.support.storage.harness import World, batch
from tests.support.storage.sinking import commit, discard, no_segments, sink_record, stage, staged

EXPIRY_MS = StorageSettings().stage_expiry_ms


async def test_a_sink_beyond_the_limit_is_refused_when_it_stages(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(max_sinks=1) as (caller, catalog):
        ref = await world.topic(catalog)
        assert (await commit(caller, await staged(caller, ref, batch(b"0")))).applied
        reply = await stage(caller, ref, batch(b"1"), sink="t")
        assert reply.status == Status.INVALID
        assert "KAFSCALE_MAX_SINKS" in reply.detail
        assert (await commit(caller, await staged(caller, ref, batch(b"1"), epoch=1), epoch=1)).applied


async def test_one_time_sinks_are_forgotten_when_their_stages_expire(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(max_sinks=3, stage_check_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        assert (await commit(caller, await staged(caller, ref, batch(b"stream"), sink="stream"), sink="stream")).applied
        once = await staged(caller, ref, batch(b"once"), sink="once")
        assert (await commit(caller, once, sink="once", once=True)).applied
        await discard(caller, await staged(caller, ref, batch(b"never"), sink="failed"))
        world.now_ms += EXPIRY_MS - 60_000
        await trio.sleep(11)
        assert (await stage(caller, ref, batch(b"1"), sink="next")).status == Status.INVALID
        # A repeated commit is recognized while its stages are young enough, and refused after that.
        assert (await commit(caller, once, sink="once", once=True)).already
        world.now_ms += 120_000
        await trio.sleep(11)
        assert [(await sink_record(world, sink)).epoch for sink in ("stream", "once", "failed")] == [0, -1, -1]
        assert (await commit(caller, once, sink="once", once=True)).status == Status.INVALID
        for sink in ("next", "after"):
            assert (await commit(caller, await staged(caller, ref, batch(b"1"), sink=sink), sink=sink)).applied
        assert await caller.read_all(ref) == [b"stream", b"once", b"1", b"1"]


async def test_a_one_time_sink_is_not_forgotten_before_it_is_applied(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service(stage_check_ms=5_000) as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = no_segments
        assert not (await commit(caller, await staged(caller, ref, batch(b"0")), wait_ms=0, once=True)).applied
        world.now_ms += 2 * EXPIRY_MS
        await trio.sleep(11)
        assert (await sink_record(world)).epoch == 0
        world.objects.plan = None
        await trio.sleep(11)
        assert await caller.read_all(ref) == [b"0"]
        assert (await sink_record(world)).epoch == -1


async def test_concurrent_stages_are_bounded_in_bytes(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(staging_bytes=1_000_000) as (caller, catalog):
        ref = await world.topic(catalog)
        held, body = trio.Event(), batch(bytes(300_000))
        storing: list[Call] = []

        def plan(call: Call) -> Fault | None:
            if "~stages" not in call.key:
                return None
            storing.append(call)
            return Fault(hold=held)

        world.objects.plan = plan
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await stage(caller, ref, body)).status)

        async with trio.open_nursery() as nursery:
            for _ in range(9):
                nursery.start_soon(one)
            await trio.sleep(1)
            # The same amount waits. All others are refused at once.
            assert len(storing) == 3
            assert statuses == [Status.UNAVAILABLE] * 3
            await trio.sleep(30)
            assert len(storing) == 3
            assert statuses == [Status.UNAVAILABLE] * 6
            nursery.start_soon(one)
            await trio.sleep(1)
            held.set()
        assert statuses[6:] == [Status.OK] * 4


async def test_the_stages_of_an_epoch_are_appended_in_order(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        stages = [await staged(caller, ref, batch(b"%d" % number)) for number in range(150)]
        assert (await commit(caller, *stages)).applied
        assert await caller.read_all(ref) == [b"%d" % number for number in range(150)]


@pytest.mark.parametrize(
    ("configs", "accepted"),
    [
        ({"message.timestamp.before.max.ms": "5000"}, (False, True, True)),
        ({"message.timestamp.after.max.ms": "5000"}, (True, True, False)),
        ({"message.timestamp.after.max.ms": "5000", "message.timestamp.type": "LogAppendTime"}, (True, True, True)),
    ],
    ids=["before", "after", "append-time"],
)
async def test_timestamps_follow_the_same_rules_as_for_producers(
    autojump_clock: MockClock, configs: dict[str, str], accepted: tuple[bool, ...]
) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog, configs=configs)
        replies = [await stage(caller, ref, batch(b"0", timestamp=world.now_ms + off)) for off in (-60_000, 0, 60_000)]
        assert tuple(reply.status == Status.OK for reply in replies) == accepted
        assert all(
            reply.status == Status.INVALID and "timestamp" in reply.detail
            for reply in replies
            if reply.status != Status.OK
        )
