"""What a gateway counts of its work."""

from collections import Counter
from collections.abc import Iterable, Iterator

from kafscale.telemetry import Histogram

UNSPOKEN = -1
"""Clients may name any version of ApiVersions: those that are not spoken count together."""


class GatewayCounters:
    """Plain numbers that the gateway's parts add to. APIs are told by their keys, errors by their codes."""

    def __init__(self) -> None:
        self.connections = 0
        self.most_connections = 0
        self.accepted = self.turned_away = 0
        self.received_bytes = self.sent_bytes = 0
        self.requests: Counter[tuple[int, int]] = Counter()  # by API and version
        self.broken: Counter[int] = Counter()  # by API
        self.errors: Counter[tuple[int, int]] = Counter()  # by API and code
        self.seconds: dict[int, Histogram] = {}  # by API

    def answered(self, api_key: int, codes: Iterable[int]) -> None:
        """The error codes of a reply; 0 is none."""
        for code in codes:
            if code:
                self.errors[api_key, code] += 1

    def took(self, api_key: int, seconds: float) -> None:
        """From a request's last byte until its reply was made."""
        histogram = self.seconds.get(api_key)
        if histogram is None:
            histogram = self.seconds[api_key] = Histogram()
        histogram.observe(seconds)


def error_codes(reply: object) -> Iterator[int]:
    """Every ``error_code`` of a reply that `kafscale.kafka.codec` encodes, its own and those of what it lists."""
    for name in getattr(reply, "__dataclass_fields__", ()):
        value = getattr(reply, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list | tuple) and value and hasattr(value[0], "__dataclass_fields__"):
            for each in value:
                yield from error_codes(each)
