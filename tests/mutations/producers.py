"""Naive code for idempotent producers."""

from tests.mutations.mutation import Mutation

_IDEMPOTENCE = "tests/unit/storage/test_idempotence.py::"
_TRUNCATED = "tests/unit/storage/test_truncated_producers.py::"
_RULES = "tests/unit/storage/test_producers.py::"

MUTATIONS = (
    # A duplicate is acked at once, whatever becomes of its original.
    Mutation(
        (52,),
        "services/storage/placing.py",
        "end_offset=original.last_offset + 1",
        "end_offset=0",
        _IDEMPOTENCE + "test_pitfall_52_a_duplicate_is_acked_when_its_original_is_and_lost_with_it",
    ),
    # A snapshot of what was appended.
    Mutation(
        (53,),
        "services/storage/snapshots.py",
        "partition.log.committed_end, partition.committed_producers.dump()",
        "partition.log.committed_end, partition.producers.dump()",
        _IDEMPOTENCE + "test_pitfall_53_a_snapshot_holds_nothing_that_is_not_committed",
    ),
    # No snapshot: what is restored comes from the last segments only.
    Mutation(
        (53,),
        "services/storage/committer.py",
        "        partition.refer(state)\n",
        "        state.producers_from = state.last_segment.base_offset\n",
        _IDEMPOTENCE + "test_pitfall_53_a_quiet_producer_is_remembered_without_reading_the_log",
    ),
    # A new owner knows nobody.
    Mutation(
        (),
        "services/storage/owned.py",
        "restored = await self._restore(partition.log, partition.state)",
        "restored = Restored(type(partition.producers)(100), 0)",
        _IDEMPOTENCE + "test_sequences_are_remembered_over_a_kill_and_a_stop",
        "a new owner knows the producers of the one before",
    ),
    # What was refused goes on counting.
    Mutation(
        (54,),
        "services/storage/producers.py",
        "        if first == expected:\n            return None",
        "        if first >= expected:\n            return None",
        _IDEMPOTENCE + "test_pitfall_54_what_stands_behind_a_refused_batch_is_refused_too",
    ),
    Mutation(
        (),
        "services/storage/producers.py",
        "% _SEQUENCES if epoch == known.epoch else 0",
        "if epoch == known.epoch else 0",
        _RULES + "test_sequences_go_on_with_0_after_the_largest",
        "sequences go on with 0 after the largest",
    ),
    Mutation(
        (),
        "services/storage/snapshots.py",
        "if partition.closed or partition.moving or not self._membership.proven:",
        "if partition.closed or partition.moving:",
        _IDEMPOTENCE + "test_an_owner_that_cannot_prove_its_lease_deletes_no_snapshots_of_others",
        "only a proven owner deletes",
    ),
    Mutation(
        (),
        "services/storage/run.py",
        "await self.snapshots.cover(partition, offset)",
        "pass",
        _TRUNCATED + "test_retention_leaves_the_producers_known",
        "a snapshot is stored before the log start passes the batches that it is to stand for",
    ),
    Mutation(
        (),
        "services/storage/snapshots.py",
        "known_up_to < offset",
        "True",
        _TRUNCATED + "test_the_log_start_moves_without_a_snapshot_where_the_last_one_is_enough",
        "the log start moves without a snapshot where the last one is enough",
    ),
    Mutation(
        (),
        "services/storage/committer.py",
        "if not len(partition.committed_producers):",
        "if not len(partition.committed_producers) and not any(buffer.sequenced for buffer in buffers):",
        _TRUNCATED + "test_no_state_refers_to_a_snapshot_of_producers_that_have_expired_since",
        "a new owner knows nobody who has expired before",
    ),
)
