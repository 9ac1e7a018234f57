"""The gateway: its listeners, the Kafka APIs, and the links to storage and coordinators."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import trio

from kafscale.audit import AuditLog
from kafscale.clock import wall_clock_ms
from kafscale.config.listeners import Listener
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.interface import MetadataStore
from kafscale.metadata.members import Members
from kafscale.metadata.membership import Membership, boot_clock, suspension_clock
from kafscale.metadata.ownership import OwnershipMap
from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.metadata.topics import TopicCatalog
from kafscale.metadata.users import UserCatalog
from kafscale.process.tokens import TokenVerifier
from kafscale.topics.configs import default_values
from kafscale.tracing import Tracer
from services.gateway.access.authentication import Authenticator
from services.gateway.access.bootstrap import create_first_user
from services.gateway.api import Environment
from services.gateway.brokers import Brokers
from services.gateway.clients.listener import Acceptor
from services.gateway.coordinators.links import ConnectCoordinator, Coordinators
from services.gateway.counters import GatewayCounters
from services.gateway.fetch_sessions import FetchSessions
from services.gateway.owners.link import AppendAtOnce, StorageLink
from services.gateway.owners.routing import Connect, Router
from services.gateway.pauses import Pauses
from services.gateway.quotas.enforcement import Quotas
from services.gateway.registration import Registration
from services.gateway.reply_memory import ReplyMemory
from services.gateway.request_memory import RequestMemory
from services.gateway.settings import GatewaySettings
from services.gateway.topic_cache import TopicCache

_CONVERSIONS = 2
"""The maximum number of concurrent threads that convert or check records, because they compete for the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDependencies:
    """The dependencies of a gateway.

    ``catalog``, ``users``, ``acls``, ``quotas``, ``ownership``, and the members of each service, ``storages``,
    ``gateways`` and ``coordinators``, must be running before `Gateway.run` is called. ``address`` is where other
    services reach this gateway, or empty if they are in the same process.
    """

    settings: GatewaySettings
    namespace: str
    metadata: MetadataStore
    catalog: TopicCatalog
    users: UserCatalog
    # Not read if ACLs are not enforced.
    acls: AclCatalog
    audit: AuditLog
    quotas: QuotaCatalog
    storages: Members
    gateways: Members
    coordinators: Members
    ownership: OwnershipMap
    connect: Connect
    connect_coordinator: ConnectCoordinator
    lease_ttl_seconds: int
    address: str = ""
    # If the only storage instance is in this process.
    append_at_once: AppendAtOnce | None = None
    # Needed for listeners with OAUTHBEARER.
    tokens: TokenVerifier | None = None
    tracer: Tracer | None = None
    now_ms: Callable[[], int] = wall_clock_ms
    lease_clock: Callable[[], float] = suspension_clock
    # Unlike the lease clock, this clock ignores steps of the wall clock.
    boot_clock: Callable[[], float] = boot_clock
    # Whether to log each request and response at level debug.
    log_requests: bool = False
    counters: GatewayCounters = field(default_factory=GatewayCounters)


class Gateway:
    """A gateway. Stop storage after it."""

    def __init__(self, parts: GatewayDependencies) -> None:
        self.parts = parts
        settings = parts.settings
        self.settings = settings
        self.fetch_sessions = FetchSessions(settings.max_fetch_sessions, settings.max_fetch_session_partitions)
        self.request_memory = RequestMemory(settings.request_memory_bytes)
        self.reply_memory = ReplyMemory(settings.reply_memory_bytes)
        self._router: Router | None = None
        self._coordinators: Coordinators | None = None
        self._registration: Registration | None = None
        self._environment: Environment | None = None
        self.stopping = trio.Event()
        """Set when the gateway begins to stop, so that long-running responses end."""

    @property
    def membership(self) -> Membership | None:
        """The current membership, or None before the registration."""
        return self._registration.membership if self._registration else None

    def links(self) -> Iterable[StorageLink]:
        """The links to the registered storage instances."""
        return self._router.links() if self._router else ()

    @property
    def coordinators(self) -> Coordinators | None:
        """The coordinators, or None before the start."""
        return self._coordinators

    @property
    def environment(self) -> Environment | None:
        """The environment of handlers, or None before the start."""
        return self._environment

    async def run(
        self,
        stop: trio.Event,
        task_status: trio.TaskStatus[tuple[Listener, ...]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve clients until ``stop``, then drain them. Reports the listeners with their bound ports as started.

        Raises ConfigError if a listener is invalid or cannot be bound, or if another gateway has the node id.
        """
        settings = self.parts.settings
        acceptor = Acceptor(settings.resolve(), settings, Authenticator(self.parts.users, self.parts.tokens))
        try:
            await self._serve(acceptor, stop, task_status)
        finally:
            acceptor.close()

    async def _serve(
        self,
        acceptor: Acceptor,
        stop: trio.Event,
        task_status: trio.TaskStatus[tuple[Listener, ...]],
    ) -> None:
        parts, settings = self.parts, self.parts.settings
        cluster = await parts.catalog.cluster()
        bound = await acceptor.bind()
        registration = self._registration = Registration(
            parts.metadata,
            parts.namespace,
            listeners=bound,
            address=parts.address,
            configured_id=settings.broker_id,
            lease_ttl_seconds=parts.lease_ttl_seconds,
            now_ms=parts.now_ms,
            clock=parts.lease_clock,
        )
        pauses = Pauses(settings.pause_limit_ms / 1000, parts.boot_clock)
        router = self._router = Router(
            parts.storages, parts.ownership, parts.connect, settings, pauses, append_at_once=parts.append_at_once
        )
        coordinators = self._coordinators = Coordinators(
            parts.coordinators, parts.connect_coordinator, settings, pauses
        )
        environment = Environment(
            settings=settings,
            catalog=parts.catalog,
            router=router,
            ownership=parts.ownership,
            brokers=Brokers(parts.gateways, lambda: registration.node_id),
            coordinators=coordinators,
            cluster_id=cluster.cluster_id,
            namespace=parts.namespace,
            listeners=bound,
            topics=TopicCache(parts.catalog, default_values(settings)),
            producer_ids=ProducerIds(parts.metadata, parts.namespace),
            users=parts.users,
            acls=parts.acls if settings.acls else None,
            audit=parts.audit,
            quota_catalog=parts.quotas,
            quotas=Quotas(parts.quotas, parts.gateways, parts.counters),
            request_memory=self.request_memory,
            reply_memory=self.reply_memory,
            fetch_sessions=self.fetch_sessions,
            conversions=trio.CapacityLimiter(_CONVERSIONS),
            pauses=pauses,
            log_requests=parts.log_requests,
            counters=parts.counters,
            now_ms=parts.now_ms,
            tracer=parts.tracer,
        )

        async def leave() -> None:
            await stop.wait()
            self.stopping.set()
            await registration.announce_leaving()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pauses.run)
            await nursery.start(router.run)
            await nursery.start(coordinators.run)
            await create_first_user(settings, parts.users)
            await nursery.start(registration.run)
            self._environment = environment
            nursery.start_soon(leave)
            task_status.started(bound)
            await acceptor.run(stop, environment)
            nursery.cancel_scope.cancel()
