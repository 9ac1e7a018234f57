"""The stores that the contract holds for. A new one is one more name in `implementation` and a branch in `store`."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.memory import MemoryMetadataStore
from kafscale.metadata.sqlite import open_sqlite


@pytest.fixture(params=["memory", "sqlite"])
def implementation(request: pytest.FixtureRequest) -> str:
    return cast(str, request.param)


@pytest.fixture
def clock(implementation: str) -> trio.abc.Clock:
    """The test's clock: virtual for the stores in this process. A test that lets time pass asks for it."""
    return MockClock()


@pytest.fixture
async def store(implementation: str, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    if implementation == "memory":
        yield MemoryMetadataStore()
    else:
        async with open_sqlite(tmp_path / "metadata.db") as store:
            yield store


async def advance(clock: trio.abc.Clock, seconds: float) -> None:
    """Let ``seconds`` pass."""
    if isinstance(clock, MockClock):
        clock.jump(seconds)
        await trio.lowlevel.checkpoint()
    else:
        await trio.sleep(seconds)
