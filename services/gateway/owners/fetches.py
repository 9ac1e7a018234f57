"""Fetches of many connections that share calls to one storage instance.

Only fetches that the owner answers from memory share calls, because one that reads from the object store would delay
the others.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from kafscale.errors import KafscaleError, Unavailable
from kafscale.v1.storage_pb2 import FetchReply, FetchRequest, PartitionFetch, PartitionFetched
from services.gateway.gatherer import Gatherer

_CALLS_IN_FLIGHT = 2
_MAX_BYTES = 16 << 20
_LEAST_BYTES = 1 << 20
"""What a fetch counts at least, because one batch is returned whole whatever the limit."""


class GatheredFetch(NamedTuple):
    """Partitions of one Fetch request and the byte limit of the request."""

    fetches: list[PartitionFetch]
    max_bytes: int


Send = Callable[[list[GatheredFetch]], Awaitable[Sequence[Sequence[PartitionFetched] | None]]]


def fetch_gatherer(
    call: Callable[[FetchRequest], Awaitable[FetchReply]], stream_id: Callable[[], str]
) -> Gatherer[GatheredFetch, Sequence[PartitionFetched]]:
    """Return a gatherer whose answers have a result for each partition. ``call`` makes one call."""

    async def send(requests: list[GatheredFetch]) -> Sequence[Sequence[PartitionFetched] | None]:
        limits = [one.max_bytes for one in requests]
        message = FetchRequest(stream_id=stream_id(), max_bytes=limits[0], more_max_bytes=limits[1:])
        for number, one in enumerate(requests):
            for fetch in one.fetches:
                fetch.group = number
            message.fetches.extend(one.fetches)
        try:
            results = (await call(message)).results
        except Unavailable:
            raise
        except KafscaleError:
            # Together the requests may be too large for one message.
            if len(requests) == 1:
                raise
            return [answer for one in requests for answer in await _alone(send, one)]
        if len(results) != len(message.fetches):
            raise Unavailable(f"{len(results)} results for {len(message.fetches)} fetches")
        answers, position = [], 0
        for one in requests:
            answers.append(results[position : position + len(one.fetches)])
            position += len(one.fetches)
        return answers

    return Gatherer(
        send,
        size=lambda one: max(one.max_bytes, _LEAST_BYTES),
        max_size=_MAX_BYTES,
        calls=_CALLS_IN_FLIGHT,
    )


async def _alone(send: Send, one: GatheredFetch) -> Sequence[Sequence[PartitionFetched] | None]:
    try:
        return await send([one])
    except KafscaleError:
        return [None]
