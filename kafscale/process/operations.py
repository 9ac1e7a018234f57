"""The HTTP endpoints of a process for its operators, served by one `Operations` object:

- ``/healthz``: 200 if the event loop is running.
- ``/readyz``: 200 or 503, and a JSON object with all checks.
- ``/metrics``: metrics in Prometheus' text format.
"""

import json
import ssl
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
from kafscale.process.certificates import CertificateFiles, Followed, followed_context
from kafscale.process.health import Health
from kafscale.process.http import HttpServer, Response, Route, routed
from kafscale.process.metrics import CONTENT_TYPE, Metrics
from kafscale.process.process_metrics import EventLoop, process_families
from kafscale.rpc.counters import CallCounters
from kafscale.rpc.server import RpcServer
from kafscale.telemetry import HEALTHY, Family, Finding, State, gauge
from kafscale.tracing import Tracer

_log = structlog.get_logger(__name__)


class Operations:
    """Health checks and metrics of a process, exposed as soon as they are added. ``service``: its name in metrics."""

    def __init__(self, service: str = "") -> None:
        self.health = Health()
        self.metrics = Metrics()
        self.tracer: Tracer | None = None
        """None if tracing is off."""
        self._loop = EventLoop()
        self._calls: CallCounters | None = None
        self.metrics.add([*process_families(service), *self._loop.families(), *self.health.families()])

    @classmethod
    @asynccontextmanager
    async def open(
        cls, http: HttpSettings, service: str, stopping: trio.Event, *, runs: str = ""
    ) -> AsyncIterator["Operations"]:
        """Serve the endpoints. The process is ready from `Health.start` until ``stopping`` is set.

        ``service`` determines the default address. ``runs``: the name in metrics if the process runs more than that
        service. Raises ConfigError if it cannot listen on the address, or if a TLS file cannot be used.
        """
        operations = cls(runs or service)
        tls = _http_tls(http)
        server = HttpServer(
            routed(operations.routes()),
            setting="KAFSCALE_HTTP_ADDR",
            max_connections=http.http_max_connections,
            context=None if tls is None else lambda: tls.value,
        )

        async def stop() -> None:
            await stopping.wait()
            operations.health.stop()

        async with trio.open_nursery() as nursery:
            address = http.address(service)
            port = await nursery.start(server.run, address.host, address.port)
            _log.info("HTTP server started", host=address.host, port=port, tls=tls is not None)
            if tls is not None:
                nursery.start_soon(tls.run)
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
        """Expose the health of the object store. ``s3`` and ``counters`` count its requests.

        ``lifecycle`` also reports lifecycle rules of the bucket that endanger the cluster, without affecting readiness.
        """
        self.metrics.add(counters.families())
        self.metrics.add(s3.families())
        self.health.add("s3", s3.finding, unready_from=State.UNAVAILABLE)
        self.health.add("clock", lambda: clock_finding(objects), unready_from=State.UNAVAILABLE)
        if lifecycle is not None:
            self.health.add("lifecycle", lifecycle.finding)

    def observed(self, metadata: MetadataStore) -> MetadataStore:
        """Return the store with its operations exposed. Readiness does not depend on it, but on the lease."""
        health = MetadataHealth()
        self.metrics.add(health.families())
        self.health.add("etcd", health.finding)
        return ObservedMetadataStore(metadata, health)

    def watch_space(self, space: EtcdSpace) -> None:
        """Expose how full etcd is. Readiness does not depend on it, because committed records can still be served."""
        self.metrics.add(space.families())
        self.health.add("etcd_space", space.finding)

    def watch_lease(
        self, current: Callable[[], Membership | None], *, unready_from: State | None = State.UNAVAILABLE
    ) -> None:
        """Report whether other processes may regard this one as dead. ``current`` returns its current membership."""
        self.health.add("lease", lambda: _lease(current()), unready_from=unready_from)
        self.metrics.add(lease_families(current))

    def watch_address(
        self, current: Callable[[], Membership | None], members: Members, *, unready_from: State | None = None
    ) -> None:
        """Report whether another of ``members`` is registered with the same address as this process."""
        self.health.add("address", lambda: _address(current(), members.view), unready_from=unready_from)

    def calls_made(self) -> CallCounters:
        """Return the counters for this process's calls to other services, and expose them."""
        if self._calls is None:
            self._calls = CallCounters()
            self.metrics.add(self._calls.families("client"))
        return self._calls

    def observe_server(self, server: RpcServer) -> None:
        """Expose the calls that ``server`` handles, and let gRPC's health service report the readiness."""
        self.metrics.add(server.calls.families("server"))
        self.health.on_ready(lambda ready: server.set_serving(serving=ready))

    def _readiness(self) -> Response:
        report = self.health.report()
        content = {"ready": report.ready, "state": report.state.label, "checks": report.checks}
        status = HTTPStatus.OK if report.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(json.dumps(content, indent=2).encode() + b"\n", status=status)

    def _metrics(self) -> Response:
        return Response(self.metrics.text(), CONTENT_TYPE)


def _http_tls(http: HttpSettings) -> Followed[ssl.SSLContext] | None:
    if http.http_tls_cert_file is None or http.http_tls_key_file is None:
        return None
    files = CertificateFiles(http.http_tls_cert_file, http.http_tls_key_file, http.http_tls_ca_file)
    return followed_context(files, settings="KAFSCALE_HTTP_TLS", what="certificates of the HTTP port")


def lease_families(current: Callable[[], Membership | None]) -> list[Family]:
    """Return the metrics of the lease. ``current`` returns the current membership of the process."""
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
    """If two live processes have the same address, the older one reports it, because calls reach the newer one."""
    mine = view.by_run_id.get(membership.run_id) if membership is not None and membership.proven else None
    if mine is None or not mine.address:
        return HEALTHY
    newest = next(live for live in view.present if live.address == mine.address)
    if newest.run_id == mine.run_id:
        return HEALTHY
    return Finding(
        State.UNAVAILABLE,
        f"another live {mine.member.service}, run {newest.run_id}, is registered at {mine.address} too; "
        "set a different KAFSCALE_RPC_ADVERTISED_ADDR for each",
    )


def _alive() -> Response:
    return Response(b"ok\n", "text/plain; charset=utf-8")
