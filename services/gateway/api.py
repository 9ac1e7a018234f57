"""The interface between the Kafka APIs in ``apis/`` and the rest of the gateway."""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Protocol

import trio
from kio.schema.errors import ErrorCode

from kafscale.audit import AuditLog
from kafscale.clock import wall_clock_ms
from kafscale.config.listeners import Listener
from kafscale.errors import Refused
from kafscale.kafka import codec
from kafscale.kafka.connection import Request
from kafscale.kafka.wire import Buffer
from kafscale.metadata.acls import AclCatalog
from kafscale.metadata.outage import Refusal
from kafscale.metadata.ownership import OwnershipMap
from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.metadata.topics import TopicCatalog
from kafscale.metadata.users import UserCatalog
from kafscale.security.asks import Ask
from kafscale.tracing import Tracer
from services.gateway.access.authentication import Authentication
from services.gateway.access.authorization import Authorization
from services.gateway.brokers import Brokers
from services.gateway.coordinators.links import Coordinators
from services.gateway.counters import GatewayCounters, error_codes
from services.gateway.fetch_sessions import FetchSessions
from services.gateway.owners.refused import RefusedBatches
from services.gateway.owners.routing import Router
from services.gateway.owners.traced import TracedBatches
from services.gateway.pauses import Pauses
from services.gateway.quotas.enforcement import Charge, Quotas
from services.gateway.reply_memory import ReplyMemory
from services.gateway.request_memory import RequestMemory
from services.gateway.settings import GatewaySettings
from services.gateway.topic_cache import TopicCache

Work = Coroutine[Any, Any, None]


def _refusals() -> defaultdict[str, Refusal]:
    return defaultdict(lambda: Refusal("metadata store refused a client request"))


@dataclass(slots=True)
class Environment:
    """The components that handlers use, shared by all connections."""

    settings: GatewaySettings
    catalog: TopicCatalog
    router: Router
    ownership: OwnershipMap
    brokers: Brokers
    coordinators: Coordinators
    cluster_id: str
    namespace: str
    listeners: tuple[Listener, ...]
    topics: TopicCache
    producer_ids: ProducerIds
    users: UserCatalog
    # None if ACLs are not enforced.
    acls: AclCatalog | None
    audit: AuditLog
    quota_catalog: QuotaCatalog
    quotas: Quotas
    # For partially received requests. A client that stops in the middle of one must be disconnected.
    request_memory: RequestMemory
    reply_memory: ReplyMemory
    fetch_sessions: FetchSessions
    conversions: trio.CapacityLimiter
    pauses: Pauses
    log_requests: bool = False
    counters: GatewayCounters = field(default_factory=GatewayCounters)
    now_ms: Callable[[], int] = field(default=wall_clock_ms)
    stopping: bool = False
    # None if tracing is off.
    tracer: Tracer | None = None
    traced: TracedBatches = field(default_factory=TracedBatches)
    refused: RefusedBatches = field(default_factory=RefusedBatches)
    refusals: defaultdict[str, Refusal] = field(default_factory=_refusals)

    @contextmanager
    def logging_refusals(self, api: str) -> Iterator[None]:
        """A context for an API's calls to the metadata store. It logs refused requests and reraises the error."""
        refusal = self.refusals[api]
        try:
            yield
        except Refused as error:
            refusal.report(error, api=api)
            raise
        refusal.over()


class Client(Protocol):
    """The connection on which a request arrived."""

    @property
    def listener(self) -> Listener:
        """The listener that accepted the connection."""
        ...

    @property
    def host(self) -> str:
        """The client's address in Kafka's notation, with a leading slash."""
        ...

    @property
    def authentication(self) -> Authentication:
        """Who the client is."""
        ...

    @property
    def authorization(self) -> Authorization:
        """What the client may do."""
        ...

    def authenticated(self) -> None:
        """To be called when the client has authenticated."""
        ...

    def close(self, reason: str) -> None:
        """Close the connection without answering pending requests."""
        ...

    def refuse(self) -> None:
        """Accept no more requests, and close the connection when the client has read the responses and closed its end,
        at the latest after a second."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One request and what its handler needs to answer it. ``charge`` is None if no quotas limit clients."""

    request: Request
    client: Client
    environment: Environment
    charge: Charge | None = None

    @property
    def version(self) -> int:
        return self.request.api_version

    def answer(self, reply: object, *, version: int | None = None) -> None:
        """Encode ``reply`` for ``version``, by default the request's version, count its errors, and send it."""
        self.count_errors(reply)
        if self.charge is not None:
            reply = _throttled(reply, self.charge.settle())
        self.reply(codec.encode_response(self.request.api_key, self.version if version is None else version, reply))

    def count_errors(self, *replies: object) -> None:
        """Count the error codes in ``replies``, including those of nested items."""
        for reply in replies:
            self.environment.counters.answered(self.request.api_key, error_codes(reply))

    def reply(self, *body: Buffer) -> None:
        """Send the response body. To be called once per request, also if the connection has been closed."""
        if self.charge is not None:
            self.charge.settle()
        self.request.slot.reply(body)


def _throttled(reply: Any, throttle_ms: int) -> object:
    """Return a reply with a throttle time, if it has one."""
    if not throttle_ms or all(field.name != "throttle_time" for field in fields(reply)):
        return reply
    return replace(reply, throttle_time=throttle_ms)


class Order(Enum):
    """Which earlier requests of its connection a request may overlap with. It waits for the answers to all others.

    Kafka processes one request of a connection at a time, so a request that changes something must be complete before
    later ones begin. Requests that only read cannot observe whether others run at the same time.
    """

    ALONE = "none"
    READS = "others that read"
    APPENDS = "other appends, which reach each log in their order"


@dataclass(frozen=True, slots=True)
class Api:
    """One Kafka API and the versions that are fully implemented.

    ``handle`` decodes the request (CorruptData closes the connection) and does the work that need not wait. It returns
    the rest as a coroutine, or None if the request is answered or will be answered by a later event. ``fail`` answers a
    request whose handler raised an exception.
    ``largest`` returns the maximum size of a request in bytes, or None if only the connection's limit applies.
    ``changes`` says whether a request of an API that normally reads would change something now. Such a request runs
    alone.
    ``needs``: what a client must be allowed to do for any request of this API. Others are answered by ``fail``.
    ``asks``: what ``handle`` asks for parts of the request.
    """

    key: int
    name: str
    versions: range
    handle: Callable[[Call], Work | None]
    fail: Callable[[Call, ErrorCode], None]
    order: Order = Order.ALONE
    largest: Callable[[GatewaySettings], int | None] = lambda settings: settings.max_control_request_bytes
    changes: Callable[[Call], bool] = lambda call: False
    needs: Ask | None = None
    asks: tuple[Ask, ...] = ()
