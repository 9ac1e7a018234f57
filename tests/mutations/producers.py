"""Naive code for idempotent producers."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_IDEMPOTENCE = "tests/unit/storage/test_idempotence.py::"
_PRODUCERS = "tests/unit/storage/test_producers.py::"
_TRUNCATED_PRODUCERS = "tests/unit/storage/test_truncated_producers.py::"

MUTATIONS = (
    Mutation(
        "a duplicate is acked immediately, whatever the outcome of its original",
        Change("services.storage.log.placing", "place", "original.last_offset + 1, -1", "0, -1"),
        _IDEMPOTENCE + "test_a_duplicate_is_acked_or_lost_with_its_original",
    ),
    Mutation(
        "a snapshot contains appended batches that are not committed",
        Change(
            "services.storage.owning.snapshots",
            "ProducerSnapshots._put",
            "partition.log.segments_end, partition.committed_producers.dump()",
            "partition.log.segments_end, partition.producers.dump()",
        ),
        _IDEMPOTENCE + "test_a_snapshot_holds_only_committed_sequences",
    ),
    Mutation(
        "there is no snapshot: producers are restored from the last segments only",
        Change(
            "services.storage.writing.committer",
            "_entry",
            "        partition.refer(state)\n",
            "        state.producers_from = state.last_segment.base_offset\n",
        ),
        _IDEMPOTENCE + "test_an_idle_producer_survives_a_restart_without_reading_the_log",
    ),
    Mutation(
        "a new owner knows the producers of its predecessor",
        Change(
            "services.storage.owning.owned",
            "OwnedPartitions._restore_producers",
            "restored = await self._restore(partition.log, partition.state)",
            "restored = Restored(type(partition.producers)(100), 0)",
        ),
        _IDEMPOTENCE + "test_sequences_survive_kills_and_stops",
    ),
    Mutation(
        "refused batches still count in sequences",
        Change(
            "services.storage.log.producers",
            "ProducerTable.original",
            "        if first == expected:\n            return None",
            "        if first >= expected:\n            return None",
        ),
        _IDEMPOTENCE + "test_batches_behind_a_refused_batch_are_refused",
    ),
    Mutation(
        "sequences continue at 0 after the largest",
        Change(
            "services.storage.log.producers",
            "ProducerTable.original",
            "% _SEQUENCES if epoch == known.epoch else 0",
            "if epoch == known.epoch else 0",
        ),
        _PRODUCERS + "test_sequences_wrap_to_0_after_the_largest",
    ),
    Mutation(
        "only a proven owner deletes",
        Change(
            "services.storage.owning.snapshots",
            "ProducerSnapshots._delete_of_former_owners",
            "if partition.closed or partition.moving or not self._membership.proven:",
            "if partition.closed or partition.moving:",
        ),
        _IDEMPOTENCE + "test_an_owner_without_a_proven_lease_deletes_no_snapshots_of_others",
    ),
    Mutation(
        "a snapshot is stored before the log start passes the batches that it replaces",
        Change("services.storage.run", "Run._move_log_start", "await self.snapshots.cover(partition, offset)", "pass"),
        _TRUNCATED_PRODUCERS + "test_producers_are_known_after_retention",
    ),
    Mutation(
        "the log start moves without a snapshot if the last one is enough",
        Change("services.storage.owning.snapshots", "_is_known_short_of", "known_up_to < offset", "True"),
        _TRUNCATED_PRODUCERS + "test_the_log_start_moves_without_a_new_snapshot_if_the_last_one_suffices",
    ),
    Mutation(
        "no state refers to a snapshot of expired producers",
        Change(
            "services.storage.writing.committer",
            "_entry",
            "if not len(partition.committed_producers):",
            "if not len(partition.committed_producers) and not any(buffer.sequenced for buffer in buffers):",
        ),
        _TRUNCATED_PRODUCERS + "test_a_state_does_not_refer_to_a_snapshot_of_expired_producers",
    ),
)
