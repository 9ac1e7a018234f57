"""What the operator counts of its work."""

from collections import Counter

from kafscale.telemetry import Histogram


class OperatorCounters:
    """Plain numbers that its parts add to."""

    def __init__(self) -> None:
        self.leading = False
        self.reconciled: Counter[tuple[str, str]] = Counter()  # by kind and outcome
        self.seconds = Histogram()
        self.actions: Counter[str] = Counter()
        self.requests: Counter[tuple[str, ...]] = Counter()  # to the API server, by verb and status code
        self.watches: Counter[str] = Counter()  # begun, by kind
        self.events_lost = 0
        self.failing = ""
        """Why the API server did not answer the last request; empty: it did."""
