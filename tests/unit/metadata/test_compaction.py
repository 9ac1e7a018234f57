import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Refused, Unavailable
from kafscale.metadata.compaction import compact_history
from kafscale.metadata.interface import Compacted, Put
from kafscale.metadata.memory import Fault, MemoryMetadataStore, no_answer

HOUR = 3600.0


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


async def _write(store: MemoryMetadataStore) -> int:
    return (await store.txn([], [Put("a", b"")])).revision


async def _watchable(store: MemoryMetadataStore, revision: int) -> bool:
    try:
        async with store.watch("", revision) as watch:
            await watch.next()
    except Compacted:
        return False
    return True


async def _write_and_compact(store: MemoryMetadataStore, hours: float, compactors: int = 1) -> dict[float, int]:
    """Let time pass with a write every six minutes; when (in hours) each revision was made."""
    made = {}
    async with trio.open_nursery() as nursery:
        for _ in range(compactors):
            nursery.start_soon(lambda: compact_history(store, "a", HOUR, random=lambda: 0.5))
        for number in range(round(hours * 10)):
            made[number / 10] = await _write(store)
            await trio.sleep(HOUR / 10)
        nursery.cancel_scope.cancel()
    return made


async def test_what_is_older_than_the_span_is_forgotten_and_the_rest_is_kept(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    made = await _write_and_compact(store, 3)
    for hours, revision in made.items():
        age = 3 - hours
        if age <= 1:
            assert await _watchable(store, revision), age
        elif age > 1.3:
            assert not await _watchable(store, revision), age


async def test_nothing_is_forgotten_before_the_span_is_over(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    made = await _write_and_compact(store, 0.9)
    assert all([await _watchable(store, revision) for revision in made.values()])


async def test_several_processes_do_what_one_does_and_write_nothing(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    made = await _write_and_compact(store, 3, compactors=3)
    assert await _watchable(store, made[2.1])
    assert not await _watchable(store, made[1.5])
    assert (await store.read_prefix("")).revision == max(made.values())
    assert len(set(made.values())) == max(made.values()) - min(made.values()) + 1


@pytest.mark.parametrize("method", ["txn", "compact"])
async def test_a_store_that_does_not_answer_is_asked_again_later(
    method: str, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryMetadataStore()
    made = await _write(store)
    await _write(store)
    store.faults = [no_answer("txn" if method == "txn" else "compact", times=30)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: compact_history(store, "a", HOUR, random=lambda: 0.5))
        await trio.sleep(4 * HOUR)
        nursery.cancel_scope.cancel()
    assert store.faults[0].times == 0
    assert not await _watchable(store, made)


async def test_what_goes_wrong_is_told_once_until_it_changes(
    clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryMetadataStore()
    store.faults = [
        Fault(before=Refused("first"), times=3),
        Fault(before=Unavailable("second"), times=3),
    ]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: compact_history(store, "a", HOUR, random=lambda: 0.5))
        await trio.sleep(HOUR)
        nursery.cancel_scope.cancel()
    shown = capsys.readouterr().out
    assert [shown.count(error) for error in ("first", "second")] == [1, 1]
