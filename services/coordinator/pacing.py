"""The write rate limit of each group. Writes beyond it wait, and share transactions when they are stored."""

_MOST_GROUPS = 10_000


class Pacing:
    """Limits each group to bursts of ``burst_bytes`` and a sustained ``bytes_per_second``. Times are in seconds.

    The only state of a group is the time at which the sustained rate has covered all its writes.
    """

    def __init__(self, bytes_per_second: int, burst_bytes: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._burst_seconds = burst_bytes / bytes_per_second
        self._paid: dict[str, float] = {}

    def wrote(self, group_id: str, size: int, now: float) -> None:
        if len(self._paid) >= _MOST_GROUPS:
            self._paid = {group: at for group, at in self._paid.items() if at > now}
        self._paid[group_id] = max(self._paid.get(group_id, now), now) + size / self._bytes_per_second

    def wait(self, group_id: str, now: float) -> float:
        """Return how long the group's next write has to wait, 0 if it need not."""
        return max(self._paid.get(group_id, now) - now - self._burst_seconds, 0.0)
