"""Rewrites parts of logs: does all IO with the object store, and reports what was stored."""

import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import structlog
import trio

from kafscale import paths
from kafscale.errors import CorruptData, KafscaleError, Unavailable
from kafscale.objects.interface import ObjectNotFound, ObjectStore
from kafscale.objects.puts import put_own
from kafscale.records.checksum import Buffer
from kafscale.rewritten.keys import RewrittenKey
from kafscale.v1.common_pb2 import Status
from kafscale.v1.indexer_pb2 import RewriteEvent, RewriteInput, RewriteRequest, RewrittenStep
from services.indexer.counters import IndexerCounters
from services.indexer.errors import check_partition, status_of
from services.indexer.rewriting.io_rate import IoRate
from services.indexer.rewriting.passes import Finished, Read, Store, Wanted, check, inputs_of
from services.indexer.rewriting.read_ahead import ReadAhead
from services.indexer.rewriting.runners import Runner, Work

_PROGRESS_SECONDS = 1.0
_SECRET_BYTES = 32
_LONGEST_PUT_SECONDS = 10.0
_SLOWEST_PUT = 4 << 20
"""An object is sent within so many seconds, and with at least so many bytes per second: a retry must have time, too,
and a store is unhealthy if requests take much longer than their size explains."""
_READ_BACK_BYTES = 2 << 20
"""How much of an object is read back at once if a limit applies, so that other requests wait less."""
_log = structlog.get_logger(__name__)

Send = Callable[[RewriteEvent], Awaitable[None]]


class Rewrites:
    """Runs a bounded number of rewrites at a time. ``runner`` runs what needs no IO."""

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        *,
        most: int,
        read_ahead_bytes: int,
        io_bytes_per_second: int,
        runner: Runner,
        now_ms: Callable[[], int],
        counters: IndexerCounters,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._read_ahead_bytes = read_ahead_bytes
        self._runner = runner
        self._now_ms = now_ms
        self._counters = counters
        self._limiter = trio.CapacityLimiter(most)
        self._rate = IoRate(io_bytes_per_second)

    async def run(self, request: RewriteRequest, send: Send) -> None:
        """Do the steps of a request, and send an event for each, for the progress, and for an error."""
        async with trio.open_nursery() as nursery:
            await self._run(request, send, nursery)
            nursery.cancel_scope.cancel()

    async def _run(self, request: RewriteRequest, send: Send, nursery: trio.Nursery) -> None:
        """``nursery``: for reads of objects that are not asked for yet."""
        kind = "compact" if request.HasField("compaction") else "merge"
        result = "unavailable"
        try:
            check_partition(request.partition.topic, request.partition.partition)
            check(request)
            rates = self._rate, IoRate(request.bytes_per_second, lambda: 1 + self._counters.rewrites_waiting)
            call = _Call(self._store, self._namespace, request, send, rates=rates, counters=self._counters)
            ahead = ReadAhead(inputs_of(request), call.read_input, most_bytes=self._read_ahead_bytes, nursery=nursery)
            async with self._turn(), self._runner(request, secrets.token_bytes(_SECRET_BYTES), self._now_ms()) as work:
                await call.serve(work, ahead)
            result = "done"
        except KafscaleError as error:
            status = status_of(error)
            result = Status.Name(status).lower()
            partition = f"{request.partition.topic}-{request.partition.partition}"
            _log.warning("rewrite failed", partition=partition, kind=kind, error=str(error))
            await send(RewriteEvent(status=status, detail=str(error)))
        except trio.Cancelled:
            result = "cancelled"
            raise
        finally:
            self._counters.rewrites[kind, result] += 1

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        counters = self._counters
        counters.rewrites_waiting += 1
        try:
            await self._limiter.acquire()
        finally:
            counters.rewrites_waiting -= 1
        counters.rewriting += 1
        try:
            yield
        finally:
            counters.rewriting -= 1
            self._limiter.release()


class _Call:
    """The IO of one call, and its events."""

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        request: RewriteRequest,
        send: Send,
        *,
        rates: Sequence[IoRate],
        counters: IndexerCounters,
    ) -> None:
        self._store = store
        self._place = namespace, request.partition.topic, request.partition.partition
        self._send = send
        self._rates = rates
        self._counters = counters
        self._read, self._total = 0, len(inputs_of(request))
        self._reported_at = -math.inf
        # Of the object that was read last, to which damage is attributed.
        self._key = ""

    async def serve(self, work: Work, ahead: ReadAhead) -> None:
        """Do what the work wants until its end. Raises CorruptData, InvalidRequest, ObjectNotFound, Unavailable,
        Refused."""
        answer: Buffer | None = None
        while (wanted := await self._next(work, answer)) is not None:
            if isinstance(wanted, Finished):
                answer = None
                await self._report(wanted.step)
            elif isinstance(wanted, Read):
                answer = await self._input(wanted.input, ahead)
            else:
                key = await self._put(wanted)
                # The object must not be in memory twice.
                del wanted
                answer = await self._read_back(key)

    async def _next(self, work: Work, answer: Buffer | None) -> Wanted | None:
        try:
            return await work.next(answer)
        except CorruptData as error:
            raise CorruptData(f"{self._key}: {error}") from error

    async def _input(self, one: RewriteInput, ahead: ReadAhead) -> bytes:
        self._key = self._key_of(one)
        body = await ahead.get(one)
        self._read += 1
        self._counters.rewrite_read_bytes += len(body)
        if trio.current_time() - self._reported_at >= _PROGRESS_SECONDS:
            await self._report()
        return body

    def _reserve(self, size: int) -> float:
        """Return when the limits allow more, because ``size`` bytes are read or stored now."""
        return max([rate.reserve(size) for rate in self._rates])

    async def read_input(self, one: RewriteInput) -> bytes:
        """Return the object of an input. Raises ObjectNotFound, Unavailable, Refused."""
        key = self._key_of(one)
        try:
            body = (await self._store.get(key)).body
        except ObjectNotFound as error:
            raise ObjectNotFound(f"{key}: missing") from error
        await _until(self._reserve(len(body)))
        return body

    def _key_of(self, one: RewriteInput) -> str:
        if one.HasField("rewritten"):
            return str(RewrittenKey.of(one.rewritten, *self._place))
        return paths.segment_key(*self._place, one.start)

    async def _put(self, wanted: Store) -> str:
        """Store an object, after its index. Return its key."""
        key = RewrittenKey.of(wanted.entry, *self._place)
        for name, body in ((str(key.index), wanted.index), (str(key), wanted.data)):
            end = self._reserve(len(body))
            at_the_limit = max(rate.seconds(len(body)) for rate in self._rates)
            send_seconds = min(at_the_limit, len(body) / _SLOWEST_PUT, _LONGEST_PUT_SECONDS)
            try:
                there = await put_own(self._store, name, body, send_seconds=send_seconds)
            except ObjectNotFound as error:
                raise Unavailable(f"{name}: deleted at the same time") from error
            if there is not None:
                raise Unavailable(f"{name}: another object has this key")
            self._counters.rewrite_written_bytes += len(body)
            await _until(end)
        return str(key)

    async def _read_back(self, key: str) -> Buffer:
        try:
            if not any(rate.limited for rate in self._rates):
                return (await self._store.get(key)).body
            body = bytearray()
            while True:
                piece = await self._store.get_range(key, len(body), _READ_BACK_BYTES)
                body += piece
                await _until(self._reserve(len(piece)))
                if len(piece) < _READ_BACK_BYTES:
                    return body
        except ObjectNotFound as error:
            raise Unavailable(f"{key}: missing, although it was just stored") from error

    async def _report(self, step: RewrittenStep | None = None) -> None:
        await self._send(RewriteEvent(objects_read=self._read, objects_total=self._total, step=step))
        self._reported_at = trio.current_time()


async def _until(time: float) -> None:
    if time > trio.current_time():
        await trio.sleep_until(time)
