"""What a Kafka API is to the gateway, and what its handler gets: the border between ``apis/`` and the rest."""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import trio
from kio.schema.errors import ErrorCode

from kafscale.clock import wall_clock_ms
from kafscale.config.listeners import Listener
from kafscale.errors import Refused
from kafscale.kafka import codec
from kafscale.kafka.connection import Request
from kafscale.kafka.wire import Buffer
from kafscale.metadata.outage import Refusal
from kafscale.metadata.ownership import OwnershipMap
from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.topics import TopicCatalog
from kafscale.tracing import Tracer
from services.gateway.brokers import Brokers
from services.gateway.coordinators.links import Coordinators
from services.gateway.counters import GatewayCounters, error_codes
from services.gateway.fetch_sessions import FetchSessions
from services.gateway.intake import Intake
from services.gateway.owners.routing import Router
from services.gateway.owners.traced import TracedBatches
from services.gateway.pauses import Pauses
from services.gateway.reply_memory import ReplyMemory
from services.gateway.settings import GatewaySettings
from services.gateway.topic_cache import TopicCache

Work = Coroutine[Any, Any, None]


def _refusals() -> defaultdict[str, Refusal]:
    return defaultdict(lambda: Refusal("the metadata store refuses what clients ask for"))


@dataclass(slots=True)
class Environment:
    """The parts of the process that handlers use; one for all connections."""

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
    # For frames that are read bit by bit. A client that stops in the middle of one must be closed.
    request_memory: Intake
    reply_memory: ReplyMemory
    fetch_sessions: FetchSessions
    conversions: trio.CapacityLimiter
    pauses: Pauses
    log_requests: bool = False
    counters: GatewayCounters = field(default_factory=GatewayCounters)
    now_ms: Callable[[], int] = field(default=wall_clock_ms)
    stopping: bool = False
    # None: nothing is traced.
    tracer: Tracer | None = None
    traced: TracedBatches = field(default_factory=TracedBatches)
    refusals: defaultdict[str, Refusal] = field(default_factory=_refusals)

    @contextmanager
    def asking_the_store(self, api: str) -> Iterator[None]:
        """Around what an API asks of the metadata store: says what that refuses, and lets it be raised."""
        refusal = self.refusals[api]
        try:
            yield
        except Refused as error:
            refusal.tell(error, api=api)
            raise
        refusal.over()


class Client(Protocol):
    """The connection that a request came in by."""

    @property
    def listener(self) -> Listener:
        """The listener that it came in by."""
        ...

    @property
    def host(self) -> str:
        """Where it came from, as Kafka writes addresses: a slash before it."""
        ...

    def close(self, reason: str) -> None:
        """Close it; what is not answered stays so."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way through a handler."""

    request: Request
    client: Client
    environment: Environment

    @property
    def version(self) -> int:
        return self.request.api_version

    def answer(self, reply: object, *, version: int | None = None) -> None:
        """`reply` with the body that `kafscale.kafka.codec` makes of ``reply`` for the request's version."""
        self.count_errors(reply)
        self.reply(codec.encode_response(self.request.api_key, self.version if version is None else version, reply))

    def count_errors(self, *replies: object) -> None:
        """Of a reply, or of what it lists."""
        for reply in replies:
            self.environment.counters.answered(self.request.api_key, error_codes(reply))

    def reply(self, *body: Buffer) -> None:
        """Answer, once; a call whose connection is gone may be answered like any other."""
        self.request.slot.reply(body)


class Order(Enum):
    """Which requests of the same connection a request may overlap with; it waits for the answers to the others.

    Kafka works on one request of a connection at a time. So whatever changes something has to be done before later
    requests begin. Requests that only read cannot tell whether others do so at the same time.
    """

    ALONE = "none"
    READS = "others that read"
    APPENDS = "other appends, which reach each log in their order"


@dataclass(frozen=True, slots=True)
class Api:
    """One Kafka API in the versions that are implemented in full.

    ``handle`` decodes the request (CorruptData closes the connection), does what needs no waiting, and gives back the
    rest as a coroutine, or None when it has answered or an event elsewhere will. ``fail`` answers a
    request whose handler broke.
    ``largest``: the bytes that a request may have; None: only the connection's own limit holds.
    ``changes``: of an API that reads: whether this request would change something if it began now; it is then alone.
    """

    key: int
    name: str
    versions: range
    handle: Callable[[Call], Work | None]
    fail: Callable[[Call, ErrorCode], None]
    order: Order = Order.ALONE
    largest: Callable[[GatewaySettings], int | None] = lambda settings: settings.max_control_request_bytes
    changes: Callable[[Call], bool] = lambda call: False
