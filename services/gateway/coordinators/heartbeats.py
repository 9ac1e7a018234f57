"""Heartbeats of many members on their way to one coordinator: a call is dear, a heartbeat is not.

What arrives while as many calls are under way as may be waits for the next one.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from kafscale.errors import KafscaleError, Unavailable
from kafscale.v1.coordinator_pb2 import HeartbeatReply, HeartbeatRequest, HeartbeatResult, MemberHeartbeat

CALLS_IN_FLIGHT = 4
_MOST_GATHERED = 1000
_GATHERED_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class _Waiting:
    beat: MemberHeartbeat
    done: trio.Event = field(default_factory=trio.Event)
    result: HeartbeatResult | None = None
    # Its connection has gone, or its time is over: nobody waits for it.
    given_up: bool = False


class HeartbeatGatherer:
    """``call`` makes one call. `run` must be running, `CALLS_IN_FLIGHT` times at most.

    No more wait than connections have requests under way.
    """

    def __init__(self, call: Callable[[HeartbeatRequest], Awaitable[HeartbeatReply]]) -> None:
        self._call = call
        self._waiting: deque[_Waiting] = deque()
        self._arrived = trio.Event()

    async def heartbeat(self, beat: MemberHeartbeat) -> HeartbeatResult:
        """Raises Unavailable."""
        one = _Waiting(beat)
        self._waiting.append(one)
        self._arrived.set()
        try:
            await one.done.wait()
        finally:
            one.given_up = True
        if one.result is None:
            raise Unavailable("a call with several heartbeats has no answer")
        return one.result

    async def run(self) -> None:
        """Make calls until cancelled."""
        while True:
            while not self._waiting:
                await self._arrived.wait()
            gathered = self._take()
            try:
                if gathered:
                    await self._send(gathered)
            finally:
                for one in gathered:
                    one.done.set()

    def _take(self) -> list[_Waiting]:
        taken: list[_Waiting] = []
        size = 0
        while self._waiting and len(taken) < _MOST_GATHERED and size < _GATHERED_BYTES:
            one = self._waiting.popleft()
            if not one.given_up:
                taken.append(one)
                size += one.beat.ByteSize()
        if not self._waiting:
            self._arrived = trio.Event()
        return taken

    async def _send(self, gathered: list[_Waiting]) -> None:
        try:
            results = (await self._call(HeartbeatRequest(heartbeats=[one.beat for one in gathered]))).results
        except KafscaleError:
            return
        if len(results) == len(gathered):
            for one, result in zip(gathered, results, strict=True):
                one.result = result
