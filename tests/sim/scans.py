"""Simulated jobs, which plan, scan and count partitions at any instance by offset and time, like Spark's tasks."""

from collections.abc import AsyncIterator

import trio

from kafscale.errors import Unavailable
from kafscale.rpc.generated import SegmentStorageClient
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import (
    Bound,
    FetchRequest,
    PartitionFetch,
    PartitionPlan,
    PartitionScan,
    PlanScanRequest,
    ScanPiece,
    ScanRequest,
)
from tests.sim.consumers import epoch_records_of
from tests.sim.process import Process
from tests.sim.services import Cluster
from tests.sim.transport import RemoteStorage
from tests.sim.view import Partition, View

_SECONDS = 2.0
_TRIES = 20
_PASSING = (Status.UNAVAILABLE, Status.NOT_OWNER, Status.UNKNOWN_TOPIC, Status.TOPIC_ID_MISMATCH)


class _Stopped(Exception):
    """The request must be repeated."""


class Scanner:
    """Scans a partition from the process ``here``, which never fails."""

    def __init__(self, view: View, cluster: Cluster, here: Process, partition: Partition, name: str) -> None:
        self._view = view
        self._faults = view.faults
        self._cluster = cluster
        self._here = here
        self._partition = partition
        self._name = name
        self._ref = PartitionRef(topic=partition.topic, topic_id=partition.topic_id, partition=partition.index)

    async def run(self) -> None:
        """Run until cancelled or the topic is deleted."""
        acts = (self._scan, self._count, self._scan_since, self._fetch, self._plan_by_time)
        while not self._partition.gone:
            await trio.sleep(self._faults.between(0.3, 1.5))
            address = self._faults.dice.choice(sorted(self._cluster.storages))
            try:
                await self._faults.one_of(acts)(address)
            except (Unavailable, _Stopped):
                continue

    async def verify(self, address: str) -> None:
        """Check all requests, which must succeed without faults. Raise Unavailable."""
        for act in (self._scan, self._count, self._scan_since, self._plan_by_time):
            for left in reversed(range(_TRIES)):
                try:
                    await act(address)
                    break
                except _Stopped as error:
                    # Retention may advance the log start meanwhile.
                    if not left:
                        raise Unavailable(str(error)) from None
                    await trio.sleep(0.1)

    async def _scan(self, address: str) -> None:
        plan = await self._plan(address, PartitionScan(start=Bound(earliest=True), end=Bound(latest=True)))
        name = f"{self._name} at {address}"
        offset = plan.log_start
        self._view.checker.moved(name, self._partition.log, offset)
        for split in plan.splits:
            if split.start > offset and self._partition.loses_records:
                self._view.passed(name, self._partition, split.start)
                offset = split.start
            elif split.start != offset:
                self._complain("gap", f"{name}: a split starts at {split.start} instead of {offset}")
            async for piece in self._pieces(address, ScanRequest(start=split.start, end=split.end)):
                for at, value, epoch in epoch_records_of(piece.records):
                    if offset <= at < split.end:
                        self._view.scanned(name, self._partition, at, value)
                        self._view.checker.epoch(self._partition.log, at, epoch)
                        offset = at + 1
                passed = min(piece.next_offset, split.end)
                if passed > offset:
                    self._view.passed(name, self._partition, passed)
                    offset = passed
            if offset != split.end:
                self._complain("gap", f"{name}: a scan up to {split.end} ends at {offset}")
                return
        if offset != plan.high_watermark:
            self._complain("gap", f"{name}: the splits end at {offset}, the log at {plan.high_watermark}")

    async def _count(self, address: str) -> None:
        plan = await self._plan(address, PartitionScan(start=Bound(earliest=True), end=Bound(latest=True)))
        before = await self._offsets(address, plan) if self._partition.loses_records else []
        request = ScanRequest(start=plan.log_start, end=plan.high_watermark, mode=ScanRequest.COUNT)
        count = sum([piece.count async for piece in self._pieces(address, request)])
        right = plan.high_watermark - plan.log_start
        if self._partition.loses_records:
            # Between two scans with the same result, nothing was removed.
            right = len(before) if await self._offsets(address, plan) == before else count
        if count != right:
            self._complain("miscounted", f"{count} from {plan.log_start} to {plan.high_watermark} at {address}")

    async def _offsets(self, address: str, plan: PartitionPlan) -> list[int]:
        """Return the offsets of the records in the range of a plan."""
        request = ScanRequest(start=plan.log_start, end=plan.high_watermark)
        return [
            at
            async for piece in self._pieces(address, request)
            for at, _, _ in epoch_records_of(piece.records)
            if plan.log_start <= at < plan.high_watermark
        ]

    async def _scan_since(self, address: str) -> None:
        since = self._some_time()
        known = self._known_since(since)
        plan = await self._plan(address, PartitionScan(start=Bound(earliest=True), end=Bound(latest=True)))
        request = ScanRequest(start=plan.log_start, end=plan.high_watermark, since_ms=since)
        found = {
            at
            async for piece in self._pieces(address, request)
            for at, _, _ in epoch_records_of(piece.records)
            if plan.log_start <= at < plan.high_watermark
        }
        missing = [at for at in known if plan.log_start <= at < plan.high_watermark and at not in found]
        if self._partition.loses_records:
            for at in missing:
                self._view.leaves_out(self._partition, at, f"a scan at {address} since {since} lacks {at}")
        elif missing:
            self._complain("left-out", f"a scan at {address} since {since} lacks {missing[:5]}")

    async def _plan_by_time(self, address: str) -> None:
        since = self._some_time()
        known = self._known_since(since)
        plan = await self._plan(address, PartitionScan(start=Bound(timestamp=since), end=Bound(latest=True)))
        if self._view.checker.recovering:
            # What is only in an intake is not in a plan yet.
            known = [offset for offset in known if offset < plan.high_watermark]
        self._view.first_at(self._partition, f"a plan at {address}", since, known, plan.start, none=plan.high_watermark)

    async def _fetch(self, address: str) -> None:
        """Fetch like a consumer from an instance that is not the owner."""
        asked, offset = trio.current_time(), self._faults.dice.randint(0, self._partition.known_end)
        fetches = [PartitionFetch(partition=self._ref, offset=offset, max_bytes=4000, leader_epoch=-1)]
        request = FetchRequest(max_bytes=4000, fetches=fetches, scan=True)
        (fetched,) = (await self._storage(address).fetch(request, timeout=_SECONDS)).results
        if fetched.status == Status.OFFSET_OUT_OF_RANGE:
            return
        self._check(address, fetched.status, fetched.detail, f"a fetch at {offset} of {address}")
        # A high watermark from any instance may be old, so only check the log start for the time of the request.
        if fetched.high_watermark < offset or asked < 0:
            self._complain("out-of-range", f"{address} reads {offset} of a log that ends at {fetched.high_watermark}")
        for at, value, epoch in epoch_records_of(fetched.records):
            if at >= offset:
                self._view.seen(self._name, self._partition, at, value)
                self._view.checker.epoch(self._partition.log, at, epoch)

    async def _plan(self, address: str, scan: PartitionScan) -> PartitionPlan:
        scan.partition.CopyFrom(self._ref)
        request = PlanScanRequest(scans=[scan], split_bytes=self._faults.one_of([0, 1000, 100_000]))
        (plan,) = (await self._storage(address).plan_scan(request, timeout=_SECONDS)).plans
        self._check(address, plan.status, plan.detail, f"a plan at {address}")
        return plan

    async def _pieces(self, address: str, request: ScanRequest) -> AsyncIterator[ScanPiece]:
        request.partition.CopyFrom(self._ref)
        for piece in await self._peer(address).pieces(request, timeout=_SECONDS):
            if piece.status == Status.OFFSET_OUT_OF_RANGE and piece.log_start > piece.first_offset:
                raise _Stopped("the log start has moved")
            self._check(address, piece.status, piece.detail, f"a scan at {address}, at {piece.first_offset}")
            yield piece

    def _check(self, address: str, status: int, detail: str, what: str) -> None:
        if status == Status.OK:
            return
        if not self._partition.doomed and (status not in _PASSING or self._view.at_ease):
            misled = self._cluster.trace.may_be_wrong(self._cluster.storages[address].name)
            if status == Status.DAMAGED and (self._view.at_ease or not misled):
                self._complain("damaged", f"{what}: {detail}")
            elif status not in (*_PASSING, Status.DAMAGED):
                self._complain("refused", f"{what}: {Status.Name(status)} {detail}")
        raise _Stopped(detail)

    def _some_time(self) -> int:
        times = list(self._partition.times.values())
        return self._faults.one_of(times) if times else self._view.now_ms()

    def _known_since(self, since: int) -> list[int]:
        return [offset for offset, time in self._partition.times.items() if time >= since]

    def _complain(self, kind: str, detail: str) -> None:
        self._view.complain(kind, self._partition, f"{self._name}: {detail}")

    def _storage(self, address: str) -> SegmentStorageClient:
        return SegmentStorageClient(self._peer(address))

    def _peer(self, address: str) -> RemoteStorage:
        return RemoteStorage(self._here, lambda: self._cluster.storages.get(address), self._faults, self._cluster.trace)
