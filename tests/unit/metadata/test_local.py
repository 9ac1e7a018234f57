"""A journal that fails at every point. Later answers agree with the outcome that the journal reports."""

from collections.abc import Callable, Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.errors import Unavailable
from kafscale.metadata.interface import Event, Get, Put, Unchanged
from kafscale.metadata.local import LocalMetadataStore
from kafscale.metadata.state import FIRST_REVISION, Limits, State


class TroubledJournal:
    at_once = 3

    def __init__(self) -> None:
        self.durable = FIRST_REVISION
        self.calls: list[int] = []
        self.begin = trio.Event()
        self.begin.set()
        self.ended: Callable[[], None] = lambda: None
        self.lose = False
        self.drop = False
        self.silent = False

    async def commit(self, changes: Sequence[Sequence[Event]]) -> None:
        if not self.begin.is_set():
            await self.begin.wait()
        self.calls.append(len(changes))
        if not self.drop:
            self.durable = changes[-1][0].revision
        self.ended()
        if self.lose or self.drop:
            raise Unavailable("commit")

    async def revision(self) -> int:
        await trio.lowlevel.checkpoint()
        if self.silent:
            raise Unavailable("revision")
        return self.durable


@pytest.fixture
def journal() -> TroubledJournal:
    return TroubledJournal()


@pytest.fixture
def store(journal: TroubledJournal) -> LocalMetadataStore:
    return LocalMetadataStore(State(), journal)


async def test_a_change_whose_answer_was_lost_is_visible_to_reads_and_watches(
    store: LocalMetadataStore, journal: TroubledJournal
) -> None:
    journal.lose = True
    with pytest.raises(Unavailable):
        await store.txn([Unchanged("a", 0)], [Put("a", b"1")])
    journal.lose = False
    assert not (await store.txn([Unchanged("a", 0)], [Put("a", b"2")])).succeeded
    async with store.watch("", 1) as watch:
        assert [event.key for event in await watch.next()] == ["a"]


async def test_a_change_that_was_not_applied_is_discarded(store: LocalMetadataStore, journal: TroubledJournal) -> None:
    journal.drop = True
    with pytest.raises(Unavailable):
        await store.txn([], [Put("a", b"1")])
    journal.drop = False
    assert await store.get("a") is None
    assert (await store.txn([Unchanged("a", 0)], [Put("a", b"2")])).revision == FIRST_REVISION + 1


async def test_no_operation_returns_while_the_outcome_is_unknown(
    store: LocalMetadataStore, journal: TroubledJournal
) -> None:
    journal.lose = journal.silent = True
    with pytest.raises(Unavailable):
        await store.txn([], [Put("a", b"1")])
    for _ in range(2):
        with pytest.raises(Unavailable):
            await store.get("a")
        with pytest.raises(Unavailable):
            await store.txn([], [Put("b", b"1")])
    journal.lose = journal.silent = False
    assert [item.key for item in (await store.read_prefix("")).items] == ["a"]


async def test_a_lease_whose_end_could_not_be_stored_ends_later(
    store: LocalMetadataStore, journal: TroubledJournal, mock_clock: MockClock
) -> None:
    await store.txn([], [Put("a", b"1", await store.grant_lease(5))])
    mock_clock.jump(6)
    journal.drop = True
    with pytest.raises(Unavailable):
        await store.get("a")
    journal.drop = False
    assert await store.get("a") is None


async def test_transactions_that_wait_become_durable_together_and_in_order(
    store: LocalMetadataStore, journal: TroubledJournal
) -> None:
    seen = list[tuple[bytes, bool, int]]()

    async def write(value: bytes, after: int) -> None:
        result = await store.txn([Unchanged("a", after)], [Put("a", value)], [Get("a")])
        seen.append((value, result.succeeded, result.revision))

    journal.begin = trio.Event()
    async with trio.open_nursery() as nursery:
        for value, after in ((b"1", 0), (b"2", 0), (b"3", 2), (b"4", 3), (b"5", 4)):
            nursery.start_soon(write, value, after)
            await wait_all_tasks_blocked()
        assert await store.get("a") is None
        journal.begin.set()
    # The second finds the first, and has nothing to make durable.
    assert seen == [(b"1", True, 2), (b"2", False, 2), (b"3", True, 3), (b"4", True, 4), (b"5", True, 5)]
    assert journal.calls == [1, 2, 1]
    async with store.watch("a", 1) as watch:
        assert [(await watch.next())[0].revision for _ in range(4)] == [2, 3, 4, 5]


async def test_all_transactions_of_a_lost_answer_are_visible_and_none_of_a_failed_one(
    store: LocalMetadataStore, journal: TroubledJournal
) -> None:
    async def fail(key: str) -> None:
        with pytest.raises(Unavailable):
            await store.txn([], [Put(key, b"1")])

    for lose, drop, found in ((True, False, ["a", "b", "c"]), (False, True, ["a", "b", "c"])):
        journal.lose, journal.drop = lose, drop
        journal.begin = trio.Event()
        async with trio.open_nursery() as nursery:
            for name in "abc" if lose else "def":
                nursery.start_soon(fail, name)
                await wait_all_tasks_blocked()
            journal.begin.set()
        journal.lose = journal.drop = False
        assert [item.key for item in (await store.read_prefix("")).items] == found


async def test_a_cancelled_transaction_does_not_take_others_with_it(
    store: LocalMetadataStore, journal: TroubledJournal
) -> None:
    journal.begin = trio.Event()
    async with trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(3)]
        for number, scope in enumerate(scopes):

            async def write(scope: trio.CancelScope = scope, key: str = str(number)) -> None:
                with scope:
                    await store.txn([], [Put(key, b"")])

            nursery.start_soon(write)
            await wait_all_tasks_blocked()
        # The first is in the journal, which has not begun, and the second waits.
        scopes[0].cancel()
        scopes[1].cancel()
        await wait_all_tasks_blocked()
        journal.begin.set()
    assert [item.key for item in (await store.read_prefix("")).items] == ["2"]


async def test_a_transaction_behind_a_cancelled_one_has_its_own_outcome(
    store: LocalMetadataStore, journal: TroubledJournal
) -> None:
    journal.at_once = 1

    async def write(key: str, scope: trio.CancelScope) -> None:
        with scope:
            await store.txn([], [Put(key, b"")])

    # Whether the last one runs before the cancelled one is left to chance.
    for number in range(20):
        journal.begin = trio.Event()
        async with trio.open_nursery() as nursery:
            scopes = {name: trio.CancelScope() for name in ("first", "cancelled", "last")}
            for name, scope in scopes.items():
                nursery.start_soon(write, f"{name}-{number}", scope)
                await wait_all_tasks_blocked()
            journal.ended = scopes["cancelled"].cancel
            journal.begin.set()
        written = {item.key for item in (await store.read_prefix("")).items}
        assert {f"first-{number}", f"last-{number}"} <= written
        assert f"cancelled-{number}" not in written


async def test_a_watch_that_waits_keeps_its_place_while_other_keys_change(journal: TroubledJournal) -> None:
    store = LocalMetadataStore(State(limits=Limits(revisions=1_000)), journal)
    journal.at_once = 1
    seen: list[str] = []

    async def follow() -> None:
        async with store.watch("a/", FIRST_REVISION + 1) as watch:
            while len(seen) < 400:
                seen.extend(event.key for event in await watch.next())

    async def put(key: str) -> None:
        await store.txn([], [Put(key, b"")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_all_tasks_blocked()
        for number in range(1_100):
            await put(f"b/{number}")
        async with trio.open_nursery() as writers:
            for number in range(400):
                writers.start_soon(put, f"a/{number}")
                writers.start_soon(put, f"b/{number}")
    assert sorted(seen) == sorted(f"a/{number}" for number in range(400))
