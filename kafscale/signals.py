"""Waking all tasks that wait for the next change."""

import trio


class Signal:
    """Wakes the tasks that wait for it. It remembers nothing: who waits later waits for the next one.

    Unlike a new ``trio.Event`` for each change, it costs almost nothing while nobody waits.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def notify(self) -> None:
        """Wake all tasks that wait now."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()
