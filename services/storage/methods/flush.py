"""Flush: store and commit the write buffers of partitions."""

import trio

from kafscale.errors import KafscaleError
from kafscale.metadata.members import LiveMember
from kafscale.v1.common_pb2 import PartitionRef, Status
from kafscale.v1.storage_pb2 import FlushReply, FlushRequest, PartitionFlushed
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.methods.acquiring import acquire_all
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run

_PLAN_SECONDS = 3.0
"""How long a plan waits for the owners of its partitions."""


async def flush(run: Run, request: FlushRequest) -> FlushReply:
    """Return a result for each partition of the request, or for all owned partitions if the request names none."""
    for_plan = request.for_plan
    if for_plan:
        refs = [ref for ref in request.partitions if run.owned.busy((ref.topic_id, ref.partition))]
        found = await acquire_all(run, refs, patience=_PLAN_SECONDS)
    elif request.partitions:
        found = await acquire_all(run, list(request.partitions))
    else:
        found = list(run.owned)
    # Seal all of them first, so that they are uploaded concurrently.
    for one in found:
        if isinstance(one, Partition):
            if for_plan:
                run.buffers.seal_for_plan(one)
            else:
                run.buffers.seal(one, "request")
    # What is appended from now on is not waited for, because it is not sealed.
    ends = [_end(one, for_plan=for_plan) for one in found]
    reply = FlushReply()
    for one, end in zip(found, ends, strict=True):
        if isinstance(one, NotAvailable):
            reply.results.append(PartitionFlushed(status=one.status, detail=str(one), owner=one.owner))
            continue
        done = await run.stored(one, end)
        result = PartitionFlushed(partition=one.ref, high_watermark=one.log.high_watermark)
        if one.offline:
            result.status, result.detail = Status.DAMAGED, one.offline
        elif not done:
            result.status, result.owner = Status.NOT_OWNER, run.owned.elsewhere(one.key)
        reply.results.append(result)
    return reply


def _end(one: Partition | NotAvailable, *, for_plan: bool) -> int:
    if isinstance(one, NotAvailable):
        return 0
    return one.log.high_watermark if for_plan else one.buffer.next_offset


async def flush_for_plan(run: Run, deps: Dependencies, refs: list[PartitionRef]) -> None:
    """Have the owners store in segments what is durable. An owner that does not answer in time is not waited for."""
    here, elsewhere = FlushRequest(for_plan=True), FlushRequest(for_plan=True)
    for ref in refs:
        (here if run.owned.busy((ref.topic_id, ref.partition)) else elsewhere).partitions.append(ref)
    # A partition that moves may be owned by another member than the one that it is assigned to, so all are asked.
    with trio.move_on_after(_PLAN_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flush, run, here)
            for member in deps.members.view.by_run_id.values():
                if elsewhere.partitions and member.run_id != run.membership.run_id:
                    nursery.start_soon(_ask, deps, member, elsewhere)


async def _ask(deps: Dependencies, member: LiveMember, request: FlushRequest) -> None:
    if deps.connect is None:
        return
    try:
        async with deps.connect(member) as storage:
            await storage.flush(request, timeout=_PLAN_SECONDS)
    except KafscaleError:
        # The plan then ends where the segments end, as it would if its owner had stopped.
        return
