"""The Admin service of a gateway under test."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import grpc
import pytest

from kafscale.metadata.members import LiveMember, Members
from kafscale.process.health import Health
from kafscale.rpc.errors import StatusError
from kafscale.rpc.generated import ProcessClient
from kafscale.rpc.peer_health import PeerHealth
from kafscale.v1.process_pb2 import ProcessTotals, TotalsRequest
from services.gateway.admin.cluster import ClusterReport
from services.gateway.admin.service import AdminService
from services.gateway.admin.totals import TotalsReport
from tests.support.gateway.harness import NAMESPACE, Harness

ServingAnswer = bool | Exception


class _FakePeer:
    def __init__(self, answer: ServingAnswer) -> None:
        self._answer = answer

    async def serving(self, service: str = "", *, timeout: float) -> bool:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class _FakeProcess:
    def __init__(self, run_id: str, answer: ServingAnswer) -> None:
        self._run_id = run_id
        self._answer = answer

    async def totals(self, _: TotalsRequest, *, timeout: float) -> ProcessTotals:
        if isinstance(self._answer, Exception):
            raise self._answer
        return ProcessTotals(process=self._run_id)


async def admin_of(
    harness: Harness, *, health: Health | None = None, answers: dict[str, ServingAnswer] | None = None
) -> AdminService:
    """``answers`` of members to health checks, by run id; True by default. Exceptions answer other calls too."""
    by_run = answers or {}

    def connect(member: LiveMember) -> AbstractAsyncContextManager[PeerHealth]:
        @asynccontextmanager
        async def connected() -> AsyncIterator[PeerHealth]:
            yield cast(PeerHealth, _FakePeer(by_run.get(member.run_id, True)))

        return connected()

    indexers = Members(harness.metadata, NAMESPACE, "indexer")
    await harness.nursery.start(indexers.run)
    started = health or Health()
    started.start()
    report = ClusterReport(harness.parts, indexers, started, connect)

    @asynccontextmanager
    async def process(member: LiveMember) -> AsyncIterator[ProcessClient]:
        yield cast(ProcessClient, _FakeProcess(member.run_id, by_run.get(member.run_id, True)))

    totals = TotalsReport(report.members, harness.parts.address, lambda: ProcessTotals(process="own"), process)
    return AdminService(harness.gateway, report, totals)


class refused:  # noqa: N801 - reads like pytest.raises
    """Check that the block raises this code, with a message that matches."""

    def __init__(self, code: grpc.StatusCode, match: str) -> None:
        self._code = code
        self._raises = pytest.raises(StatusError, match=match)

    def __enter__(self) -> None:
        self._info = self._raises.__enter__()

    def __exit__(self, *error: Any) -> bool:
        caught = bool(self._raises.__exit__(*error))
        assert self._info.value.code is self._code
        return caught
