"""Retention of offsets uses a clock that the coordinators share, independent of a machine's wall clock."""

import pytest
import trio

from kafscale import paths
from kafscale.errors import Refused
from kafscale.metadata.interface import Put
from kafscale.metadata.memory import MemoryMetadataStore, lost_answer
from kafscale.v1.groups_pb2 import GroupClock as Stored
from services.coordinator.group_clock import GroupClock
from tests.support.coordinator.harness import WALL
from tests.support.coordinator.shell import NAMESPACE, coordinators

DAY = 24 * 3600.0
SETTINGS = {"group_offsets_retention_minutes": 5, "group_offsets_retention_check_interval_ms": 10_000}
KEY = paths.group_clock_key(NAMESPACE)


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


def clock(store: MemoryMetadataStore, wall_ahead: float = 0) -> GroupClock:
    return GroupClock(
        store,
        NAMESPACE,
        clock=trio.current_time,
        wall_ms=lambda: WALL + int((trio.current_time() + wall_ahead) * 1000),
    )


@pytest.mark.parametrize("ahead", [8 * DAY, -8 * DAY])
async def test_a_coordinator_with_a_wrong_wall_clock_expires_nothing_too_early(
    store: MemoryMetadataStore, autojump_clock: object, ahead: float
) -> None:
    async with coordinators(store, "a:1", **SETTINGS) as made:
        await made.commit({0: 7})
        await made.instances[0].kill()
        await made.start("b:1", wall_ahead=ahead, **SETTINGS)
        await made.commit({1: 8})
        await trio.sleep(180)
        assert await made.offsets() == {0: 7, 1: 8}
        # Offsets that it stored are kept equally long by the next coordinator, whose clock is right.
        await made.instances[0].kill()
        await made.start("c:1", **SETTINGS)
        await trio.sleep(60)
        assert await made.offsets() == {0: 7, 1: 8}
        await trio.sleep(120)
        assert await made.offsets() == {}


async def test_a_jump_of_the_wall_clock_expires_nothing(store: MemoryMetadataStore, autojump_clock: object) -> None:
    async with coordinators(store, "a:1", **SETTINGS) as made:
        await made.commit({0: 7})
        made.instances[0].clock.wall_ahead = 30 * DAY
        await trio.sleep(120)
        assert await made.offsets() == {0: 7}


async def test_time_without_a_coordinator_does_not_count(store: MemoryMetadataStore, autojump_clock: object) -> None:
    first = clock(store)
    await first.store()
    await trio.sleep(60)
    await first.store()
    await trio.sleep(30 * DAY)
    second = clock(store)
    await second.store()
    assert second.now_ms == WALL + 60_000


async def test_the_later_of_two_clocks_is_kept(store: MemoryMetadataStore, autojump_clock: object) -> None:
    first = clock(store)
    await first.store()
    await trio.sleep(60)
    second = clock(store, wall_ahead=DAY)
    await second.store()
    assert second.now_ms == WALL
    await first.store()
    await second.store()
    assert second.now_ms == first.now_ms == WALL + 60_000


async def test_an_unanswered_first_write_does_not_set_the_clock(
    store: MemoryMetadataStore, autojump_clock: object
) -> None:
    mistaken = clock(store, wall_ahead=8 * DAY)
    store.faults.append(lost_answer(key=KEY))
    with pytest.raises(Exception, match="lost"):
        await mistaken.store()
    await store.txn([], [Put(KEY, Stored(format=1, now_ms=WALL).SerializeToString())])
    await mistaken.store()
    assert mistaken.now_ms == WALL


async def test_a_later_format_is_refused(store: MemoryMetadataStore, autojump_clock: object) -> None:
    await store.txn([], [Put(KEY, Stored(format=2, now_ms=WALL).SerializeToString())])
    with pytest.raises(Refused, match="format 2"):
        await clock(store).store()
