"""The counters of a coordinator, over all its runs."""

from collections import Counter

from kafscale.telemetry import Histogram


class CoordinatorCounters:
    """Counters that the components of a run increment."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()  # by error
        self.writes: Counter[str] = Counter()  # by outcome
        self.write_seconds = Histogram()
        self.load_seconds = Histogram()
        self.take_overs = self.hand_overs = self.fenced = 0
        self.leases_lost = 0
        self.expired_timers = 0
        self.generations = 0
        self.queued_bytes = 0
        self.delayed_writes = 0
