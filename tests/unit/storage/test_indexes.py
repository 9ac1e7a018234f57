"""Indexes of new segments: an indexer stores them after the commit, and storage does if the indexer cannot."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.errors import NotSent, Refused, Unavailable
from kafscale.objects.interface import ObjectNotFound
from kafscale.objects.memory import Call, Fault
from kafscale.v1.common_pb2 import PartitionRef
from kafscale.v1.metadata_pb2 import PartitionState
from tests.support.storage.harness import NAMESPACE, World, batch


async def _has_index(world: World, ref: PartitionRef, base: int) -> bool:
    try:
        await world.objects.head(paths.index_key(NAMESPACE, ref.topic, ref.partition, base))
    except ObjectNotFound:
        return False
    return True


def _hold_indexes(world: World) -> trio.Event:
    held = trio.Event()

    def plan(call: Call) -> Fault | None:
        return Fault(hold=held) if call.kind == "put_if_absent" and call.key.endswith(".index") else None

    world.objects.plan = plan
    return held


async def test_acks_do_not_wait_for_indexes_and_too_many_of_them_delay_flushes(autojump_clock: MockClock) -> None:
    world = World(intake=False)
    async with world.service(pending_indexes=1) as (caller, catalog):
        ref = await world.topic(catalog)
        held = _hold_indexes(world)
        assert await caller.durable(await caller.append(ref, batch(b"0")))
        late = await caller.append(ref, batch(b"1"))
        with trio.move_on_after(60) as waiting:
            await caller.durable(late)
        assert waiting.cancelled_caught
        held.set()
        assert await caller.durable(late)
        await trio.sleep(1)
        assert await _has_index(world, ref, 0)
        assert await _has_index(world, ref, 1)


async def test_records_are_deleted_after_their_index_is_stored(autojump_clock: MockClock) -> None:
    async with (world := World()).service() as (caller, catalog):
        ref = await world.topic(catalog)
        held = _hold_indexes(world)
        for value in (b"0", b"1"):
            await caller.append(ref, batch(value))
            await caller.flush(ref)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller.delete_records, ref, 1)
            await trio.sleep(10)
            held.set()
        await trio.sleep(10)
        assert not await _has_index(world, ref, 0)
        assert await _has_index(world, ref, 1)


@pytest.mark.parametrize(
    ("error", "unclean"), [(NotSent("no"), False), (Refused("no"), False), (Unavailable("?"), True)]
)
async def test_only_a_call_that_may_have_an_effect_makes_a_release_unclean(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, error: Exception, *, unclean: bool
) -> None:
    async def call(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("tests.support.storage.harness.NoIndexer.call", call)
    world = World(settle_seconds=3_600)
    async with world.service() as (caller, catalog):
        ref = await world.topic(catalog)
        await caller.append(ref, batch(b"0"))
        await caller.flush(ref)
        await trio.sleep(1)
        assert await _has_index(world, ref, 0)
    item = await world.metadata.get(paths.partition_state_key(NAMESPACE, ref.topic, ref.partition))
    assert item is not None
    state = PartitionState.FromString(item.value)
    assert (state.owner, state.unclean) == ("", unclean)
