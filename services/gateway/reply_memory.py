"""A bound over all connections: bytes of Fetch replies that wait to be sent."""


class ReplyMemory:
    """Counts record bytes from the moment that they are asked of storage until they are sent.

    When it is used up nobody waits: each Fetch still gets one batch, so that a few clients that do not read cannot
    hold up all others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @property
    def room(self) -> int:
        return max(0, self._limit - self.used)
