"""What a gateway counts of its work."""

from collections import Counter
from collections.abc import Iterable

from kio.schema.errors import ErrorCode


class GatewayFigures:
    """Plain numbers that the gateway's parts add to."""

    def __init__(self) -> None:
        self.connections = 0
        self.accepted = self.turned_away = 0
        self.received_bytes = self.sent_bytes = 0
        self.requests: Counter[str] = Counter()  # by API
        self.broken: Counter[str] = Counter()  # by API
        self.errors: Counter[tuple[str, str]] = Counter()  # by API and Kafka's name of the error

    def answered(self, api: str, codes: Iterable[int]) -> None:
        """The error codes that a request's partitions are answered with; 0 is none."""
        for code in codes:
            if code:
                self.errors[api, ErrorCode(code).name] += 1
