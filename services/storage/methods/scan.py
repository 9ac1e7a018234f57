"""Scan: a committed range of one partition, piece after piece as its reader takes them, from any instance."""

from collections.abc import Awaitable, Callable
from functools import partial

import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.paths import segment_key
from kafscale.records.checksum import Buffer
from kafscale.records.errors import CorruptBatch
from kafscale.rpc.bulk import Bulk
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import ScanPiece, ScanRequest
from services.storage.dependencies import Dependencies
from services.storage.log.partition import CommittedLog
from services.storage.log.segments import UNKNOWN_TIME, KnownSegment
from services.storage.methods.known_counts import counted_segments
from services.storage.methods.wanted import count_wanted, has_wanted, is_timed
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.reading.pieces import Piece, read_pieces
from services.storage.run import Run

log = structlog.get_logger()

_LEAST_PIECE = 64 * 1024
_PIECE = 1 << 20
"""Where the reader does not say how large pieces are to be."""

Send = Callable[[ScanPiece | Bulk[ScanPiece]], Awaitable[None]]


async def scan(run: Run, deps: Dependencies, request: ScanRequest, send: Send) -> None:
    """Answer one Scan. Raises Unavailable when its turn does not come in time."""
    settings, counters = deps.settings, deps.counters
    with trio.move_on_after(settings.scan_wait_ms / 1000) as waiting:
        await run.scan_turns.acquire()
    if waiting.cancelled_caught:
        raise Unavailable(f"{settings.scan_streams} scans are under way")
    counters.scans += 1
    try:
        await _Scan(run, deps, request, send).run()
    finally:
        counters.scans -= 1
        run.scan_turns.release()


class _OutOfRange(Exception):
    """The log does not have what is to come next, as its state says now."""

    def __init__(self, view: CommittedLog) -> None:
        super().__init__(f"the log has {view.log_start} to {view.high_watermark}")
        self.log_start = view.log_start


class _Scan:
    """One stream. Each piece begins where the one before said that it would."""

    def __init__(self, run: Run, deps: Dependencies, request: ScanRequest, send: Send) -> None:
        self._run = run
        self._deps = deps
        self._request = request
        self._send_piece = send
        self._offset = request.start
        self._told = request.start
        self._paged_to = request.start
        wanted = request.piece_bytes if request.piece_bytes > 0 else _PIECE
        self._piece_bytes = min(max(wanted, _LEAST_PIECE), deps.settings.scan_piece_bytes)

    async def run(self) -> None:
        end = self._request.end
        try:
            while self._offset < end:
                await self._go_on()
            if self._told < end or end <= self._request.start:
                await self._send(ScanPiece(first_offset=self._told, next_offset=max(self._told, end)))
        except NotAvailable as error:
            await self._fail(error.status, str(error))
        except _OutOfRange as error:
            await self._fail(Status.OFFSET_OUT_OF_RANGE, str(error), log_start=error.log_start)
        except Damaged as error:
            log.error("committed data cannot be read by a scan", reason=str(error))
            await self._fail(Status.DAMAGED, str(error))
        except STORE_FAILURES as error:
            await self._fail(Status.UNAVAILABLE, str(error))

    async def _go_on(self) -> None:
        """Read on in the segment that holds the offset."""
        if self._run.owned.stopping:
            raise Unavailable("this instance is stopping")
        ref = self._request.partition
        view = self._checked(await self._run.logs.log_with(ref, self._offset, self._request.end))
        try:
            await self._read(view)
        except OfAnotherEpoch:
            # It is not looked at again.
            return
        except Damaged:
            # What is missing may have been deleted since, or be known wrongly here: only the state as it is now tells.
            view = self._checked(await self._run.logs.stored_log(ref))
            view.segments.forget_stretch(self._offset)
            await self._read_again(view)

    async def _read_again(self, view: CommittedLog) -> None:
        try:
            await self._read(view)
        except OfAnotherEpoch:
            return
        except Damaged:
            owned = self._run.owned.get((view.topic_id, view.partition))
            if owned is not None:
                self._run.retention.look_at(owned)
            raise

    def _checked(self, view: CommittedLog) -> CommittedLog:
        if not view.log_start <= self._offset <= self._request.end <= view.high_watermark:
            raise _OutOfRange(view)
        return view

    async def _read(self, view: CommittedLog) -> None:
        if self._request.mode == ScanRequest.COUNT and not is_timed(self._request) and await self._count(view):
            return
        segment = await self._segment(view)
        if self._too_old(segment.max_timestamp):
            following = await self._run.reader.finder.after(view, segment)
            self._offset = self._request.end if following is None else max(following.base_offset, self._offset + 1)
            return
        pieces = await read_pieces(
            self._run.reader,
            view,
            segment,
            start=self._offset,
            end=self._request.end,
            piece_bytes=self._piece_bytes,
            read_bytes=self._deps.settings.scan_read_bytes,
        )
        if pieces[-1].next_offset <= self._offset:
            raise Damaged(f"{view.topic}-{view.partition}: no batch holds offset {self._offset}")
        for piece in pieces:
            await self._give(piece)

    async def _count(self, view: CommittedLog) -> bool:
        """Tell what is known without reading segments; False: nothing is of the one that comes next."""
        start, end, count, base = self._offset, self._request.end, 0, -1
        for segment in await counted_segments(self._run, view, start, end):
            here = segment.within(start, end)
            if here is None:
                break
            base = segment.base_offset if base < 0 else base
            self._offset = segment.next_offset
            count += here
        if base < 0:
            return False
        await self._send(
            ScanPiece(
                first_offset=base,
                next_offset=self._offset,
                epoch=view.epoch_of(base),
                object=segment_key(self._deps.namespace, view.topic, view.partition, base),
                count=count,
            )
        )
        return True

    async def _segment(self, view: CommittedLog) -> KnownSegment:
        """The one that holds the offset, with its newest time where a page tells it and that matters."""
        finder = self._run.reader.finder
        segment = await finder.holding(view, self._offset)
        if (
            not self._request.HasField("since_ms")
            or segment.max_timestamp != UNKNOWN_TIME
            or self._offset < self._paged_to
        ):
            return segment
        entries = await self._run.catalogs.entries(view, self._offset)
        self._paged_to = entries[-1].next_offset if entries else self._offset + 1
        if entries:
            return KnownSegment(entries[0].base_offset, entries[0].size, entries[0].max_timestamp)
        return segment

    def _too_old(self, newest: int) -> bool:
        return self._request.HasField("since_ms") and UNKNOWN_TIME != newest < self._request.since_ms

    async def _give(self, piece: Piece) -> None:
        request = self._request
        self._offset = max(self._offset, piece.next_offset)
        if not piece.records or (is_timed(request) and not has_wanted(request, piece.records)):
            return
        await self._pass_over(piece.first_offset)
        message = ScanPiece(
            first_offset=piece.first_offset,
            next_offset=piece.next_offset,
            epoch=piece.epoch,
            object=piece.object,
            position=piece.position,
        )
        if request.mode == ScanRequest.BATCHES:
            self._deps.counters.scanned_bytes += len(piece.records)
            await self._send(message, piece.records)
        else:
            try:
                message.count = await self._run.reader.run_sync(
                    partial(count_wanted, request, piece.records, request.start)
                )
            except CorruptBatch as error:
                raise Damaged(f"{piece.object}: {error}") from error
            await self._send(message)

    async def _pass_over(self, offset: int) -> None:
        """Tell that nothing is wanted of what lies before ``offset``."""
        if self._told < offset:
            await self._send(ScanPiece(first_offset=self._told, next_offset=offset))

    async def _send(self, piece: ScanPiece, records: Buffer = b"") -> None:
        await self._send_piece(Bulk(piece, ScanPiece.RECORDS_FIELD_NUMBER, records) if records else piece)
        self._told = piece.next_offset

    async def _fail(self, status: Status, detail: str, *, log_start: int = 0) -> None:
        await self._send_piece(ScanPiece(status=status, detail=detail, first_offset=self._told, log_start=log_start))
