"""How often the intake may put an object, because a bucket charges for each request, and each costs CPU time."""

from kafscale.returning import Returning

_LONGEST_WAIT = 0.05
_WEIGHT = 8
"""The last put counts 1/_WEIGHT in the average duration."""


class Pace:
    """A token bucket: ``per_second`` puts, and up to ``burst`` at once after a pause. 0 per second: no limit.

    With a limit, what arrives during a put shares the next one: that begins when no put is on its way, or twice the
    usual duration of a put after the last one began, at most 50 ms. Times are Trio's, in seconds. No I/O.

    After a put, the next one also waits for producers that send the next records when the last ones are acknowledged:
    until as many appends wait as were acknowledged, at most ``gather`` seconds and no longer than the put took
    (`Returning`).
    """

    def __init__(self, per_second: float, burst: int, *, gather: float, now: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._gather = gather if per_second else 0.0
        self._tokens = float(burst)
        self._as_of = now
        self._last_begun = now
        self._put_seconds = 0.0
        self._returning = Returning()

    @property
    def expected(self) -> int:
        """The number of appends that the next put waits for; 0 if it does not wait for any."""
        return self._returning.expected

    def tokens(self, now: float) -> float:
        """Return the tokens left. It is negative after puts without a token."""
        if not self._per_second:
            return float(self._burst)
        return min(self._burst, self._tokens + (now - self._as_of) * self._per_second)

    def delay(self, now: float, *, others: bool, large: bool, gathered: bool) -> float:
        """Return in how many seconds the next put may begin. ``others``: another one is on its way.

        A ``large`` one needs no token. ``gathered``: it needs to wait for no more appends.
        """
        if not self._per_second:
            return 0.0
        for_token = 0.0 if large else (1 - self.tokens(now)) / self._per_second
        to_share = self._last_begun + min(2 * self._put_seconds, _LONGEST_WAIT) - now if others else 0.0
        to_gather = 0.0 if gathered else self._returning.until - now
        return max(0.0, for_token, to_share, to_gather)

    def began(self, now: float, *, large: bool, gathered: bool) -> None:
        """Take the token of a put, unless it is ``large``, whether there is one or not: at most one put is owed."""
        self._last_begun = now
        if self._per_second and not large:
            self._tokens, self._as_of = max(self.tokens(now) - 1, -1.0), now
        self._returning.began(gathered=gathered)

    def ended(self, seconds: float) -> None:
        """Note how long a put took."""
        self._put_seconds += (seconds - self._put_seconds) / _WEIGHT if self._put_seconds else seconds

    def acknowledged(self, now: float, appends: int, *, waiting: int, seconds: float) -> None:
        """Note that ``appends`` became durable by a put of ``seconds`` while ``waiting`` others wait for the next."""
        if self._gather:
            self._returning.answered(now, appends, waiting=waiting, seconds=min(self._gather, seconds))
