"""Enforces client quotas: measures what clients use, and determines for how long they are throttled.

Each gateway enforces its share of a quota, which is the quota divided by the number of registered gateways. There is no
common counter.

A client that exceeds a quota is answered at once, and nothing more is read from its connection for the throttle time.
All connections to which the same quota applies share what they use.
"""

import time
from collections.abc import Callable, Hashable

import trio

from kafscale.metadata.members import Members
from kafscale.metadata.quotas import QuotaCatalog
from kafscale.security.principals import Principal
from kafscale.security.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Applied,
    parse_address,
)
from kafscale.security.rates import WINDOW_SECONDS, Rate, TokenBucket
from services.gateway.counters import GatewayCounters
from services.gateway.quotas.sensors import Sensors, short_name

_LONGEST_MS = 1000
"""As in Kafka, the maximum throttle time for request_percentage, and the maximum delay of a connection."""


class Quotas:
    """The quotas of one gateway and what its clients use of them.

    ``now`` returns seconds of Trio's clock, ``processor`` seconds of a clock that measures how long handlers run.
    """

    def __init__(
        self,
        catalog: QuotaCatalog,
        gateways: Members,
        counters: GatewayCounters,
        *,
        now: Callable[[], float] = trio.current_time,
        processor: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._catalog = catalog
        self._gateways = gateways
        self._counters = counters
        self._rates = Sensors(Rate)
        self._buckets = Sensors(TokenBucket)
        # Apart, because clients that have not authenticated fill it.
        self._addresses = Sensors(Rate)
        self.now = now
        self.processor = processor

    @property
    def limit_clients(self) -> bool:
        """Whether there is any quota of users or client ids. Otherwise no request is measured."""
        return self._catalog.table.limits_clients

    @property
    def limit_addresses(self) -> bool:
        """Whether there is any quota of addresses."""
        return self._catalog.table.limits_addresses

    def charge(self, principal: Principal, client_id: str | None, mute: Callable[[float], None]) -> "Charge":
        """Begin to measure a request of a client.

        ``mute`` is called with the time, in Trio's clock, until which nothing more may be read from its connection.
        """
        return Charge(self, principal.name, client_id or "", mute)

    def connection_delay_ms(self, host: str) -> int:
        """Count a new connection of ``host``, which is an address with a leading slash.

        Return 0, or, if it exceeds the quota of its address, the delay after which it is closed. It is then not
        counted.
        """
        try:
            address = parse_address(host.removeprefix("/"))
        except ValueError:
            return 0
        quota = self._catalog.table.of_address(address)
        if quota is None:
            return 0
        now_ms = self._now_ms()
        rate = self._addresses.get(address, quota, now_ms)
        rate.record(1, now_ms)
        delay = min(rate.throttle_ms(quota / self._shares, now_ms), _LONGEST_MS)
        if delay:
            rate.record(-1, now_ms)
        return delay

    def find(self, key: str, user: str, client_id: str) -> Applied | None:
        return self._catalog.table.of_client(key, user, client_id)

    def bound(self, quota: Applied) -> float:
        """This gateway's share of a quota."""
        return quota.rate / self._shares

    def record(self, key: str, quota: Applied, value: float) -> int:
        """Record what a client used. Return the throttle time in ms."""
        now_ms = self._now_ms()
        rate = self._rates.get(*_sensor_keys(key, quota), now_ms)
        rate.record(value, now_ms)
        return rate.throttle_ms(self.bound(quota), now_ms)

    def total(self, key: str, quota: Applied) -> float:
        """What was recorded in the window."""
        now_ms = self._now_ms()
        return self._rates.get(*_sensor_keys(key, quota), now_ms).total(now_ms)

    def take(self, quota: Applied, partitions: int, *, strict: bool) -> tuple[bool, int]:
        """Count partitions that are created or deleted. Return whether they may be, and the throttle time in ms.

        With ``strict``, they may not be while more were than the quota allows.
        """
        now_ms, bound = self._now_ms(), self.bound(quota)
        bucket = self._buckets.get(*_sensor_keys(CONTROLLER_MUTATION_RATE, quota), now_ms)
        owed = bucket.throttle_ms(bound, now_ms) if strict else 0
        if owed:
            return False, owed
        bucket.take(partitions, bound, now_ms)
        return True, 0 if strict else bucket.throttle_ms(bound, now_ms)

    def throttled(self, key: str, quota: Applied, throttle_ms: int) -> None:
        """Count a throttled request."""
        self._counters.throttled(key, str(quota.entity), throttle_ms / 1000)

    @property
    def _shares(self) -> int:
        return max(1, len(self._gateways.view.placed))

    def _now_ms(self) -> int:
        return round(self.now() * 1000)


def _sensor_keys(key: str, quota: Applied) -> tuple[Hashable, Hashable]:
    """The keys of the sensor of those who share a quota, and of the one for more of them than can be measured."""
    user, client_id = quota.shared_by
    return (key, short_name(user), short_name(client_id)), (key, quota.entity)


class Charge:
    """What one request is charged. Each method mutes the connection if the client has exceeded the quota."""

    __slots__ = ("_began", "_client_id", "_mute", "_over", "_quotas", "_seconds", "_settled", "_until", "_user")

    def __init__(self, quotas: Quotas, user: str, client_id: str, mute: Callable[[float], None]) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._mute = mute
        self._until = 0.0
        # The quotas that the client has exceeded, by key, each with the throttle time in ms.
        self._over: dict[str, tuple[Applied, int]] = {}
        # The time for which the handler ran and that was not charged yet, and since when it has been running.
        self._seconds = 0.0
        self._began: float | None = None
        self._settled = False

    def produced(self, size: int) -> None:
        """Charge a Produce request of ``size`` bytes."""
        quota = self._find(PRODUCER_BYTE_RATE)
        if quota is not None:
            self._throttle(PRODUCER_BYTE_RATE, quota, self._quotas.record(PRODUCER_BYTE_RATE, quota, size))

    def most_to_fetch(self, limit: int) -> int:
        """The maximum bytes of a Fetch response: ``limit``, or what the quota allows within its window."""
        quota = self._find(CONSUMER_BYTE_RATE)
        return limit if quota is None else max(1, min(limit, int(self._quotas.bound(quota) * WINDOW_SECONDS)))

    def fetched(self, size: int) -> bool:
        """Charge ``size`` bytes of records. Return False if they must not be sent, and are not charged."""
        quota = self._find(CONSUMER_BYTE_RATE)
        if quota is None or not size:
            return True
        # A batch that exceeds the quota alone would never be sent otherwise.
        alone = self._quotas.total(CONSUMER_BYTE_RATE, quota) <= 0
        throttle_ms = self._quotas.record(CONSUMER_BYTE_RATE, quota, size)
        self._throttle(CONSUMER_BYTE_RATE, quota, throttle_ms)
        if not throttle_ms or alone:
            return True
        self._quotas.record(CONSUMER_BYTE_RATE, quota, -size)
        return False

    def changed(self, partitions: int, *, strict: bool) -> bool:
        """Charge partitions that are created or deleted. Return False if they must not be, which needs ``strict``."""
        quota = self._find(CONTROLLER_MUTATION_RATE)
        if quota is None:
            return True
        allowed, throttle_ms = self._quotas.take(quota, partitions, strict=strict)
        self._throttle(CONTROLLER_MUTATION_RATE, quota, throttle_ms)
        return allowed

    def resumed(self) -> None:
        """To be called when the handler of the request begins to run, or runs again after it has waited."""
        self._began = self._quotas.processor()

    def paused(self) -> None:
        """To be called when the handler waits or has ended. What it did after `settle` is charged without effect on
        this request, as in Kafka."""
        self._stop()
        if self._settled:
            self._charge_time()

    def settle(self) -> int:
        """Charge the time until the response. Return the throttle time for the response in ms.

        Called again, it charges nothing.
        """
        if not self._settled:
            self._settled = True
            if self._began is not None:
                self._stop()
                self.resumed()
            quota = self._find(REQUEST_PERCENTAGE)
            if quota is not None:
                self._throttle(REQUEST_PERCENTAGE, quota, min(self._charge_time(), _LONGEST_MS))
            for key, (exceeded, throttle_ms) in self._over.items():
                self._quotas.throttled(key, exceeded, throttle_ms)
        return max(0, round((self._until - self._quotas.now()) * 1000))

    def _stop(self) -> None:
        if self._began is not None:
            self._seconds += self._quotas.processor() - self._began
            self._began = None

    def _charge_time(self) -> int:
        quota = self._find(REQUEST_PERCENTAGE)
        seconds, self._seconds = self._seconds, 0.0
        return 0 if quota is None else self._quotas.record(REQUEST_PERCENTAGE, quota, 100 * seconds)

    def _find(self, key: str) -> Applied | None:
        return self._quotas.find(key, self._user, self._client_id)

    def _throttle(self, key: str, quota: Applied, throttle_ms: int) -> None:
        if throttle_ms:
            self._until = max(self._until, self._quotas.now() + throttle_ms / 1000)
            self._mute(self._until)
            self._over[key] = quota, throttle_ms
