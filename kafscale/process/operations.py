"""What a process shows to whoever runs it: /healthz, /readyz and /metrics over HTTP, from one `Operations` object.

- ``/healthz``: 200 from a process whose event loop turns.
- ``/readyz``: 200 or 503, and a JSON object of all checks.
- ``/metrics``: Prometheus' text format.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import structlog
import trio

from kafscale.config.network import HttpSettings
from kafscale.metadata.etcd_space import EtcdSpace
from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.members import Members, MembersView
from kafscale.metadata.membership import Membership
from kafscale.metadata.observed import MetadataHealth, ObservedMetadataStore
from kafscale.objects.availability import StoreHealth, clock_finding
from kafscale.objects.interface import ObjectStore
from kafscale.objects.lifecycle import LifecycleWatch
from kafscale.objects.metrics import OperationCounters
from kafscale.process.health import Health
from kafscale.process.http import HttpServer, Response, Route
from kafscale.process.metrics import CONTENT_TYPE, Metrics
from kafscale.process.process_metrics import EventLoop, process_families
from kafscale.rpc.counters import CallCounters
from kafscale.rpc.server import RpcServer
from kafscale.telemetry import HEALTHY, Family, Finding, State, gauge
from kafscale.tracing import Tracer

_log = structlog.get_logger(__name__)


class Operations:
    """What is added to it is shown from then on. ``service``: what the process says that it is."""

    def __init__(self, service: str = "") -> None:
        self.health = Health()
        self.metrics = Metrics()
        self.tracer: Tracer | None = None
        """None: nothing is traced."""
        self._loop = EventLoop()
        self._calls: CallCounters | None = None
        self.metrics.add([*process_families(service), *self._loop.families(), *self.health.families()])

    @classmethod
    @asynccontextmanager
    async def open(
        cls, http: HttpSettings, service: str, stopping: trio.Event, *, runs: str = ""
    ) -> AsyncIterator["Operations"]:
        """Answers from now on: not ready until `Health.start`, nor once ``stopping`` is set.

        ``service`` says the default address. ``runs``: what the process is shown as, where it is more than that
        service. Raises ConfigError when the address cannot be listened on.
        """
        operations = cls(runs or service)
        server = HttpServer(operations.routes(), most_connections=http.http_max_connections)

        async def stop() -> None:
            await stopping.wait()
            operations.health.stop()

        async with trio.open_nursery() as nursery:
            address = http.address(service)
            port = await nursery.start(server.run, address.host, address.port)
            _log.info("health and metrics", host=address.host, port=port)
            nursery.start_soon(operations.health.run)
            nursery.start_soon(operations._loop.run)
            nursery.start_soon(stop)
            yield operations
            nursery.cancel_scope.cancel()

    def routes(self) -> dict[str, Route]:
        return {"/healthz": _alive, "/readyz": self._readiness, "/metrics": self._metrics}

    def observe_objects(
        self,
        objects: ObjectStore,
        s3: StoreHealth,
        counters: OperationCounters,
        lifecycle: LifecycleWatch | None = None,
    ) -> None:
        """Show the object store's health; ``s3`` and ``counters`` count its requests.

        With ``lifecycle``, also whether the bucket's rules endanger the cluster, which makes no process unready.
        """
        self.metrics.add(counters.families())
        self.metrics.add(s3.families())
        self.health.add("s3", s3.finding, unready_from=State.UNAVAILABLE)
        self.health.add("clock", lambda: clock_finding(objects), unready_from=State.UNAVAILABLE)
        if lifecycle is not None:
            self.health.add("lifecycle", lifecycle.finding)

    def observed(self, metadata: MetadataStore) -> MetadataStore:
        """The store, whose operations are shown from now on. That it answers is no condition: the lease is."""
        health = MetadataHealth()
        self.metrics.add(health.families())
        self.health.add("etcd", health.finding)
        return ObservedMetadataStore(metadata, health)

    def watch_space(self, space: EtcdSpace) -> None:
        """Show how full etcd is. That is no condition either: what is committed is served all the same."""
        self.metrics.add(space.families())
        self.health.add("etcd_space", space.finding)

    def watch_lease(
        self, current: Callable[[], Membership | None], *, unready_from: State | None = State.UNAVAILABLE
    ) -> None:
        """Show whether the others may take this process for dead. ``current`` gives its present membership."""
        self.health.add("lease", lambda: _lease(current()), unready_from=unready_from)
        self.metrics.add(lease_families(current))

    def watch_address(
        self, current: Callable[[], Membership | None], members: Members, *, unready_from: State | None = None
    ) -> None:
        """Show whether a second process says that it is reached where this one, one of ``members``, is."""
        self.health.add("address", lambda: _address(current(), members.view), unready_from=unready_from)

    def calls_made(self) -> CallCounters:
        """Where this process's calls to other services are counted, which are shown from now on."""
        if self._calls is None:
            self._calls = CallCounters()
            self.metrics.add(self._calls.families("client"))
        return self._calls

    def observe_server(self, server: RpcServer) -> None:
        """Show the calls that it takes, and let gRPC's health service say what /readyz says."""
        self.metrics.add(server.calls.families("server"))
        self.health.on_ready(lambda ready: server.set_serving(serving=ready))

    def _readiness(self) -> Response:
        report = self.health.report()
        shown = {"ready": report.ready, "state": report.state.label, "checks": report.checks}
        status = HTTPStatus.OK if report.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(json.dumps(shown, indent=2).encode() + b"\n", status=status)

    def _metrics(self) -> Response:
        return Response(self.metrics.text(), CONTENT_TYPE)


def lease_families(current: Callable[[], Membership | None]) -> list[Family]:
    """``current`` gives the process's present membership."""
    return [
        gauge(
            "kafscale_lease_proven",
            "1 while this process can prove that its lease is valid, so that other processes consider it alive.",
            lambda: _lease(current()).state is State.HEALTHY,
        )
    ]


def _lease(membership: Membership | None) -> Finding:
    if membership is None:
        return Finding(State.UNAVAILABLE, "not registered")
    return HEALTHY if membership.proven else Finding(State.UNAVAILABLE, "the lease cannot be proven")


def _address(membership: Membership | None, view: MembersView) -> Finding:
    """Of two live processes at one address the older one tells: it is the one that nobody is sent to by its address."""
    mine = view.by_run_id.get(membership.run_id) if membership is not None and membership.proven else None
    if mine is None or not mine.address:
        return HEALTHY
    newest = next(live for live in view.present if live.address == mine.address)
    if newest.run_id == mine.run_id:
        return HEALTHY
    return Finding(
        State.UNAVAILABLE,
        f"another live {mine.member.service} registered at {mine.address} too, run {newest.run_id}: "
        "each needs a KAFSCALE_RPC_ADVERTISED_ADDR of its own",
    )


def _alive() -> Response:
    return Response(b"ok\n", "text/plain; charset=utf-8")
