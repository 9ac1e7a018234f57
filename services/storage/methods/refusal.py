"""Decide why an owner cannot answer a request for a partition."""

from kafscale import paths
from kafscale.metadata.outage import STORE_FAILURES
from kafscale.v1.common_pb2 import Status
from kafscale.v1.metadata_pb2 import PartitionState
from services.storage.dependencies import Dependencies
from services.storage.log.partition import Partition
from services.storage.owning.takeover import NotAvailable
from services.storage.run import Run


async def refusal_of(
    run: Run, deps: Dependencies, partition: Partition, leader_epoch: int, offset: int, *, only_records: bool = False
) -> NotAvailable | None:
    """Return why the request cannot be answered, or None if it can.

    ``only_records``: the request is for records, not for the log start or the high watermark.
    """
    view = partition.log
    below_the_end = view.log_start <= offset < view.high_watermark
    # Committed records never change and need no lease; only the owner knows the current high watermark.
    if not run.membership.proven and not (only_records and below_the_end):
        elsewhere = run.owned.elsewhere(partition.key)
        return NotAvailable(Status.NOT_OWNER, "the lease cannot be confirmed at present", elsewhere)
    if partition.closed:
        return NotAvailable(Status.NOT_OWNER, "the partition was released", run.owned.elsewhere(partition.key))
    if not view.epochs:
        return NotAvailable(Status.DAMAGED, partition.offline or "the epoch history is not settled")
    if 0 <= leader_epoch < partition.epoch:
        return NotAvailable(Status.FENCED_EPOCH, f"the leader epoch is {partition.epoch}")
    if leader_epoch > partition.epoch:
        return NotAvailable(Status.UNKNOWN_EPOCH, f"the leader epoch is {partition.epoch}")
    if offset < view.log_start:
        return NotAvailable(Status.OFFSET_OUT_OF_RANGE, f"the log starts at {view.log_start}")
    # Buffered records count as part of the log: producers that do not wait for commits already know their offsets.
    if offset <= (view.high_watermark if partition.offline else partition.buffer.next_offset):
        return None
    # OFFSET_OUT_OF_RANGE makes a consumer skip or repeat records, so it must be confirmed by the stored state.
    try:
        key = paths.partition_state_key(deps.namespace, partition.ref.topic, partition.ref.partition)
        now = await deps.metadata.get(key)
    except STORE_FAILURES as error:
        return NotAvailable(Status.UNAVAILABLE, str(error))
    if now is None or PartitionState.FromString(now.value).owner != run.membership.run_id:
        owner = PartitionState.FromString(now.value).owner if now else ""
        return NotAvailable(Status.NOT_OWNER, "taken over by another run", owner)
    if partition.closed or not run.membership.proven:
        # This run may even own it again; ``view`` is then of an earlier epoch and its high watermark is outdated.
        return NotAvailable(Status.NOT_OWNER, "the partition was released", run.owned.elsewhere(partition.key))
    if offset <= max(view.high_watermark, PartitionState.FromString(now.value).high_watermark):
        # A commit was applied whose response has not arrived yet.
        return None
    return NotAvailable(Status.OFFSET_OUT_OF_RANGE, f"the log ends at {view.high_watermark}")


def unanswered(run: Run, partition: Partition, error: Exception) -> NotAvailable:
    """Return the error for a read that the store did not answer, or during which the partition was closed."""
    if partition.closed:
        return NotAvailable(Status.NOT_OWNER, str(error), run.owned.elsewhere(partition.key))
    return NotAvailable(Status.UNAVAILABLE, str(error))
