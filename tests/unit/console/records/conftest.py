"""What all tests of records share."""

from collections.abc import Callable
from typing import Any

import pytest
import trio


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the work of threads at once. The clock of tests would not wait for it."""

    async def run_sync(work: Callable[..., Any], *arguments: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
