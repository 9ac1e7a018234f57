"""PlanScan: resolve bounds to offsets and cut ranges into splits of equal bytes, for any partition of any owner.

Sizes come from known segments and catalog pages. Stretches that neither covers are listed unless they are small.
"""

import structlog
import trio

from kafscale.metadata.outage import STORE_FAILURES
from kafscale.rpc.generated import IndexerClient
from kafscale.v1.common_pb2 import Status
from kafscale.v1.storage_pb2 import Bound, PartitionPlan, PartitionScan, PlanScanReply, PlanScanRequest
from services.storage.dependencies import Dependencies
from services.storage.log.known_segment import UNKNOWN_TIME, KnownSegment
from services.storage.log.partition import CommittedLog
from services.storage.log.splits import MAX_SPLITS, Stretch, TooManySplits, cut
from services.storage.methods.flush import flush_for_plan
from services.storage.owning.takeover import NotAvailable
from services.storage.reading.finder import Damaged
from services.storage.reading.offsets import list_offset
from services.storage.run import Run

log = structlog.get_logger()

_SMALL_GAP = 8 << 20
"""Bytes. A gap between known segments of up to about this size is not listed: a plan may be off by as much."""
_TRIES = 3
"""Attempts at one plan while the log start moves past the segments in question."""


async def plan_scan(run: Run, deps: Dependencies, request: PlanScanRequest) -> PlanScanReply:
    """Return a plan for each scan, of records in segments, after the owners have stored what is durable there.

    KAFSCALE_PLANS_IN_FLIGHT bounds concurrent plans across all calls.
    """
    await flush_for_plan(run, deps, [scan.partition for scan in request.scans])
    plans = [PartitionPlan() for _ in request.scans]
    remaining = iter(zip(request.scans, plans, strict=True))

    async def work() -> None:
        for scan, plan in remaining:
            async with run.plan_turns:
                await _Planner(run, deps.indexer, request, scan, plan).plan()

    async with trio.open_nursery() as nursery:
        for _ in range(min(deps.settings.plans_in_flight, len(plans))):
            nursery.start_soon(work)
    return PlanScanReply(plans=plans)


class _Planner:
    """Plans the scan of one partition."""

    def __init__(
        self, run: Run, indexer: IndexerClient, request: PlanScanRequest, scan: PartitionScan, result: PartitionPlan
    ) -> None:
        self._run = run
        self._indexer = indexer
        self._request = request
        self._scan = scan
        self._result = result

    async def plan(self) -> None:
        """Fill the result."""
        result = self._result
        try:
            await self._filled()
        except NotAvailable as error:
            result.status, result.detail = error.status, str(error)
        except TooManySplits:
            result.status, result.detail = Status.INVALID, f"more than {MAX_SPLITS} splits of one partition"
        except Damaged as error:
            log.error("committed data cannot be read for a plan", reason=str(error))
            result.status, result.detail = Status.DAMAGED, str(error)
        except STORE_FAILURES as error:
            result.status, result.detail = Status.UNAVAILABLE, str(error)

    async def _filled(self) -> None:
        for tries_left in reversed(range(_TRIES)):
            view = await self._run.logs.log_now(self._scan.partition)
            try:
                await self._fill(view)
            except Damaged:
                if not tries_left:
                    raise
                # The object may have been deleted meanwhile, or may not belong to the log.
                await self._run.logs.stored_log(self._scan.partition)
            else:
                return

    async def _fill(self, view: CommittedLog) -> None:
        result, request = self._result, self._request
        # The log keeps growing; the whole plan must refer to one point in time.
        result.log_start, result.high_watermark = view.log_start, view.segments_end
        result.start = await self._offset(view, self._scan.start)
        result.end = await self._offset(view, self._scan.end)
        start, end = max(result.start, result.log_start), min(result.end, result.high_watermark)
        del result.splits[:]
        if start >= end:
            return
        stretches = await self._stretches(view, start, end)
        if request.HasField("since_ms"):
            # until_ms has no such filter, because catalogs do not have the oldest timestamp of a segment.
            since = request.since_ms
            stretches = [one for one in stretches if one.newest is None or one.newest >= since]
        result.splits.extend(cut(stretches, split_bytes=request.split_bytes, split_records=request.split_records))

    async def _offset(self, view: CommittedLog, bound: Bound) -> int:
        match bound.WhichOneof("at"):
            case "earliest":
                return self._result.log_start
            case "latest":
                return self._result.high_watermark
            case "offset":
                return bound.offset
            case "timestamp" if view.log_start == view.segments_end:
                # The partition may never have had an owner and therefore no epoch.
                return view.segments_end
            case "timestamp":
                found = await list_offset(
                    view,
                    max(bound.timestamp, 0),
                    reader=self._run.reader,
                    catalogs=self._run.catalogs,
                    indexer=self._indexer,
                )
                end = self._result.high_watermark
                return min(found.offset, end) if found.offset >= 0 else end
            case _:
                raise NotAvailable(Status.INVALID, "a scan without a bound")

    async def _stretches(self, view: CommittedLog, start: int, end: int) -> list[Stretch]:
        """Return the stretches of the log from ``start`` to ``end``: known segments, otherwise catalog pages.

        If another instance writes the log, what was added since the last plan is either a small gap or listed.
        """
        catalogs, finder = self._run.catalogs, self._run.reader.finder
        found: list[Stretch] = []
        learned = listed = False
        offset = start
        while offset < end:
            known, covered = view.segments.stretch(offset, end)
            if not known and covered > offset:
                # These offsets were rewritten and have no records any more.
                offset = covered
                continue
            # The end of the last segment of a listing is unknown.
            if len(known) > 1 and covered <= known[-1].base_offset + 1 < end:
                covered = known.pop().base_offset
            if (known and covered > known[-1].base_offset + 1) or covered >= end:
                ends = [*(segment.base_offset for segment in known[1:]), covered]
                found += [_stretch(one, after).part(offset, end) for one, after in zip(known, ends, strict=True)]
                offset = covered
                continue
            gap = view.segments.gap(offset)
            if gap is not None and gap.size <= _SMALL_GAP:
                found.append(Stretch(*gap, None).part(offset, end))
                offset = gap.end
                continue
            # One listing returns more segments than a page has.
            if not learned and (gap is None or listed):
                await catalogs.learn(view, offset, end)
                learned = True
                continue
            listed = True
            page = view.pages.covering(offset)
            if page is not None and page.read:
                found.append(Stretch(page.base_offset, page.end, page.size, page.newest).part(offset, end))
                offset = page.end
                continue
            segment = await finder.holding(view, offset)
            following = await finder.after(view, segment)
            after = view.segments_end if following is None else max(following.base_offset, offset + 1)
            found.append(_stretch(segment, after).part(offset, end))
            offset = after
        return found


def _stretch(segment: KnownSegment, end: int) -> Stretch:
    newest = None if segment.max_timestamp == UNKNOWN_TIME else segment.max_timestamp
    return Stretch(segment.base_offset, end, segment.size, newest)
