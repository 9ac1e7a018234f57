"""The counters of the operator."""

from collections import Counter

from kafscale.telemetry import Histogram


class OperatorCounters:
    """Counters that the components of the operator increment."""

    def __init__(self) -> None:
        self.leading = False
        self.reconciled: Counter[tuple[str, str]] = Counter()  # by kind and outcome
        self.seconds = Histogram()
        self.actions: Counter[str] = Counter()
        self.requests: Counter[tuple[str, ...]] = Counter()  # to the API server, by verb and status code
        self.watches: Counter[str] = Counter()  # started, by kind
        self.events_lost = 0
        self.failing = ""
        """The error of the last request to the API server, empty if it was answered."""
