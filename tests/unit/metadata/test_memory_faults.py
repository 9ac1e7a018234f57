import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.metadata.interface import Compacted, Put
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
from kafscale.metadata.state import Limits


async def test_no_answer_leaves_nothing_and_a_lost_answer_leaves_the_change() -> None:
    store = MemoryMetadataStore()
    store.faults = [no_answer("txn"), lost_answer("txn")]
    with pytest.raises(Unavailable):
        await store.txn([], [Put("a", b"1")])
    assert await store.get("a") is None
    with pytest.raises(Unavailable):
        await store.txn([], [Put("a", b"1")])
    assert await store.get("a") is not None
    assert (await store.txn([], [Put("a", b"2")])).succeeded


async def test_a_fault_affects_only_its_method_and_keys() -> None:
    store = MemoryMetadataStore()
    store.faults = [no_answer("txn", key="topics/", times=2)]
    await store.txn([], [Put("cluster", b"1")])
    await store.get("topics/a")
    for _ in range(2):
        with pytest.raises(Unavailable):
            await store.txn([], [Put("topics/a", b"1")])
    await store.txn([], [Put("topics/a", b"1")])


async def test_delay_and_hang(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    store.faults = [Fault(method="get", delay=5), Fault(method="get", hang=True)]
    began = trio.current_time()
    await store.get("a")
    assert trio.current_time() - began == 5
    with trio.move_on_after(60) as scope:
        await store.get("a")
    assert scope.cancelled_caught


async def test_a_watch_can_fail_and_continue() -> None:
    store = MemoryMetadataStore()
    await store.txn([], [Put("a", b"1")])
    store.faults = [no_answer("watch")]
    async with store.watch("", 1) as watch:
        with pytest.raises(Unavailable):
            await watch.next()
        assert [event.key for event in await watch.next()] == ["a"]


@pytest.mark.parametrize("limits", [Limits(revisions=10), Limits(bytes=10 * 300)])
async def test_history_is_bounded_and_a_slow_watch_gets_an_error(limits: Limits) -> None:
    store = MemoryMetadataStore(limits)
    async with store.watch("", 1) as slow:
        for number in range(100):
            await store.txn([], [Put("a", b"%d" % number)])
        with pytest.raises(Compacted):
            await slow.next()
    newest = (await store.read_prefix("")).revision
    async with store.watch("", newest) as watch:
        assert [event.revision for event in await watch.next()] == [newest]
