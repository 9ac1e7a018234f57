"""The counters of a gateway."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from kafscale.telemetry import Histogram

MOST_ENTITIES = 1000
"""The maximum number of quota entities whose throttled requests are counted. Those of others are counted together."""
OTHER_ENTITIES = "other"
UNSPOKEN = -1
"""Clients may send any version of ApiVersions. All unsupported versions are counted together."""


class GatewayCounters:
    """Counters that the gateway's components update. APIs are identified by key, errors by code."""

    def __init__(self) -> None:
        self.connections = 0
        self.most_connections = 0
        self.accepted = self.turned_away = self.handshakes_failed = self.connections_throttled = 0
        self.received_bytes = self.sent_bytes = 0
        self.requests: Counter[tuple[int, int]] = Counter()  # by API and version
        self.broken: Counter[int] = Counter()  # by API
        self.errors: Counter[tuple[int, int]] = Counter()  # by API and code
        self.seconds: dict[int, Histogram] = {}  # by API
        self.throttled_requests: Counter[tuple[str, ...]] = Counter()  # by quota and entity
        self.throttle_seconds: defaultdict[tuple[str, ...], float] = defaultdict(float)  # by quota and entity

    def answered(self, api_key: int, codes: Iterable[int]) -> None:
        """Count the error codes of a response. 0 means no error and is not counted."""
        for code in codes:
            if code:
                self.errors[api_key, code] += 1

    def throttled(self, quota: str, entity: str, seconds: float) -> None:
        """Count a throttled request. ``quota`` is the key of the quota of ``entity`` that the client exceeded."""
        if (quota, entity) not in self.throttled_requests and len(self.throttled_requests) >= MOST_ENTITIES:
            entity = OTHER_ENTITIES
        self.throttled_requests[quota, entity] += 1
        self.throttle_seconds[quota, entity] += seconds

    def took(self, api_key: int, seconds: float) -> None:
        """Record the time from a request's last byte until its response was ready."""
        histogram = self.seconds.get(api_key)
        if histogram is None:
            histogram = self.seconds[api_key] = Histogram()
        histogram.observe(seconds)


def error_codes(reply: object) -> Iterator[int]:
    """Yield every ``error_code`` of a response to be encoded by `kafscale.kafka.codec`, including nested ones."""
    for name in getattr(reply, "__dataclass_fields__", ()):
        value = getattr(reply, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list | tuple) and value and hasattr(value[0], "__dataclass_fields__"):
            for each in value:
                yield from error_codes(each)
