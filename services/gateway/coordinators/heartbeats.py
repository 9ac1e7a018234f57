"""Heartbeats of many members that share calls to one coordinator."""

from collections.abc import Awaitable, Callable, Sequence

from kafscale.errors import Unavailable
from kafscale.v1.coordinator_pb2 import HeartbeatReply, HeartbeatRequest, HeartbeatResult, MemberHeartbeat
from services.gateway.gatherer import Gatherer

CALLS_IN_FLIGHT = 4
_MAX_BYTES = 1 << 20
_LEAST_BYTES = 1 << 10
"""What a heartbeat counts at least, so that a call has at most 1,024."""

HeartbeatGatherer = Gatherer[MemberHeartbeat, HeartbeatResult]


def heartbeat_gatherer(call: Callable[[HeartbeatRequest], Awaitable[HeartbeatReply]]) -> HeartbeatGatherer:
    """Return a gatherer of heartbeats. ``call`` makes one call."""

    async def send(beats: list[MemberHeartbeat]) -> Sequence[HeartbeatResult]:
        results = (await call(HeartbeatRequest(heartbeats=beats))).results
        if len(results) != len(beats):
            raise Unavailable(f"{len(results)} results for {len(beats)} heartbeats")
        return results

    return Gatherer(
        send, size=lambda beat: max(beat.ByteSize(), _LEAST_BYTES), max_size=_MAX_BYTES, calls=CALLS_IN_FLIGHT
    )
