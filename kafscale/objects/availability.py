"""How well the object store answers: healthy, degraded or unavailable, for people, readiness and metrics.

Nothing is refused because of a state: whoever wants an object asks for it, and gets the store's own answer. What makes
a state is the share of requests that failed, and the time that half of the answered ones took, over a sliding window.
The time that bytes may need on a slow line is left out of it, so that large segments are no illness.

A stretch of requests that all ended alike, all well or all badly, needs no window: so an outage and its end are seen in
seconds. When nobody asks the store anything, a small request is sent: often while there is doubt, seldom otherwise.
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
_FEWEST = 10  # requests, before a share of them means anything
_FEWEST_ALIKE, _ALIKE_SECONDS = 5, 3.0  # of a stretch
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
    """The requests of a slice of the window."""

    __slots__ = ("failed", "fast", "slow", "until", "very_slow")

    def __init__(self, until: float) -> None:
        self.until = until
        self.fast = self.slow = self.very_slow = self.failed = 0


class StoreHealth:
    """A ``Recorder``. ``probe`` must be running; ``clock`` is the one that requests are timed with."""

    def __init__(self, thresholds: Thresholds, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._limits = thresholds
        self._clock = clock
        self._slices: deque[_Tally] = deque()
        self._under_way: dict[int, Request] = {}
        self._state = State.HEALTHY
        self._last_error = ""
        # The stretch of requests that ended alike, up to now.
        self._well, self._alike, self._alike_since = True, 0, float("-inf")
        self._last_answer = float("-inf")
        self._last_end = float("-inf")

    def began(self, request: Request) -> None:
        self._under_way[id(request)] = request

    def ended(self, request: Request) -> None:
        del self._under_way[id(request)]
        now, tally = self._clock(), self._slice()
        late = self._lateness(request, request.seconds)
        if request.outcome in ANSWERS:
            well = late < self._limits.latency_warn
            tally.fast += well
            tally.slow += not well
            tally.very_slow += late >= self._limits.latency_crit
            self._last_answer = now
        elif request.outcome != "cancelled" or late >= self._limits.latency_crit:
            well = False
            tally.failed += 1
            self._last_error = request.error if request.outcome != "cancelled" else "no answer"
        else:
            # Its caller went away before the store had its time.
            return
        self._last_end = now
        if well is not self._well or not self._alike:
            self._well, self._alike, self._alike_since = well, 0, now
        self._alike += 1

    def finding(self) -> Finding:
        """The state now. Asked for often, it changes when the requests say so, and with time."""
        found = self._judge()
        self._state = found.state
        return found

    async def probe(self, store: ObjectStore, key: str) -> None:
        """Ask ``store``, whose requests are told here, for ``key`` when nobody else asks it; until cancelled."""
        while True:
            await trio.sleep(_PROBE_PAUSE)
            quiet = self._clock() - self._last_end
            if quiet >= _PROBE_PAUSE and (self._in_doubt or quiet >= self._limits.window / 2):
                with trio.move_on_after(max(_LEAST_PROBE_TIMEOUT, 2 * self._limits.latency_crit)):
                    try:
                        await store.head(key)
                    except KafscaleError:
                        continue  # `ended` was told

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
        return self._state is not State.HEALTHY or not self._well or self._silence() >= self._limits.latency_warn

    def _judge(self) -> Finding:
        limits, now = self._limits, self._clock()
        silence = self._silence()
        if silence >= limits.latency_crit + _ALIKE_SECONDS:
            return Finding(State.UNAVAILABLE, f"requests are under way and none was answered for {silence:.0f} s")
        if self._alike >= _FEWEST_ALIKE and now - self._alike_since >= _ALIKE_SECONDS:
            if self._well:
                if self._state is not State.HEALTHY:
                    self._slices.clear()
                return HEALTHY
            if self._last_answer < self._alike_since:
                return Finding(State.UNAVAILABLE, f"no request succeeds: {self._last_error}")
        total, failed, slow, very_slow = self._sums()
        if total < _FEWEST:
            return Finding(self._state, "too few requests to say more" if self._state is not State.HEALTHY else "")
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
        """For how long a request has been late without any other being answered; 0: none is."""
        if not self._under_way:
            return 0.0
        now = self._clock()
        late = max(self._lateness(request, now - request.started) for request in self._under_way.values())
        return max(0.0, min(late, now - self._last_answer))

    def _lateness(self, request: Request, seconds: float) -> float:
        """The time it took less the time that its bytes may take; a delete of many keys is many requests."""
        if request.kind == "delete_many":
            return 0.0
        return seconds - request.size / _SLOWEST_BYTES_PER_SECOND

    def _rates(self) -> tuple[float, float]:
        total, failed, slow, _ = self._sums()
        return (failed / total if total else 0.0), (slow / (total - failed) if total > failed else 0.0)

    def _sums(self) -> tuple[int, int, int, int]:
        """All requests of the window, those that failed, and the slow and very slow ones of the others."""
        while self._slices and self._slices[0].until <= self._clock() - self._limits.window:
            self._slices.popleft()
        failed = sum(tally.failed for tally in self._slices)
        slow = sum(tally.slow for tally in self._slices)
        total = failed + slow + sum(tally.fast for tally in self._slices)
        return total, failed, slow, sum(tally.very_slow for tally in self._slices)

    def _slice(self) -> _Tally:
        now = self._clock()
        if not self._slices or self._slices[-1].until <= now:
            self._sums()
            self._slices.append(_Tally(now + self._limits.window / _SLICES))
        return self._slices[-1]


def clock_finding(store: ObjectStore) -> Finding:
    """Whether this machine's clock and the store's agree as far as the life of signatures needs."""
    skew = store.clock_skew_seconds
    if skew is None or clocks_agree(skew):
        return HEALTHY
    return Finding(State.UNAVAILABLE, f"the object store's clock is {skew:+.1f} s off this machine's")
