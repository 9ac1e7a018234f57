"""How Kafka measures what quotas limit: rates over a window of samples, and token buckets. Times are in ms.

The rules are those of Apache Kafka's ``Rate``, ``TokenBucket`` and ``QuotaUtils``.
"""

import math
from collections import deque

SAMPLES = 11
"""Kafka's ``quota.window.num``: ten whole samples and the current one."""
SAMPLE_MS = 1000
"""Kafka's ``quota.window.size.seconds``."""
WINDOW_SECONDS = (SAMPLES - 1) * SAMPLE_MS / 1000
"""The shortest time over which a rate is measured."""
IDLE_MS = 3_600_000
"""As in Kafka, what was not used for an hour is forgotten."""


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.value = 0.0


class Rate:
    """A rate per second. At first, the time before counts as time in which nothing was recorded."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES + 1)

    @property
    def idle_from_ms(self) -> int:
        """When all samples will have left the window, unless something is recorded."""
        return self._samples[-1].last_ms + SAMPLES * SAMPLE_MS if self._samples else 0

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1].start_ms >= SAMPLE_MS:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[-1]
        sample.value += value
        sample.last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """The sum of what was recorded in the window."""
        while self._samples and now_ms - self._samples[0].last_ms >= SAMPLES * SAMPLE_MS:
            self._samples.popleft()
        return sum(sample.value for sample in self._samples)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return for how long nothing may be recorded until the rate is ``bound``. 0 if it does not exceed that."""
        total, window_ms = self.total(now_ms), self._window_ms(now_ms)
        rate = total * 1000 / window_ms
        return _rounded((rate - bound) / bound * window_ms) if rate > bound else 0

    def _window_ms(self, now_ms: int) -> int:
        elapsed = now_ms - self._samples[0].start_ms if self._samples else 0
        return elapsed + max(0, SAMPLES - 1 - elapsed // SAMPLE_MS) * SAMPLE_MS


class TokenBucket:
    """Is filled at a rate per second, up to what comes in within all samples. It is full at first."""

    __slots__ = ("_bound", "_filled_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens = math.inf
        self._bound = 0.0
        self._filled_ms = 0

    @property
    def idle_from_ms(self) -> int:
        """When it will be full, unless tokens are taken. At most IDLE_MS after its last use."""
        if not self._bound:
            return 0
        return self._filled_ms + math.ceil(min(IDLE_MS, (self._most() - self._tokens) / self._bound * 1000))

    def take(self, tokens: float, bound: float, now_ms: int) -> None:
        """Take tokens, also if there are fewer."""
        self._fill(bound, now_ms)
        self._tokens -= tokens

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return the time until no token is owed. 0 if none is."""
        self._fill(bound, now_ms)
        return max(1, _rounded(-self._tokens / bound * 1000)) if self._tokens < 0 else 0

    def _fill(self, bound: float, now_ms: int) -> None:
        seconds = (now_ms - self._filled_ms) / 1000
        self._bound = bound
        self._tokens = min(self._most(), self._tokens + bound * seconds)
        self._filled_ms = now_ms

    def _most(self) -> float:
        return SAMPLES * SAMPLE_MS / 1000 * self._bound


def _rounded(ms: float) -> int:
    return math.floor(ms + 0.5)
