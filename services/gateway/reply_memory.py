"""Limits the bytes of Fetch responses that wait to be sent, over all connections."""


class ReplyMemory:
    """Counts record bytes from the time they are requested from storage until they are sent.

    When the limit is reached, no request waits. Each Fetch still gets one batch, so a few clients that do not read
    cannot block all others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @property
    def room(self) -> int:
        return max(0, self._limit - self.used)
