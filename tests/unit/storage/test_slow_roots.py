"""A root whose commit takes longer than a rewrite may take."""

import pytest
import trio
from trio.testing import MockClock

from kafscale.metadata.memory import Fault
from kafscale.rewritten.keys import RewrittenKey
from tests.support.storage.harness import state_key
from tests.unit.storage.test_compaction import (
    CHECK,
    GRACE,
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
