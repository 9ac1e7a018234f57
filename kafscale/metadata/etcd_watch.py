"""A watch on etcd that survives connections and members: it resumes after the last revision seen.

An etcd that has not reached that revision was restored from older data. It would assign those revisions again to other
changes, and send nothing until then. So each stream begins with a linearizable read, which no lagging member can answer
with an older revision.
"""

from collections import deque
from contextlib import AsyncExitStack

import grpc
import trio

from kafscale.errors import Refused, Unavailable
from kafscale.etcdpb import etcd_pb2 as pb
from kafscale.metadata.etcd_client import EtcdClient, Member
from kafscale.metadata.etcd_errors import ReplyTooLarge, TokenRefused, error_of
from kafscale.metadata.etcd_wire import RANGE, WATCH, batches, prefix_range
from kafscale.metadata.interface import Compacted, Event
from kafscale.rpc.interface import MessageStream


class EtcdWatch:
    """See `kafscale.metadata.interface.Watch`. Raises Unavailable only if the store was closed."""

    def __init__(self, client: EtcdClient, prefix: str, from_revision: int) -> None:
        self._client = client
        self._range = prefix_range(prefix)
        self._from_revision = max(from_revision, 1)  # etcd's 0 is "from now on"
        self._ready: deque[tuple[Event, ...]] = deque()
        self._open: MessageStream[pb.WatchResponse] | None = None
        self._member: Member | None = None
        self._token = ""
        self._closing = AsyncExitStack()

    async def next(self) -> tuple[Event, ...]:
        while not self._ready:
            self._take(await self._receive())
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Cancel the watch, also in etcd."""
        self._open = None
        await self._closing.aclose()

    async def _receive(self) -> pb.WatchResponse:
        pauses = self._client.pauses()
        while True:
            member = self._client.current
            try:
                with self._client.while_current(member):
                    reply = await (await self._stream(member)).receive()
                    _check(reply)
                    return reply
                # The member is no longer current: try the next one at once.
                pause = 0.0
            except TokenRefused as error:
                await self.aclose()
                self._client.renew_token(self._token, error)
                pause = pauses.next()
            except (Compacted, Refused, ReplyTooLarge) as error:
                await self.aclose()
                if isinstance(error, ReplyTooLarge):
                    raise Compacted(f"the missed changes exceed the maximum message size: {error}") from error
                raise
            except Unavailable:
                if self._client.closed:
                    raise
                self._client.leave(member)
                pause = pauses.next()
            await self.aclose()
            await trio.sleep(pause)

    async def _stream(self, member: Member) -> MessageStream[pb.WatchResponse]:
        """Return the open stream to ``member``, or a new one."""
        if self._open is None or self._member is not member:
            await self.aclose()
            await self._check_newest()
            metadata = await self._client.credentials(member)
            self._token = self._client.token
            key, range_end = self._range
            create = pb.WatchCreateRequest(
                key=key, range_end=range_end, start_revision=self._from_revision, progress_notify=True
            )
            stream = await self._closing.enter_async_context(member.channel.exchange(WATCH, metadata=metadata))
            await stream.send(pb.WatchRequest(create_request=create))
            self._member, self._open = member, stream
        return self._open

    async def _check_newest(self) -> None:
        """Raise Compacted if etcd's revision is lower than one seen before."""
        key, range_end = self._range
        reply = await self._client.call(RANGE, pb.RangeRequest(key=key, range_end=range_end, limit=1), repeatable=True)
        if reply.header.revision < self._from_revision - 1:
            raise Compacted(
                f"etcd was restored: its revision is {reply.header.revision} and was {self._from_revision - 1}"
            )

    def _take(self, reply: pb.WatchResponse) -> None:
        if reply.events:
            self._ready.extend(batches(reply.events))
            self._from_revision = reply.events[-1].kv.mod_revision + 1
        elif not reply.created:
            # A progress notification: no changes for this watch up to this revision.
            self._from_revision = max(self._from_revision, reply.header.revision + 1)


def _check(reply: pb.WatchResponse) -> None:
    if reply.compact_revision:
        raise Compacted(f"the oldest revision that can be watched is {reply.compact_revision}")
    if reply.canceled:
        raise error_of(grpc.StatusCode.UNKNOWN, reply.cancel_reason)
