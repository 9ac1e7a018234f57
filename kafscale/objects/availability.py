"""The health of the object store (healthy, degraded or unavailable), for operators, readiness and metrics.

No request is refused because of a state: callers always get the store's own answer. The state follows from the share of
failed requests and from the median latency of answered ones, over a sliding window. The time that the bytes may take on
a slow link is subtracted, so that large segments do not count as slow.

A run of requests that are all answered in time, or that all fail, decides without the window, so an outage and its end
are detected within seconds. Without other requests, a small one is sent: often while the state is in doubt, otherwise
rarely.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import trio

from kafscale.errors import KafscaleError
from kafscale.objects.interface import ObjectStore, clocks_agree
from kafscale.objects.metrics import ANSWERS, Request
from kafscale.telemetry import HEALTHY, Family, Finding, State

_SLICES = 12  # of the window
_FEWEST = 10  # with fewer requests, a share is not significant
_FEWEST_ALIKE, _ALIKE_SECONDS = 5, 3.0  # the minimum length of a run of like outcomes
_SLOWEST_BYTES_PER_SECOND = 1 << 20
_PROBE_PAUSE = 0.5
_LEAST_PROBE_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Times in seconds, rates from 0 to 1."""

    window: float = 60.0
    latency_warn: float = 0.5
    latency_crit: float = 3.0
    error_rate_warn: float = 0.2
    error_rate_crit: float = 0.6


class _Tally:
    """Counts of the requests in a slice of the window."""

    __slots__ = ("failed", "fast", "slow", "until", "very_slow")

    def __init__(self, until: float) -> None:
        self.until = until
        self.fast = self.slow = self.very_slow = self.failed = 0


class StoreHealth:
    """A ``Recorder``. ``probe`` must be running. ``clock`` is the clock by which requests are timed."""

    def __init__(self, thresholds: Thresholds, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._limits = thresholds
        self._clock = clock
        self._slices: deque[_Tally] = deque()
        self._in_flight: dict[int, Request] = {}
        self._state = State.HEALTHY
        self._last_error = ""
        # The current run of requests that had like outcomes.
        self._succeeding, self._alike, self._alike_since = True, 0, float("-inf")
        self._last_answer = float("-inf")
        self._last_end = float("-inf")

    def began(self, request: Request) -> None:
        self._in_flight[id(request)] = request

    def ended(self, request: Request) -> None:
        del self._in_flight[id(request)]
        now = request.started + request.seconds
        tally = self._slice(now)
        late = self._lateness(request, request.seconds)
        if request.outcome in ANSWERS:
            good = late < self._limits.latency_warn
            tally.fast += good
            tally.slow += not good
            tally.very_slow += late >= self._limits.latency_crit
            self._last_answer = now
        elif request.outcome != "cancelled" or late >= self._limits.latency_crit:
            good = False
            tally.failed += 1
            self._last_error = request.error if request.outcome != "cancelled" else "no answer"
        else:
            # The caller cancelled it before the store could be expected to answer.
            return
        self._last_end = now
        if good is not self._succeeding or not self._alike:
            self._succeeding, self._alike, self._alike_since = good, 0, now
        self._alike += 1

    def finding(self) -> Finding:
        """Return the current state, which depends on requests and on time. To be called often."""
        found = self._judge()
        self._state = found.state
        return found

    async def probe(self, store: ObjectStore, key: str) -> None:
        """Send a request for ``key`` to ``store`` whenever there are no others, until cancelled.

        This instance must be a recorder of ``store``.
        """
        while True:
            await trio.sleep(_PROBE_PAUSE)
            quiet = self._clock() - self._last_end
            if quiet >= _PROBE_PAUSE and (self._in_doubt or quiet >= self._limits.window / 2):
                with trio.move_on_after(max(_LEAST_PROBE_TIMEOUT, 2 * self._limits.latency_crit)):
                    try:
                        await store.head(key)
                    except KafscaleError:
                        continue  # recorded by `ended`

    def families(self) -> list[Family]:
        return [
            Family(
                "kafscale_s3_failed_ratio",
                "gauge",
                "The share of requests in the health window that failed, from 0 to 1.",
                lambda: {(): self._rates()[0]},
            ),
            Family(
                "kafscale_s3_slow_ratio",
                "gauge",
                "The share of answered requests in the health window that took longer than "
                "KAFSCALE_S3_LATENCY_WARN_MS, from 0 to 1.",
                lambda: {(): self._rates()[1]},
            ),
        ]

    @property
    def _in_doubt(self) -> bool:
        return self._state is not State.HEALTHY or not self._succeeding or self._silence() >= self._limits.latency_warn

    def _judge(self) -> Finding:
        limits, now = self._limits, self._clock()
        silence = self._silence()
        if silence >= limits.latency_crit + _ALIKE_SECONDS:
            return Finding(State.UNAVAILABLE, f"requests are in flight and none was answered for {silence:.0f} s")
        if self._alike >= _FEWEST_ALIKE and now - self._alike_since >= _ALIKE_SECONDS:
            if self._succeeding:
                if self._state is not State.HEALTHY:
                    self._slices.clear()
                return HEALTHY
            if self._last_answer < self._alike_since:
                return Finding(State.UNAVAILABLE, f"no request succeeds: {self._last_error}")
        total, failed, slow, very_slow = self._sums()
        if total < _FEWEST:
            return Finding(self._state, "too few requests to judge" if self._state is not State.HEALTHY else "")
        window, answered = f"in the last {limits.window:g} s", total - failed
        failures = f"{failed} of {total} requests failed {window}, the last one: {self._last_error}"
        if failed >= limits.error_rate_crit * total:
            return Finding(State.UNAVAILABLE, failures)
        if very_slow * 2 >= answered:
            return Finding(State.UNAVAILABLE, f"half of the requests took over {limits.latency_crit:g} s {window}")
        if failed >= limits.error_rate_warn * total:
            return Finding(State.DEGRADED, failures)
        if slow * 2 >= answered:
            return Finding(State.DEGRADED, f"half of the requests took over {limits.latency_warn:g} s {window}")
        return HEALTHY

    def _silence(self) -> float:
        """Return for how long a request has been late without any other being answered, or 0."""
        if not self._in_flight:
            return 0.0
        now = self._clock()
        late = max(self._lateness(request, now - request.started) for request in self._in_flight.values())
        return max(0.0, min(late, now - self._last_answer))

    def _lateness(self, request: Request, seconds: float) -> float:
        """Return its duration less the time that its bytes may take. 0 for deletes, which are many requests each."""
        if request.kind == "delete_many":
            return 0.0
        return seconds - request.size / _SLOWEST_BYTES_PER_SECOND

    def _rates(self) -> tuple[float, float]:
        total, failed, slow, _ = self._sums()
        return (failed / total if total else 0.0), (slow / (total - failed) if total > failed else 0.0)

    def _sums(self) -> tuple[int, int, int, int]:
        """Return the counts of all requests in the window, failed ones, and slow and very slow ones of the rest."""
        while self._slices and self._slices[0].until <= self._clock() - self._limits.window:
            self._slices.popleft()
        failed = sum(tally.failed for tally in self._slices)
        slow = sum(tally.slow for tally in self._slices)
        total = failed + slow + sum(tally.fast for tally in self._slices)
        return total, failed, slow, sum(tally.very_slow for tally in self._slices)

    def _slice(self, now: float) -> _Tally:
        if not self._slices or self._slices[-1].until <= now:
            self._sums()
            self._slices.append(_Tally(now + self._limits.window / _SLICES))
        return self._slices[-1]


def clock_finding(store: ObjectStore) -> Finding:
    """Return whether this machine's clock and the store's agree closely enough for the lifetime of signatures."""
    skew = store.clock_skew_seconds
    if skew is None or clocks_agree(skew):
        return HEALTHY
    return Finding(State.UNAVAILABLE, f"the object store's clock is {skew:+.1f} s off this machine's")
