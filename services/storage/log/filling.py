"""Whether the records of a partition wait until their buffer is full, because its segment then makes them durable.

Records that are in the intake when their buffer is full are stored twice. If producers send a full buffer without an
acknowledgement, waiting for it saves the first copy. If they stop before, they have waited in vain, so some later
buffers of the partition are not waited for.
"""

from kafscale.attempts import Attempts
from services.storage.log.buffer import WriteBuffer

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.05
"""How long a full buffer is waited for after a batch."""
_PAUSES = 3
"""How many times the usual time between batches that is."""
_LONGEST_FILL = 0.25
"""How long a full buffer is waited for in all."""
_KEPT = 0.8
"""With each batch, so much of the longest time between batches remains."""


class Filling:
    """The buffers of one partition that were waited for. Times are Trio's, in seconds. No I/O.

    ``of_all``: how it went with all partitions of the instance, because most have the same kind of producers.
    """

    __slots__ = ("_arrived", "_attempts", "_gap", "_latest", "_may_go_on", "_offset", "until")

    def __init__(self) -> None:
        self.until = 0.0
        """Until when the open buffer is waited for, unless more arrives."""
        self._latest = 0.0
        self._arrived = 0.0
        self._gap = 0.0
        self._offset = 0
        self._may_go_on = False
        self._attempts = Attempts(factor=8, most=511)

    def arrived(self, now: float, *, may_go_on: bool) -> None:
        """Note that a large batch arrived, or one for a buffer that is waited for.

        ``may_go_on``: producers may send more before it is acknowledged.
        """
        self._gap = max(min(now - self._arrived, _LONGEST_PAUSE), _KEPT * self._gap)
        self._arrived = now
        self._may_go_on = may_go_on
        self._go_on()

    def is_due(self, buffer: WriteBuffer, of_all: Attempts) -> bool:
        """Whether to wait until the open buffer is full."""
        is_possible = self._may_go_on and buffer.may_be_bulk
        return is_possible and self._attempts.is_due() and of_all.is_due()

    def begin(self, now: float, buffer: WriteBuffer, longest: float) -> None:
        """Wait for the open buffer, no more than ``longest`` seconds."""
        self._offset = buffer.open_offset
        self._latest = now + min(longest, _LONGEST_FILL)
        self._arrived = now
        self._go_on()

    def end(self, buffer: WriteBuffer, of_all: Attempts) -> None:
        """Note that the buffer is full, or is waited for no longer."""
        is_full = buffer.is_bulk
        for attempts in (self._attempts, of_all):
            if is_full:
                attempts.succeeded()
            elif buffer.open_offset == self._offset:
                attempts.failed()

    def _go_on(self) -> None:
        pause = min(max(_PAUSES * self._gap, _SHORTEST_PAUSE), _LONGEST_PAUSE)
        self.until = min(self._latest, self._arrived + pause)
