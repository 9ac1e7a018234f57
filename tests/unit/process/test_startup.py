"""Steps of a start that use etcd are retried as long as the setting allows."""

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
    """An endpoint, and the operations of a process, that accepts no calls."""

    service, address = "indexer", "indexer-0:9096"

    def watch_lease(self, current: object) -> None:
        pass


async def start(store: MemoryMetadataStore) -> list[str]:
    """Start like an indexer or a coordinator, and return the members seen afterwards."""
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
async def test_a_lost_answer_during_the_start_does_not_end_the_process(
    autojump_clock: MockClock, faults: list[Fault]
) -> None:
    store = MemoryMetadataStore()
    store.faults = faults
    assert await start(store) == ["indexer-0:9096"]


@pytest.mark.parametrize("method", ["read_prefix", "txn"])
async def test_a_start_that_etcd_blocks_ends_after_the_configured_time(autojump_clock: MockClock, method: str) -> None:
    store = MemoryMetadataStore()
    store.faults = [no_answer(method, times=10**9)]  # type: ignore[arg-type]
    began = trio.current_time()
    with pytest.raises(BaseExceptionGroup) as caught:
        await start(store)
    assert caught.group_contains(Unavailable, match="KAFSCALE_START_PATIENCE_MS")
    assert trio.current_time() - began == pytest.approx(LONGEST, abs=1)


async def test_a_refusal_of_etcd_ends_the_start_immediately(autojump_clock: MockClock) -> None:
    store = MemoryMetadataStore()
    store.faults = [Fault(method="read_prefix", before=Refused("permission denied"))]
    with pytest.raises(BaseExceptionGroup) as caught:
        await start(store)
    assert caught.group_contains(Refused)
    assert trio.current_time() < 1
