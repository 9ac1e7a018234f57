"""The stores under the contract. To add one, add a name to `implementation` and a branch to `store`."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from kafscale.metadata.etcd import open_etcd
from kafscale.metadata.etcd_client import EtcdConfig
from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.observed import MetadataHealth, ObservedMetadataStore
from kafscale.metadata.sqlite import open_sqlite
from tests.servers.etcd import running_etcd

Clock = MockClock | None
"""The test's clock: virtual for the stores in this process, None for a server, whose time is everybody's."""


@pytest.fixture(params=["memory", "observed", "sqlite", "etcd", "etcd-restarted", "etcd-two-of-three"])
def implementation(request: pytest.FixtureRequest) -> str:
    return cast(str, request.param)


@pytest.fixture
def clock(implementation: str) -> Clock:
    """For tests that let time pass."""
    return None if implementation.startswith("etcd") else MockClock()


@pytest.fixture
async def store(implementation: str, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    if implementation == "memory":
        yield MemoryMetadataStore()
    elif implementation == "observed":
        yield ObservedMetadataStore(MemoryMetadataStore(), MetadataHealth())
    elif implementation == "sqlite":
        async with open_sqlite(tmp_path / "metadata.db") as store:
            yield store
    else:
        with running_etcd(tmp_path, members=3 if implementation == "etcd-two-of-three" else 1) as server:
            config = EtcdConfig(endpoints=tuple(server.endpoints), timeout_seconds=30)
            async with open_etcd(config, random=lambda: 0.5) as store:
                if implementation != "etcd":
                    # The store has talked to the member that goes.
                    await store.get("nothing")
                if implementation == "etcd-restarted":
                    await trio.to_thread.run_sync(server.members[0].restart)
                elif implementation == "etcd-two-of-three":
                    await trio.to_thread.run_sync(server.members[0].kill)
                    # During a leader election, writes have no known outcome, which is not under test here.
                    await trio.to_thread.run_sync(server.members[1].await_ready)
                yield store


async def advance(clock: Clock, seconds: float) -> None:
    """Let ``seconds`` pass, on a server only half of them, so that no lease expires too early on a slow machine."""
    if clock is None:
        await trio.sleep(seconds / 2)
    else:
        clock.jump(seconds)
        await trio.lowlevel.checkpoint()


async def outlast(store: MetadataStore, clock: Clock, lease: int, seconds: float) -> None:
    """Let ``seconds`` pass, after which ``lease`` has expired; on a server, wait until it has.

    The lease must have a key, because it is gone when its keys are.
    """
    if clock is None:
        snapshot = await store.read_prefix("")
        remaining = {item.key for item in snapshot.items if item.lease == lease}
        async with store.watch("", snapshot.revision + 1) as watch:
            while remaining:
                remaining -= {event.key for event in await watch.next()}
    else:
        await advance(clock, seconds)
