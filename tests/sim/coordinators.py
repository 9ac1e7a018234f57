"""Coordinators as processes of the simulation, and the gateways' calls to them.

Calls begin at a coordinator in the order in which they were sent to it. In reality, when a gateway dies while a
coordinator is stopped, its client's next request may be taken up first; so it may by a stopped broker of Apache Kafka
when the client connects to it again, and no promise excludes that.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TypeVar

import trio
from google.protobuf.message import Message

from kafscale.errors import Refused, Unavailable
from kafscale.metadata.members import Members
from kafscale.rpc.direct import Direct
from kafscale.rpc.generated import GroupCoordinatorClient
from kafscale.rpc.interface import MessageStream
from kafscale.rpc.methods import Method
from kafscale.rpc.services import bind_coordinator
from services.coordinator.run import Dependencies
from services.coordinator.service import CoordinatorService
from services.coordinator.settings import CoordinatorSettings
from tests.sim.faults import Faults
from tests.sim.process import Process
from tests.sim.services import NAMESPACE, Cluster
from tests.sim.trace import Trace

T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)
_FOREVER = 1000.0

SETTINGS = CoordinatorSettings(
    lease_ttl_seconds=1,
    group_initial_rebalance_delay_ms=100,
    group_min_session_timeout_ms=100,
    group_handover_wait_ms=400,
    group_handover_timeout_ms=500,
    group_lag_series=0,
    group_topic_check_ms=500,
)
BOUND_SECONDS = SETTINGS.lease_ttl_seconds + SETTINGS.group_handover_timeout_ms / 1000 + 5
"""Within this long every shard is served, as docs/reference/groups.md promises."""


class CoordinatorProcess(Process):
    """A process with a coordinator in it, once that has started. ``stop`` lets it leave gracefully."""

    service: CoordinatorService | None = None

    def __init__(self, name: str, address: str, defect: Callable[[str, BaseException], None]) -> None:
        super().__init__(name, address, defect)
        self.stop = trio.Event()
        # Of calls that have not begun: each is set when its call begins, or is given up.
        self._coming: dict[trio.Event, None] = {}

    @property
    def gives_back(self) -> bool:
        """Whether it goes on, and gives a shard back that still has something to store."""
        going_on = self.serving and not self.stop.is_set()
        run = self.service.current if self.service is not None and going_on else None
        return run is not None and any(
            shard.releasing and any(map(shard.storing, shard.groups)) for shard in run.shards.values()
        )

    def in_turn(self, work: Callable[[], Awaitable[T]], *, after: float) -> Callable[[], Awaitable[T]]:
        """``work`` that begins ``after`` so many seconds, and behind what was sent to this process before it."""
        # The way takes no longer where the process is frozen.
        arrives = trio.current_time() + after
        # All of them: one that is given up says nothing about those before it.
        before, begun = list(self._coming), trio.Event()
        self._coming[begun] = None

        async def wait_and_do() -> T:
            try:
                await trio.sleep_until(arrives)
                for earlier in before:
                    await earlier.wait()
            finally:
                begun.set()
                del self._coming[begun]
            return await work()

        return wait_and_do


async def serve_coordinator(cluster: Cluster, process: CoordinatorProcess, settings: CoordinatorSettings) -> None:
    """One coordinator process, until it is told to stop and has given all its groups back."""
    metadata = cluster.metadata_of(process)
    members = Members(metadata, NAMESPACE, "coordinator")
    service = CoordinatorService(
        Dependencies(
            settings=settings,
            namespace=NAMESPACE,
            metadata=metadata,
            members=members,
            now_ms=partial(cluster.now_ms, process),
            address=process.address,
            lease_clock=process.lease_clock,
            boot_clock=process.lease_clock,
        )
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(members.run)
        process.service = service
        process.open(nursery)
        await service.run(process.stop)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connection(
    here: Process, there: Callable[[], CoordinatorProcess | None], faults: Faults, trace: Trace
) -> AsyncIterator[GroupCoordinatorClient]:
    yield GroupCoordinatorClient(RemoteCoordinator(here, there, faults, trace))


class RemoteCoordinator:
    """The `Peer` that is the coordinator process ``there``, in the gateway process ``here``."""

    def __init__(
        self, here: Process, there: Callable[[], CoordinatorProcess | None], faults: Faults, trace: Trace
    ) -> None:
        self._here = here
        self._there = there
        self._faults = faults
        self._trace = trace

    async def call(self, method: Method[Q, A], request: Q, *, timeout: float) -> A:
        return await self._call(method.path, lambda peer: peer.call(method, request, timeout=_FOREVER), timeout)

    def stream(self, method: Method[Q, A], request: Q) -> AbstractAsyncContextManager[MessageStream[A]]:
        raise Refused(f"{method.path} is no method of a coordinator")

    async def _call(self, name: str, do: Callable[[Direct], Awaitable[T]], timeout: float) -> T:
        faults = self._faults
        with trio.move_on_after(timeout):
            there = self._there()
            if self._here.dead or self._here.cut_from_peers or (there is not None and there.cut_from_peers):
                await trio.sleep_forever()
            if there is None or not there.serving or there.service is None:
                await trio.sleep(faults.latency())
                raise Unavailable("connection refused")
            if faults.hits("group-call-error"):
                raise Unavailable("connection reset")
            way = faults.between(0.05, 0.35) if faults.hits("group-call-slow") else faults.latency()
            peer = Direct(bind_coordinator(there.service))
            reply = await there.call(
                there.in_turn(lambda: do(peer), after=way), abandon=lambda: faults.dice.random() < 0.3
            )
            if faults.hits("group-call-lost-answer"):
                self._trace.add(f"fault: the answer of {there.name} to {name} is lost")
                await trio.sleep_forever()
            await trio.sleep(faults.latency())
            return reply
        raise Unavailable(f"no answer within {timeout:g} s")
