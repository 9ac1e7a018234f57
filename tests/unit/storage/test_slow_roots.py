"""Roots whose commit takes longer than a rewrite may take, and roots that an owner can read only later."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.metadata.memory import Fault
from kafscale.rewritten.keys import RewrittenKey, RootKey
from kafscale.v1.common_pb2 import Status
from tests.support.storage.harness import state_key
from tests.unit.storage.test_compaction import (
    CHECK,
    GRACE,
    HOUR_MS,
    a_world,
    compacted,
    read,
    rewritten,
    segments,
    write,
    write_log,
)


async def test_a_root_is_waited_for_before_the_log_is_rewritten_again(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("services.storage.rewriting.rewrites._LONGEST_MS", int(2 * CHECK * 1000))
    # The pause would hide that another rewrite begins too early.
    monkeypatch.setattr("services.storage.rewriting.rewrites._PAUSE_AFTER_FAILURE", 0.0)
    async with compacted(world := a_world()) as (caller, _, ref):
        left = await write_log(caller, ref)
        world.metadata.faults.append(Fault(method="txn", key=state_key(ref), delay=6 * CHECK))
        await trio.sleep(4 * CHECK)
        # The rewrite has ended, but its root may still be committed.
        [named] = await rewritten(world, RewrittenKey)
        assert not (await world.state(ref)).HasField("root")
        await trio.sleep(4 * CHECK)
        state = await world.state(ref)
        assert (state.root.number, state.root.attempt) == (1, named.attempt + 1)
        assert await read(caller, ref) == left
        # What it replaced stays for the grace too.
        assert len(await segments(world)) == 4
        await trio.sleep(GRACE + 3 * CHECK)
        assert len(await segments(world)) == 1
        assert await read(caller, ref) == left
        await write(caller, ref, ("c", "9"))
        await write(caller, ref, ("last", "9"))
        await trio.sleep(2 * CHECK)
        del left[2]
        assert await read(caller, ref) == left | {7: (b"c", b"9"), 8: (b"last", b"9")}


async def test_a_root_that_is_read_late_has_the_epochs_and_what_it_replaced(autojump_clock: MockClock) -> None:
    world = a_world()
    async with compacted(world) as (caller, _, ref):
        await write(caller, ref, ("a", "1"), ("b", "1"))
        await write(caller, ref, ("a", "2"))
    world.now_ms += HOUR_MS
    async with world.service(rewrite_check_ms=1000) as (caller, _):
        await write(caller, ref, ("a", "3"))
        await write(caller, ref, ("last", "segment"))
        await trio.sleep(2)
        assert (await world.state(ref)).root.through == 4
    async with world.service(merge="on", rewrite_check_ms=1000):
        # The epochs of the rewritten log leave the history.
        await trio.sleep(2)
    [root] = await rewritten(world, RootKey)
    saved = (await world.objects.get(str(root))).body
    await world.objects.delete_many([str(root)])
    async with world.service() as (caller, _):
        assert (await caller.fetch(ref, 0)).status == Status.DAMAGED
        await world.objects.put_if_absent(str(root), saved)
        await trio.sleep(2 * CHECK)
        left = {1: (b"b", b"1"), 3: (b"a", b"3"), 4: (b"last", b"segment")}
        assert await read(caller, ref) == left
        pieces = await caller.scan(ref, 0, 5)
        assert [piece.epoch for piece in pieces if piece.records] == [1, 2, 2]
        assert len(await segments(world)) == 4
        await write(caller, ref, ("b", "9"))
        await write(caller, ref, ("last", "9"))
        await trio.sleep(2 * CHECK)
        del left[1]
        assert await read(caller, ref) == left | {5: (b"b", b"9"), 6: (b"last", b"9")}
        await trio.sleep(GRACE + 3 * CHECK)
        assert len(await segments(world)) == 1
