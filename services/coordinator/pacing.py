"""How fast one group may write: what it writes beyond that waits, and shares transactions meanwhile."""

_MOST_GROUPS = 10_000


class Pacing:
    """Each group has ``burst_bytes`` at once, and ``bytes_per_second`` in the long run. Times are in seconds.

    Of a group only the time is kept at which all that it wrote is paid for.
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
        """How long the group's next write has to wait; 0: it need not."""
        return max(self._paid.get(group_id, now) - now - self._burst_seconds, 0.0)
