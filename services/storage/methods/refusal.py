"""Why an owner does not answer what it is asked of a partition."""

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
    """Why there is no answer. ``only_records``: what is asked for is records, not where the log begins or ends."""
    view = partition.log
    below_the_end = view.log_start <= offset < view.high_watermark
    # What is committed never changes, so it needs no lease; where the log ends now, only the owner knows.
    if not run.membership.proven and not (only_records and below_the_end):
        elsewhere = run.owned.elsewhere(partition.key)
        return NotAvailable(Status.NOT_OWNER, "the lease cannot be proven at present", elsewhere)
    if partition.closed:
        return NotAvailable(Status.NOT_OWNER, "the partition was given back", run.owned.elsewhere(partition.key))
    if not view.epochs:
        return NotAvailable(Status.DAMAGED, partition.offline or "the epoch history is not settled")
    if 0 <= leader_epoch < partition.epoch:
        return NotAvailable(Status.FENCED_EPOCH, f"the leader epoch is {partition.epoch}")
    if leader_epoch > partition.epoch:
        return NotAvailable(Status.UNKNOWN_EPOCH, f"the leader epoch is {partition.epoch}")
    if offset < view.log_start:
        return NotAvailable(Status.OFFSET_OUT_OF_RANGE, f"the log starts at {view.log_start}")
    # What is taken in and not committed yet is in the log, as producers know who do not wait for that.
    if offset <= (view.high_watermark if partition.offline else partition.buffer.next_offset):
        return None
    # Out of range makes a consumer skip or repeat: only the state itself may say so.
    try:
        key = paths.partition_state_key(deps.namespace, partition.ref.topic, partition.ref.partition)
        now = await deps.metadata.get(key)
    except STORE_FAILURES as error:
        return NotAvailable(Status.UNAVAILABLE, str(error))
    if now is None or PartitionState.FromString(now.value).owner != run.membership.run_id:
        owner = PartitionState.FromString(now.value).owner if now else ""
        return NotAvailable(Status.NOT_OWNER, "taken over by another run", owner)
    if partition.closed or not run.membership.proven:
        # It may even be back by now: then ``view`` is of an earlier epoch, and its end is an old one.
        return NotAvailable(Status.NOT_OWNER, "the partition was given back", run.owned.elsewhere(partition.key))
    if offset <= PartitionState.FromString(now.value).high_watermark:
        # A commit has applied whose answer is on its way.
        return None
    return NotAvailable(Status.OFFSET_OUT_OF_RANGE, f"the log ends at {view.high_watermark}")


def unanswered(run: Run, partition: Partition, error: Exception) -> NotAvailable:
    """For a read that the store did not answer, or that ended with the partition's time here."""
    if partition.closed:
        return NotAvailable(Status.NOT_OWNER, str(error), run.owned.elsewhere(partition.key))
    return NotAvailable(Status.UNAVAILABLE, str(error))
