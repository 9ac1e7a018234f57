"""Scan: stream a committed range of one partition in pieces, at the reader's pace. Any instance can serve it."""

from collections.abc import Awaitable, Callable
from functools import partial

import structlog
import trio

from kafscale.errors import Unavailable
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.records.checksum import Buffer
from kafscale.records.errors import CorruptBatch
from kafscale.rpc.bulk import Bulk
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import ScanPiece, ScanRequest
from services.storage.dependencies import Dependencies
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog
from services.storage.methods.known_counts import counted_segments
from services.storage.methods.scan_filter import count_matching, has_matching, is_timed
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.finder import Damaged, OfAnotherEpoch
from services.storage.reading.pieces import Piece, read_pieces
from services.storage.run import Run

log = structlog.get_logger()

_MIN_PIECE = 64 * 1024
_DEFAULT_PIECE = 1 << 20
"""Bytes, if the request has no piece_bytes."""

Send = Callable[[ScanPiece | Bulk[ScanPiece]], Awaitable[None]]


async def scan(run: Run, deps: Dependencies, request: ScanRequest, send: Send) -> None:
    """Serve one Scan. Raises Unavailable if it cannot start within KAFSCALE_SCAN_WAIT_MS."""
    settings, counters = deps.settings, deps.counters
    with trio.move_on_after(settings.scan_wait_ms / 1000) as waiting:
        await run.scan_turns.acquire()
    if waiting.cancelled_caught:
        raise Unavailable(f"{settings.scan_streams} scans are already running")
    counters.scans += 1
    try:
        await _Scan(run, deps, request, send).run()
    finally:
        counters.scans -= 1
        run.scan_turns.release()


class _OutOfRange(Exception):
    """The current state of the log does not include the next offset of the scan."""

    def __init__(self, view: CommittedLog) -> None:
        super().__init__(f"the log has offsets {view.log_start} to {view.segments_end}")
        self.log_start = view.log_start


class _Scan:
    """One stream. Each piece begins at the ``next_offset`` of the piece before."""

    def __init__(self, run: Run, deps: Dependencies, request: ScanRequest, send: Send) -> None:
        self._run = run
        self._deps = deps
        self._request = request
        self._send_piece = send
        self._offset = request.start
        self._reported = request.start
        self._paged_to = request.start
        # The first offset of segments that were passed over since the log start was last compared. -1: none.
        self._passed_from = -1
        requested = request.piece_bytes if request.piece_bytes > 0 else _DEFAULT_PIECE
        self._piece_bytes = min(max(requested, _MIN_PIECE), deps.settings.scan_piece_bytes)

    async def run(self) -> None:
        end = self._request.end
        try:
            while self._offset < end:
                await self._continue()
            await self._check_passed()
            if self._reported < end or end <= self._request.start:
                await self._send(ScanPiece(first_offset=self._reported, next_offset=max(self._reported, end)))
        except NotAvailable as error:
            await self._fail(error.status, str(error))
        except _OutOfRange as error:
            await self._fail(Status.OFFSET_OUT_OF_RANGE, str(error), log_start=error.log_start)
        except Damaged as error:
            log.error("committed data cannot be read by a scan", reason=str(error))
            await self._fail(Status.DAMAGED, str(error))
        except STORE_FAILURES as error:
            await self._fail(Status.UNAVAILABLE, str(error))

    async def _continue(self) -> None:
        """Read the segment that holds the current offset."""
        if self._run.owned.stopping:
            raise Unavailable("this instance is stopping")
        ref = self._request.partition
        view = self._checked(await self._run.logs.log_with(ref, self._offset, self._request.end))
        try:
            await self._read(view)
        except OfAnotherEpoch:
            # The segment map now excludes it, so the next round finds another one.
            return
        except Damaged:
            # The object may have been deleted since, or the local view is outdated, so read the current state.
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
        if not view.log_start <= self._offset <= self._request.end <= view.segments_end:
            raise _OutOfRange(view)
        return view

    async def _read(self, view: CommittedLog) -> None:
        if self._request.mode == ScanRequest.COUNT and not is_timed(self._request) and await self._count(view):
            return
        segment = await self._segment(view)
        if segment.base_offset > self._offset:
            # The offsets up to there have no records any more.
            self._offset = min(segment.base_offset, self._request.end)
            return
        if self._too_old(segment.max_timestamp):
            following = await self._run.reader.finder.after(view, segment)
            if self._passed_from < 0 and segment.rewritten is None:
                self._passed_from = self._offset
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
            await self._send_records(piece)

    async def _count(self, view: CommittedLog) -> bool:
        """Send the count of segments that need not be read. Return False if the next segment must be read."""
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
                object=self._run.reader.key(view, await self._run.reader.finder.holding(view, base)),
                count=count,
            )
        )
        return True

    async def _segment(self, view: CommittedLog) -> KnownSegment:
        """Return the segment that holds the offset, with its newest timestamp if it matters and a page has it."""
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

    async def _send_records(self, piece: Piece) -> None:
        request = self._request
        self._offset = max(self._offset, piece.next_offset)
        if not piece.records or (is_timed(request) and not has_matching(request, piece.records)):
            return
        await self._skip_to(piece.first_offset)
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
                    partial(count_matching, request, piece.records, request.start)
                )
            except CorruptBatch as error:
                raise Damaged(f"{piece.object}: {error}") from error
            await self._send(message)

    async def _skip_to(self, offset: int) -> None:
        """Send an empty piece for the offsets before ``offset``, which have no matching records."""
        await self._check_passed()
        if self._reported < offset:
            await self._send(ScanPiece(first_offset=self._reported, next_offset=offset))

    async def _check_passed(self) -> None:
        """Raise _OutOfRange if retention may have removed segments before others were passed over.

        A segment does not tell where the next one began, and the view of another instance's log may be old.
        """
        if self._passed_from < 0:
            return
        view = await self._run.logs.log_now(self._request.partition)
        if view.log_start > self._passed_from:
            raise _OutOfRange(view)
        self._passed_from = -1

    async def _send(self, piece: ScanPiece, records: Buffer = b"") -> None:
        await self._send_piece(Bulk(piece, ScanPiece.RECORDS_FIELD_NUMBER, records) if records else piece)
        self._reported = piece.next_offset

    async def _fail(self, status: Status, detail: str, *, log_start: int = 0) -> None:
        await self._send_piece(
            ScanPiece(status=status, detail=detail, first_offset=self._reported, log_start=log_start)
        )
