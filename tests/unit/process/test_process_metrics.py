"""Metrics of every process about itself."""

from importlib.metadata import PackageNotFoundError

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kafscale.process import version
from kafscale.process.process_metrics import EventLoop, process_families
from kafscale.process.version import kafscale_version


async def test_the_lag_of_the_event_loop_is_measured(mock_clock: MockClock) -> None:
    loop = EventLoop()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(loop.run)
        for late in (0.0, 0.75, 0.0):
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(0.25 + late)
        await wait_all_tasks_blocked(0.01)
        [lag, tasks] = loop.families()
        assert lag.read() == {(): loop.lag}
        assert (sum(loop.lag.counts), loop.lag.total) == (3, 0.75)
        [living] = tasks.read().values()
        assert isinstance(living, int)
        assert living >= 2
        nursery.cancel_scope.cancel()


def test_the_process_exports_its_version_and_number_of_threads() -> None:
    [build, threads] = process_families("storage")
    assert build.read() == {(kafscale_version(), "storage"): 1}
    [count] = threads.read().values()
    assert isinstance(count, int)
    assert count >= 1


def test_a_package_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(version, "version", none)
    kafscale_version.cache_clear()
    try:
        assert not kafscale_version()
        assert process_families("storage")[0].read() == {("unknown", "storage"): 1}
    finally:
        kafscale_version.cache_clear()
