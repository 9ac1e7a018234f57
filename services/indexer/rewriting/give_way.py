"""Rewrites give way to the other work of the process, such as that of storage in the one-process mode."""

import trio

_TIMES = 8
_LONGEST_SECONDS = 0.02


async def give_way() -> None:
    """Wait _TIMES as long as a pass of the event loop takes, which is longer if the process is busy."""
    began = trio.current_time()
    await trio.lowlevel.checkpoint()
    await trio.sleep(min(_TIMES * (trio.current_time() - began), _LONGEST_SECONDS))
