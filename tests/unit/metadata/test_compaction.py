from random import Random

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Refused, Unavailable
from kafscale.metadata.compaction import Upkeep
from kafscale.metadata.etcd_maintenance import EtcdStatus
from kafscale.metadata.etcd_space import EtcdSpace
from kafscale.metadata.interface import Compacted, Put
from kafscale.metadata.memory import MemoryMetadataStore, no_answer

HOUR = 3600.0
QUOTA = 1_000
PROCESSES, MINUTES = 20, 10


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


class Members:
    """etcd's members around ``store``: their space in use, and the maintenance done to them."""

    def __init__(self, store: MemoryMetadataStore, used: int = 0, *, members: int = 1) -> None:
        self.store = store
        self.members = members
        self.used = used
        self.files = {f"etcd-{number}": QUOTA if used else 0 for number in range(members)}
        self.silent: set[str] = set()
        self.alarm = False
        self.keeps = False
        self.failures: list[Exception] = []
        self.done: list[str] = []

    async def statuses(self) -> list[EtcdStatus]:
        if self.failures:
            raise self.failures.pop(0)
        revision = (await self.store.read_prefix("")).revision
        problems = ("memberID:7  alarm:NOSPACE",) if self.alarm else ()
        return [
            EtcdStatus(address, "3.7.3", revision, size, min(size, self.used), QUOTA, True, problems)
            for address, size in self.files.items()
            if address not in self.silent
        ]

    async def is_compacted(self, revision: int) -> bool:
        return not await _watchable(self.store, revision)

    async def defragment(self, address: str) -> None:
        self.done.append(f"defragment {address}")
        # Only now it reports the space freed by its compaction.
        self.files[address] = self.used if self.keeps else QUOTA // 10

    async def disarm(self) -> None:
        self.done.append("disarm")
        self.alarm = False


def _upkeep(members: Members, *, recovers: bool = True) -> Upkeep:
    return Upkeep(
        members.store,
        members,
        EtcdSpace(0),
        history_seconds=HOUR,
        recovers=recovers,
        random=lambda: 0.5,
    )


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
    """Let time pass with a write every six minutes. Return when (in hours) each revision was made."""
    made = {}
    async with trio.open_nursery() as nursery:
        for _ in range(compactors):
            nursery.start_soon(_upkeep(Members(store)).run)
        for number in range(round(hours * 10)):
            made[number / 10] = await _write(store)
            await trio.sleep(HOUR / 10)
        nursery.cancel_scope.cancel()
    return made


async def test_history_older_than_the_span_is_compacted_and_the_rest_is_kept(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    made = await _write_and_compact(store, 3)
    for hours, revision in made.items():
        age = 3 - hours
        if age <= 1:
            assert await _watchable(store, revision), age
        elif age > 1.3:
            assert not await _watchable(store, revision), age


async def test_nothing_is_compacted_before_the_span_is_over(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    made = await _write_and_compact(store, 0.9)
    assert all([await _watchable(store, revision) for revision in made.values()])


async def test_several_processes_compact_as_one_does_without_writing(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    made = await _write_and_compact(store, 3, compactors=3)
    assert await _watchable(store, made[2.1])
    assert not await _watchable(store, made[1.5])
    assert (await store.read_prefix("")).revision == max(made.values())
    assert len(set(made.values())) == max(made.values()) - min(made.values()) + 1


async def test_the_rate_of_compactions_does_not_grow_with_the_number_of_processes(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    random = Random(1).random
    upkeeps = [
        Upkeep(store, Members(store), EtcdSpace(0), history_seconds=300, random=random) for _ in range(PROCESSES)
    ]
    async with trio.open_nursery() as nursery:
        for upkeep in upkeeps:
            nursery.start_soon(upkeep.run)
        for _ in range(300 + MINUTES * 60):
            await _write(store)
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    compactions = sum(upkeep._space.compactions["time"] for upkeep in upkeeps)
    assert MINUTES <= compactions <= 2 * MINUTES


async def test_a_store_that_does_not_answer_is_retried_later(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    members = Members(store)
    made = await _write(store)
    await _write(store)
    members.failures = [Unavailable("no answer")] * 30
    store.faults = [no_answer("compact", times=30)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_upkeep(members).run)
        await trio.sleep(4 * HOUR)
        nursery.cancel_scope.cancel()
    assert (members.failures, store.faults[0].times) == ([], 0)
    assert not await _watchable(store, made)


async def test_an_error_is_logged_once_until_it_changes(clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    members = Members(MemoryMetadataStore())
    members.failures = [*[Refused("first")] * 3, *[Unavailable("second")] * 3]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_upkeep(members).run)
        await trio.sleep(HOUR)
        nursery.cancel_scope.cancel()
    output = capsys.readouterr().out
    assert [output.count(error) for error in ("first", "second")] == [1, 1]


async def test_history_is_compacted_by_size_long_before_it_is_old(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    members = Members(store, used=QUOTA // 2 - 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_upkeep(members).run)
        await trio.sleep(60)
        made, _ = await _write(store), await _write(store)
        await trio.sleep(60)
        assert await _watchable(store, made)
        members.used = QUOTA // 2
        await trio.sleep(6)
        last = await _write(store)
        members.used = QUOTA * 6 // 10
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert not await _watchable(store, made)
    assert await _watchable(store, last), "watchers that were away for seconds need no new read"


async def test_history_is_compacted_before_it_fills_a_quota_within_seconds(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    members = Members(store, used=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_upkeep(members).run)
        made = await _write(store)
        while await _watchable(store, made):
            await trio.sleep(0.1)
            await _write(store)
            members.used += QUOTA // 80  # full after 8 seconds
        nursery.cancel_scope.cancel()
    assert members.used < QUOTA * 7 // 10


async def test_keys_that_use_more_than_half_of_the_quota_do_not_cause_endless_compactions(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    members = Members(store, used=QUOTA * 7 // 10)
    upkeep = _upkeep(members)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.run)
        for _ in range(100):
            await _write(store)
            await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert upkeep._space.compactions == {"size": 1}


async def test_a_full_etcd_is_compacted_defragmented_member_by_member_and_disarmed(clock: MockClock) -> None:
    store = MemoryMetadataStore()
    members = Members(store, used=QUOTA, members=3)
    members.alarm = True
    made, _ = await _write(store), await _write(store)
    upkeep = _upkeep(members)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.run)
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert not await _watchable(store, made)
    assert members.done == [*(f"defragment etcd-{number}" for number in range(3)), "disarm"]
    assert upkeep._space.finding().reason == ""


async def test_a_member_that_another_process_has_defragmented_since_the_check_is_not_defragmented(
    clock: MockClock,
) -> None:
    class Shrinking(Members):
        looked = -1.0

        async def statuses(self) -> list[EtcdStatus]:
            looked, self.looked = self.looked, trio.current_time()
            if looked == self.looked:
                self.files = dict.fromkeys(self.files, QUOTA // 10)
            return await super().statuses()

    members = Shrinking(MemoryMetadataStore(), used=QUOTA)
    members.alarm = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_upkeep(members).run)
        await trio.sleep(30)
        nursery.cancel_scope.cancel()
    assert members.done == ["disarm"]


async def test_an_etcd_that_is_full_of_live_keys_is_not_disarmed(
    clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    members = Members(MemoryMetadataStore(), used=QUOTA * 9 // 10)
    members.alarm = members.keeps = True
    upkeep = _upkeep(members)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upkeep.run)
        await trio.sleep(HOUR)
        nursery.cancel_scope.cancel()
    assert members.done == ["defragment etcd-0"]
    assert "NOSPACE" in upkeep._space.finding().reason
    assert capsys.readouterr().out.count("live keys alone use 90% of etcd's quota") == 1


async def test_no_member_is_defragmented_for_a_minute_while_another_one_does_not_answer(
    clock: MockClock,
) -> None:
    members = Members(MemoryMetadataStore(), used=QUOTA // 10, members=3)
    members.alarm, members.silent = True, {"etcd-1"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_upkeep(members).run)
        await trio.sleep(50)
        assert members.done == []
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert members.done == ["defragment etcd-0", "defragment etcd-2", "disarm"]


async def test_the_alarm_is_not_handled_if_recovery_is_off(clock: MockClock) -> None:
    members = Members(MemoryMetadataStore(), used=QUOTA)
    members.alarm = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_upkeep(members, recovers=False).run)
        await trio.sleep(HOUR)
        nursery.cancel_scope.cancel()
    assert members.done == []
