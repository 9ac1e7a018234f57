"""Coordinators as processes of the simulation, and the gateways' calls to them.

A coordinator starts calls in the order in which they were sent. In reality, if a gateway dies while a coordinator is
stopped, the client's next request may be handled first. The same can happen in a stopped Apache Kafka broker after the
client reconnects, and no promise excludes it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property, partial
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
from tests.sim.services import NAMESPACE, Cluster, connect_storage
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
"""The time within which every shard must be served, see docs/reference/groups.md."""


class CoordinatorProcess(Process):
    """A process with a coordinator, once it has started. ``stop`` makes it leave gracefully."""

    service: CoordinatorService | None = None

    def __init__(self, name: str, address: str, defect: Callable[[str, BaseException], None]) -> None:
        super().__init__(name, address, defect)
        self.stop = trio.Event()
        # The events of calls that have not started. Each is set when its call starts or is given up.
        self._coming: dict[trio.Event, None] = {}

    @cached_property
    def peer(self) -> Direct:
        """Calls the service directly."""
        assert self.service is not None
        return Direct(bind_coordinator(self.service))

    @property
    def gives_back(self) -> bool:
        """Whether it is running and releasing a shard with pending writes."""
        going_on = self.serving and not self.stop.is_set()
        run = self.service.current if self.service is not None and going_on else None
        return run is not None and any(
            shard.releasing and any(map(shard.storing, shard.groups)) for shard in run.shards.values()
        )

    def in_turn(self, work: Callable[[], Awaitable[T]], *, after: float) -> Callable[[], Awaitable[T]]:
        """Return ``work`` delayed by ``after`` seconds, and until all earlier calls to this process have started."""
        # The arrival time does not change if the process is frozen.
        arrives = trio.current_time() + after
        # Wait for all of them, because a call that is given up may precede unstarted ones.
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
    """Run a coordinator until it is stopped and has released all its groups."""
    metadata = cluster.metadata_of(process)
    members = Members(metadata, NAMESPACE, "coordinator")
    service = CoordinatorService(
        Dependencies(
            settings=settings,
            namespace=NAMESPACE,
            metadata=metadata,
            members=members,
            # Not used, because groups' lag is off.
            storages=Members(metadata, NAMESPACE, "storage"),
            connect=partial(connect_storage, cluster, process),
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
    """The `Peer` of the gateway process ``here`` for the coordinator process ``there``."""

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
        raise Refused(f"{method.path} is not a method of a coordinator")

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
            reply = await there.call(
                there.in_turn(lambda: do(there.peer), after=way), abandon=lambda: faults.dice.random() < 0.3
            )
            if faults.hits("group-call-lost-answer"):
                self._trace.add(f"fault: the answer of {there.name} to {name} is lost")
                await trio.sleep_forever()
            await trio.sleep(faults.latency())
            return reply
        raise Unavailable(f"no answer within {timeout:g} s")
