"""The health checks and metrics of a gateway."""

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from kafscale.metadata.members import Members
from kafscale.process.operations import Operations
from kafscale.telemetry import HEALTHY, Family, Finding, State, Values, by_label, counter, gauge
from services.gateway.clients.registry import APIS
from services.gateway.coordinators.links import Coordinators
from services.gateway.counters import MOST_ENTITIES, OTHER_ENTITIES, UNSPOKEN, GatewayCounters
from services.gateway.service import Gateway


def show(gateway: Gateway, counters: GatewayCounters, operations: Operations) -> None:
    """Add the gateway's checks and metrics to the process. ``counters`` are those of ``gateway``."""
    operations.health.add("storages", lambda: _storages(gateway), unready_from=State.UNAVAILABLE)
    # The gateway stays ready without coordinators, because Produce and Fetch do not need them.
    operations.health.add("coordinators", lambda: _coordinators(gateway.coordinators))
    operations.metrics.add(families(counters, lambda: gateway))


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
        return Finding(State.UNAVAILABLE, "no coordinator is registered, so consumer groups make no progress")
    if not silent:
        return HEALTHY
    state = State.UNAVAILABLE if silent == len(links) else State.DEGRADED
    return Finding(state, f"{silent} of {len(links)} coordinators did not answer the last call")


def families(counters: GatewayCounters, gateway: Callable[[], Gateway]) -> list[Family]:
    """Return all metrics. ``gateway`` is called when a metric is read."""
    return [
        *_connection_families(counters),
        *_request_families(counters, gateway),
        *_storage_families(gateway),
        *_coordinator_families(gateway),
    ]


def _connection_families(counters: GatewayCounters) -> list[Family]:
    return [
        gauge("kafscale_gateway_connections", "The number of open client connections.", lambda: counters.connections),
        gauge(
            "kafscale_gateway_connections_limit",
            "The maximum number of client connections: KAFSCALE_MAX_CONNECTIONS, or less if the limit of open files is "
            "too low.",
            lambda: counters.most_connections,
        ),
        counter(
            "kafscale_gateway_connections_total",
            "The number of client connections that were accepted.",
            lambda: counters.accepted,
        ),
        counter(
            "kafscale_gateway_connections_refused_total",
            "The number of client connections that were closed immediately because the limit was reached.",
            lambda: counters.turned_away,
        ),
        counter(
            "kafscale_gateway_tls_handshakes_failed_total",
            "The number of client connections that were closed because their TLS handshake failed.",
            lambda: counters.handshakes_failed,
        ),
        counter(
            "kafscale_gateway_connections_throttled_total",
            "The number of client connections that were closed after a delay because of the quota of their address.",
            lambda: counters.connections_throttled,
        ),
        counter(
            "kafscale_gateway_received_bytes_total",
            "The number of bytes received from clients.",
            lambda: counters.received_bytes,
        ),
        counter(
            "kafscale_gateway_sent_bytes_total", "The number of bytes sent to clients.", lambda: counters.sent_bytes
        ),
    ]


def _request_families(counters: GatewayCounters, gateway: Callable[[], Gateway]) -> list[Family]:
    apis = sorted(api.name for api in APIS.values())
    return [
        Family(
            "kafscale_gateway_requests_total",
            "counter",
            "The number of requests, by Kafka API and version. The version is `other` if this gateway does not support "
            "it.",
            lambda: _by_version(counters),
            ("api", "version"),
        ),
        Family(
            "kafscale_gateway_request_seconds",
            "histogram",
            "The time from a request's last byte until its response was ready. Fetch, JoinGroup and SyncGroup wait by "
            "design.",
            lambda: {(APIS[key].name,): histogram for key, histogram in counters.seconds.items()},
            ("api",),
        ),
        Family(
            "kafscale_gateway_broken_requests_total",
            "counter",
            "The number of requests that failed because of a bug in the gateway. Each one is logged.",
            lambda: by_label({APIS[key].name: count for key, count in counters.broken.items()}, apis),
            ("api",),
        ),
        Family(
            "kafscale_gateway_errors_total",
            "counter",
            "The number of errors in responses, by Kafka's error name. Each partition, group or topic that failed is "
            "counted.",
            lambda: {
                (APIS[key].name, ErrorCode(code).name.upper()): count for (key, code), count in counters.errors.items()
            },
            ("api", "error"),
        ),
        Family(
            "kafscale_gateway_throttled_requests_total",
            "counter",
            "The number of requests whose client exceeded a quota, by the key of the quota and the entity that has it. "
            f"Beyond {MOST_ENTITIES} of them, the entity is `{OTHER_ENTITIES}`.",
            lambda: counters.throttled_requests,
            ("quota", "entity"),
        ),
        Family(
            "kafscale_gateway_throttle_seconds_total",
            "counter",
            "The throttle times of these requests in seconds.",
            lambda: counters.throttle_seconds,
            ("quota", "entity"),
        ),
        gauge(
            "kafscale_gateway_request_memory_bytes",
            "The number of bytes of large requests that are partially received.",
            lambda: gateway().request_memory.used,
        ),
        gauge(
            "kafscale_gateway_request_memory_limit_bytes",
            "The value of KAFSCALE_REQUEST_MEMORY_BYTES.",
            lambda: gateway().settings.request_memory_bytes,
        ),
        gauge(
            "kafscale_gateway_reply_memory_bytes",
            "The size of the responses that are not sent yet, including the data that storage was asked for.",
            lambda: gateway().reply_memory.used,
        ),
        gauge(
            "kafscale_gateway_reply_memory_limit_bytes",
            "The value of KAFSCALE_REPLY_MEMORY_BYTES.",
            lambda: gateway().settings.reply_memory_bytes,
        ),
        gauge(
            "kafscale_gateway_fetch_sessions",
            "The number of fetch sessions.",
            lambda: len(gateway().fetch_sessions),
        ),
        gauge(
            "kafscale_gateway_fetch_session_partitions",
            "The number of partitions in all fetch sessions.",
            lambda: gateway().fetch_sessions.partitions,
        ),
        counter(
            "kafscale_gateway_fetch_sessions_evicted_total",
            "The number of fetch sessions that were evicted for new ones after they had been unused for two minutes.",
            lambda: gateway().fetch_sessions.evicted,
        ),
    ]


def _by_version(counters: GatewayCounters) -> Values:
    return {
        (APIS[key].name, "other" if version == UNSPOKEN else str(version)): count
        for (key, version), count in counters.requests.items()
    }


def _storage_families(gateway: Callable[[], Gateway]) -> list[Family]:
    return [
        gauge(
            "kafscale_gateway_held_replies",
            "The number of appends that were sent to storage and wait for its reply or their commit.",
            lambda: sum(link.held for link in gateway().links()),
        ),
        gauge(
            "kafscale_gateway_parked_fetches",
            "The number of Fetch requests that wait for records.",
            lambda: len({waiter for link in gateway().links() for waiter in link.parked}),
        ),
        gauge(
            "kafscale_gateway_storages",
            "The number of registered storage instances.",
            lambda: len(list(gateway().links())),
        ),
        gauge(
            "kafscale_gateway_storage_links_up",
            "The number of storage instances whose commit stream is up.",
            lambda: sum(link.up for link in gateway().links()),
        ),
        gauge(
            "kafscale_gateway_storages_draining",
            "The number of storage instances that are assigned no partitions because an administrator drained them.",
            lambda: _draining(gateway().parts.storages),
        ),
    ]


def _draining(members: Members) -> int:
    return sum(live.member.draining for live in members.view.present)


def _coordinator_families(gateway: Callable[[], Gateway]) -> list[Family]:

    def of_coordinators(read: Callable[[Coordinators], float]) -> Callable[[], float]:
        def value() -> float:
            coordinators = gateway().coordinators
            return read(coordinators) if coordinators else 0

        return value

    def shards() -> Values:
        coordinators = gateway().coordinators
        return by_label(coordinators.shards()) if coordinators else {}

    return [
        gauge(
            "kafscale_gateway_coordinators_draining",
            "The number of coordinators that are assigned no groups because an administrator drained them.",
            lambda: _draining(gateway().parts.coordinators),
        ),
        gauge(
            "kafscale_gateway_coordinators_silent",
            "The number of registered coordinators that did not answer the last call.",
            of_coordinators(lambda coordinators: sum(not link.answers for link in coordinators.links())),
        ),
        Family(
            "kafscale_gateway_coordinator_shards",
            "gauge",
            "The number of group shards, of 64 in total, that are assigned to each registered coordinator.",
            shards,
            ("coordinator",),
        ),
        counter(
            "kafscale_gateway_coordinators_gone_total",
            "The number of coordinators that are no longer registered because they stopped or were lost.",
            of_coordinators(lambda coordinators: coordinators.gone),
        ),
    ]
