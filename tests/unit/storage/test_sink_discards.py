"""Stages that a driver discarded are never committed, whatever happens at the same time."""

import trio
from trio.testing import MockClock

from kafscale.objects.memory import Fault
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import CommitSinkReply, Stage
from tests.support.storage.harness import Caller, World, batch
from tests.support.storage.sinking import commit, discard, no_segments, sink_record, stage_keys, staged


async def _commit_others(caller: Caller, ref: PartitionRef, *, epoch: int) -> None:
    """Check that the sink can still commit the epoch with other stages."""
    assert (await commit(caller, await staged(caller, ref, batch(b"again"), epoch=epoch), epoch=epoch)).applied


async def test_a_commit_after_the_discard_is_refused(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        for epoch in (0, 1):
            made = await staged(caller, ref, batch(b"never"), epoch=epoch)
            await discard(caller, made)
            assert (await commit(caller, made, epoch=epoch)).status == Status.INVALID
            await _commit_others(caller, ref, epoch=epoch)
        assert await caller.read_all(ref) == [b"again"] * 2


async def test_a_commit_that_waits_for_the_previous_epoch_is_refused_after_a_discard(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        world.objects.plan = no_segments
        assert not (await commit(caller, await staged(caller, ref, batch(b"0")), wait_ms=0)).applied
        made = await staged(caller, ref, batch(b"never"), epoch=1)
        replies: list[CommitSinkReply] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_note_commit, caller, made, 1, replies)
            await trio.sleep(1)
            await discard(caller, made)
            world.objects.plan = None
        assert [reply.status for reply in replies] == [Status.INVALID]
        await _commit_others(caller, ref, epoch=1)
        assert await caller.read_all(ref) == [b"0", b"again"]


async def test_a_commit_between_a_discards_write_and_its_deletes_is_refused(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        made, kept = [await staged(caller, ref, batch(value)) for value in (b"never", b"kept")]
        deleting, manifest = trio.Event(), trio.Event()
        replies: list[CommitSinkReply] = []

        def plan(call: object) -> Fault | None:
            kind, key = getattr(call, "kind", ""), getattr(call, "key", "")
            if kind == "delete_many":
                return Fault(hold=deleting)
            return Fault(hold=manifest) if key.endswith(".manifest") else None

        world.objects.plan = plan
        async with trio.open_nursery() as nursery:
            nursery.start_soon(discard, caller, made)
            await trio.sleep(1)
            nursery.start_soon(_note_commit, caller, made, 0, replies)
            await trio.sleep(1)
            assert made.key in await stage_keys(world)
            deleting.set()
            await trio.sleep(1)
            manifest.set()
        assert [reply.status for reply in replies] == [Status.INVALID]
        assert (await sink_record(world)).epoch == -1
        # Stages of another driver for the same epoch are not affected.
        assert (await commit(caller, kept)).applied
        assert await caller.read_all(ref) == [b"kept"]


async def test_discarded_stages_are_remembered_only_while_they_could_be_committed(autojump_clock: MockClock) -> None:
    world = World()
    async with world.service(stage_check_ms=5_000, stage_expiry_ms=3_600_000) as (caller, catalog):
        ref = await world.topic(catalog)
        later = await staged(caller, ref, batch(b"later"), epoch=7)
        await discard(caller, later)
        await _commit_others(caller, ref, epoch=3)
        assert [(one.epoch, len(one.stages)) for one in (await sink_record(world)).discarded] == [(7, 1)]
        assert (await commit(caller, later, epoch=7)).status == Status.INVALID
        await _commit_others(caller, ref, epoch=7)
        assert not (await sink_record(world)).discarded
        # A sink that only discards is remembered as long as a commit may name its last stages.
        for _ in range(4):
            never = await staged(caller, ref, batch(b"never"), sink="t")
            await discard(caller, never)
            world.now_ms += 1_000_000
            await trio.sleep(11)
        assert (await commit(caller, never, sink="t")).status == Status.INVALID
        assert (await sink_record(world, "t")).discarded
        world.now_ms += 3_000_000
        await trio.sleep(11)
        assert await world.metadata.get("kafscale/test/sinks/t") is None


async def _note_commit(caller: Caller, made: Stage, epoch: int, replies: list[CommitSinkReply]) -> None:
    replies.append(await commit(caller, made, epoch=epoch))
