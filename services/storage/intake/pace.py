"""How often the intake may put an object, because a bucket charges for each request."""


class Pace:
    """A token bucket: ``per_second`` puts, and up to ``burst`` at once after a pause. 0 per second: no limit.

    Times are Trio's, in seconds. No I/O.
    """

    def __init__(self, per_second: float, burst: int, *, now: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._as_of = now

    def tokens(self, now: float) -> float:
        """Return the tokens left. It is negative after puts without a token."""
        if not self._per_second:
            return float(self._burst)
        return min(self._burst, self._tokens + (now - self._as_of) * self._per_second)

    def delay(self, now: float) -> float:
        """Return in how many seconds the next put may begin."""
        if not self._per_second:
            return 0.0
        return max(0.0, (1 - self.tokens(now)) / self._per_second)

    def take(self, now: float) -> None:
        """Take the token of a put that begins, whether there is one or not: at most one put is owed."""
        if self._per_second:
            self._tokens, self._as_of = max(self.tokens(now) - 1, -1.0), now
