"""The steps of a start that ask etcd: repeated as long as the setting allows, and no longer."""

from typing import cast

import pytest
import trio
from trio.testing import MockClock

from kafscale import paths
from kafscale.config.stores import NamespaceSettings
from kafscale.errors import Refused, Unavailable
from kafscale.metadata.members import Members
from kafscale.metadata.memory import Fault, MemoryMetadataStore, lost_answer, no_answer
from kafscale.process.operations import Operations
from kafscale.process.process import Loaded
from kafscale.process.startup import EVERY_SERVICE, Endpoint, registered, running

SETTINGS = Loaded(EVERY_SERVICE, {"KAFSCALE_START_PATIENCE_MS": "20000", "KAFSCALE_LEASE_TTL_SECONDS": "10"})
LONGEST = 20 + 10
NS = SETTINGS[NamespaceSettings].namespace


class Nowhere:
    """An endpoint and the operations of a process that takes no calls."""

    service, address = "indexer", "indexer-0:9096"

    def watch_lease(self, current: object) -> None:
        pass


async def start(store: MemoryMetadataStore) -> list[str]:
    """Start as an indexer or a coordinator does; gives who is seen then."""
    members, nowhere = Members(store, NS, "indexer"), Nowhere()
    async with (
        running(SETTINGS, members.run),
        registered(cast(Endpoint, nowhere), store, SETTINGS, cast(Operations, nowhere)),
    ):
        while not members.view.by_run_id:
            await members.wait_change(members.view)
        return [live.address for live in members.view]


@pytest.mark.parametrize(
    "faults",
    [
        [no_answer("read_prefix")],
        [no_answer("read_prefix", times=5)],
        [no_answer("watch"), lost_answer("grant_lease")],
        [lost_answer("txn", key=paths.members_prefix(NS, "indexer"), times=5)],
    ],
    ids=["reading", "reading again and again", "watch and lease", "registration"],
)
async def test_an_answer_that_is_lost_during_the_start_ends_no_process(
    autojump_clock: MockClock, faults: list[Fault]
) -> None:
    store = MemoryMetadataStore()
    store.faults = faults
    assert await start(store) == ["indexer-0:9096"]


@pytest.mark.parametrize("method", ["read_prefix", "txn"])
async def test_a_start_that_etcd_does_not_let_go_on_ends_when_the_patience_is_over(
    autojump_clock: MockClock, method: str
) -> None:
    store = MemoryMetadataStore()
    store.faults = [no_answer(method, times=10**9)]  # type: ignore[arg-type]
    began = trio.current_time()
    with pytest.raises(BaseExceptionGroup) as caught:
        await start(store)
    assert caught.group_contains(Unavailable, match="KAFSCALE_START_PATIENCE_MS")
    assert trio.current_time() - began == pytest.approx(LONGEST, abs=1)


async def test_what_etcd_refuses_at_the_start_ends_it_at_once(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    store.faults = [Fault(method="read_prefix", before=Refused("permission denied"))]
    with pytest.raises(BaseExceptionGroup) as caught:
        await start(store)
    assert caught.group_contains(Refused)
    assert trio.current_time() < 1
