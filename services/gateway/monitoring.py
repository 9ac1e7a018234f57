"""What a gateway shows of itself: its checks and its metrics."""

from collections.abc import Callable

from kafscale.service.operations import Operations
from kafscale.vitals import HEALTHY, Family, Finding, State, by_label, counter, gauge
from services.gateway.coordinators import Coordinators
from services.gateway.figures import GatewayFigures
from services.gateway.registry import APIS
from services.gateway.service import Gateway


def show(gateway: Gateway, figures: GatewayFigures, operations: Operations) -> None:
    """Add them to those of the process. ``figures`` are those that ``gateway`` was made with."""
    operations.health.add("storages", lambda: _storages(gateway), unready_from=State.UNAVAILABLE)
    # Records are produced and fetched without them.
    operations.health.add("coordinators", lambda: _coordinators(gateway.coordinators))
    operations.metrics.add(_families(gateway, figures))


def _storages(gateway: Gateway) -> Finding:
    """Whether the storage instances can be reached."""
    links = list(gateway.links())
    missing = sum(not link.up for link in links)
    if not links:
        return Finding(State.UNAVAILABLE, "no storage instance is registered")
    if not missing:
        return HEALTHY
    state = State.UNAVAILABLE if missing == len(links) else State.DEGRADED
    return Finding(state, f"{missing} of {len(links)} storage instances do not answer")


def _coordinators(coordinators: Coordinators | None) -> Finding:
    """Whether consumer groups are served."""
    links = list(coordinators.links()) if coordinators else []
    silent = sum(not link.answers for link in links)
    if not links:
        return Finding(State.UNAVAILABLE, "no coordinator is registered: consumer groups stand still")
    if not silent:
        return HEALTHY
    state = State.UNAVAILABLE if silent == len(links) else State.DEGRADED
    return Finding(state, f"{silent} of {len(links)} coordinators did not answer when last asked")


def _families(gateway: Gateway, figures: GatewayFigures) -> list[Family]:

    def of_coordinators(read: Callable[[Coordinators], float]) -> Callable[[], float]:
        return lambda: read(gateway.coordinators) if gateway.coordinators else 0

    apis = sorted(api.name for api in APIS.values())
    return [
        gauge("kafscale_gateway_connections", "Open client connections.", lambda: figures.connections),
        counter("kafscale_gateway_connections_total", "Client connections that were taken.", lambda: figures.accepted),
        counter(
            "kafscale_gateway_connections_refused_total",
            "Client connections that were closed at once, because there were too many.",
            lambda: figures.turned_away,
        ),
        counter("kafscale_gateway_received_bytes_total", "Bytes from clients.", lambda: figures.received_bytes),
        counter("kafscale_gateway_sent_bytes_total", "Bytes to clients.", lambda: figures.sent_bytes),
        Family(
            "kafscale_gateway_requests_total",
            "counter",
            "Requests by Kafka API.",
            lambda: by_label(figures.requests, apis),
            ("api",),
        ),
        Family(
            "kafscale_gateway_broken_requests_total",
            "counter",
            "Requests that met a bug in the gateway; each is in the log.",
            lambda: by_label(figures.broken, apis),
            ("api",),
        ),
        Family(
            "kafscale_gateway_errors_total",
            "counter",
            "Partitions that Produce, Fetch and ListOffsets answered with an error, by Kafka's name of it.",
            lambda: {labels: count for labels, count in figures.errors.items()},  # noqa: C416 - its type widens
            ("api", "error"),
        ),
        gauge(
            "kafscale_gateway_held_replies",
            "Appends that storage has taken in and whose commit is waited for.",
            lambda: sum(link.held for link in gateway.links()),
        ),
        gauge(
            "kafscale_gateway_parked_fetches",
            "Fetches that wait for records.",
            lambda: len({waiter for link in gateway.links() for waiter in link.parked}),
        ),
        gauge(
            "kafscale_gateway_fetch_sessions",
            "Readers whose partitions are kept between their requests.",
            lambda: len(gateway.fetch_sessions),
        ),
        gauge(
            "kafscale_gateway_fetch_session_partitions",
            "Partitions in all fetch sessions.",
            lambda: gateway.fetch_sessions.partitions,
        ),
        counter(
            "kafscale_gateway_fetch_sessions_evicted_total",
            "Fetch sessions that made room for others after nobody had used them for two minutes.",
            lambda: gateway.fetch_sessions.evicted,
        ),
        gauge(
            "kafscale_gateway_storages",
            "Storage instances that are registered.",
            lambda: len(list(gateway.links())),
        ),
        gauge(
            "kafscale_gateway_storage_links_up",
            "Storage instances whose commit stream is up.",
            lambda: sum(link.up for link in gateway.links()),
        ),
        gauge(
            "kafscale_gateway_coordinators_silent",
            "Registered coordinators that did not answer when last asked.",
            of_coordinators(lambda coordinators: sum(not link.answers for link in coordinators.links())),
        ),
        Family(
            "kafscale_gateway_coordinator_shards",
            "gauge",
            "Of the 64 parts that groups are divided into, those that each registered coordinator is given.",
            lambda: by_label(gateway.coordinators.shards()) if gateway.coordinators else {},
            ("coordinator",),
        ),
        counter(
            "kafscale_gateway_coordinators_gone_total",
            "Coordinators that were registered and are not any more: stopped, or lost.",
            of_coordinators(lambda coordinators: coordinators.gone),
        ),
    ]
