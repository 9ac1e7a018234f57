from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import trio
from trio.testing import MockClock

from services.operator.counters import OperatorCounters
from services.operator.kubernetes import Kubernetes
from services.operator.leadership import LEASE_NAME, Leadership
from tests.unit.operator.steps import Steps
from tests.unit.operator.world import Answer, ApiServer

SECONDS = 15


class Link:
    """A connection to an API server that others reach by their own connections."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self.down = False

    @asynccontextmanager
    async def call_api(self, method: str, **asked: Any) -> AsyncIterator[Answer]:
        if self.down:
            raise OSError("connection refused")
        async with self._api.call_api(method, **asked) as answer:
            yield answer


class Candidate:
    """Records when it works."""

    def __init__(self, name: str, api: ApiServer) -> None:
        self.api = Link(api)
        self.counters = OperatorCounters()
        self.working = False
        self.times = 0
        self.stopping = trio.Event()
        kubernetes = Kubernetes(self.api, "default", self.counters, timeout=1.0)
        self._leadership = Leadership(kubernetes, self.counters, me=name, seconds=SECONDS, now=_now)

    async def run(self) -> None:
        await self._leadership.run(self._work, self.stopping)

    async def _work(self) -> None:
        self.working = True
        self.times += 1
        try:
            await trio.sleep_forever()
        finally:
            self.working = False


def _now() -> datetime:
    return datetime.fromtimestamp(trio.current_time(), UTC)


async def test_one_of_two_candidates_works_and_the_other_follows_when_it_stops(autojump_clock: MockClock) -> None:
    api = ApiServer(Steps())
    one, other = Candidate("a", api), Candidate("b", api)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(1)
        nursery.start_soon(other.run)
        await trio.sleep(10 * SECONDS)
        assert (one.working, other.working, one.counters.leading) == (True, False, True)
        one.stopping.set()
        await trio.sleep(3)
        assert (one.working, other.working, one.counters.leading) == (False, True, False)
        assert other.times == 1
        other.stopping.set()
    assert "holderIdentity" not in api.objects["leases", LEASE_NAME]["spec"]


async def test_a_candidate_without_the_api_server_stops_before_another_starts(autojump_clock: MockClock) -> None:
    api = ApiServer(Steps())
    one, other = Candidate("a", api), Candidate("b", api)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.run)
        await trio.sleep(1)
        nursery.start_soon(other.run)
        await trio.sleep(SECONDS)
        one.api.down = True
        both = False
        for _ in range(2 * SECONDS * 10):
            await trio.sleep(0.1)
            both |= one.working and other.working
        assert not both
        assert (one.working, other.working) == (False, True)
        one.api.down = False
        await trio.sleep(SECONDS)
        assert (one.working, other.working, one.times) == (False, True, 1)
        nursery.cancel_scope.cancel()
