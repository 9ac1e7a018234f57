"""A journal that fails at every point. Later answers agree with the outcome that the journal reports."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from kafscale.errors import Unavailable
from kafscale.metadata.interface import Event, Put, Unchanged
from kafscale.metadata.local import LocalMetadataStore
from kafscale.metadata.state import FIRST_REVISION, State


class TroubledJournal:
    def __init__(self) -> None:
        self.durable = FIRST_REVISION
        self.lose = False
        self.drop = False
        self.silent = False

    async def commit(self, events: Sequence[Event]) -> None:
        await trio.lowlevel.checkpoint()
        if not self.drop:
            self.durable = events[0].revision
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
