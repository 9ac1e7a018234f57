"""Naive code for the log start."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_LEFTOVERS = "tests/unit/storage/test_leftovers.py::"
_MISSING = "tests/unit/storage/test_missing_objects.py::"
_RETENTION = "tests/unit/storage/test_retention.py::"

MUTATIONS = (
    Mutation(
        "retention is stored but never enforced",
        Change(
            "services.storage.upkeep.retention",
            "Retention._due",
            "if not await self._too_old(partition, segment, now_ms):",
            "if True:",
        ),
        _RETENTION + "test_old_segments_are_deleted_and_the_log_start_moves",
    ),
    Mutation(
        "the limit is the most that is kept",
        Change(
            "services.storage.upkeep.retention",
            "Retention._due",
            "if too_much < 0:",
            "if too_much + segment.size <= 0:",
        ),
        _RETENTION + "test_retention_by_size_keeps_at_least_the_limit",
    ),
    Mutation(
        "objects deleted by a lifecycle rule block the log",
        Change(
            "services.storage.upkeep.retention",
            "Retention._check",
            "await self._move_over_missing(partition)",
            "pass",
        ),
        _MISSING + "test_removing_the_oldest_objects_moves_the_log_start",
    ),
    Mutation(
        "a hole is mistaken for the old end",
        Change(
            "services.storage.reading.old_end",
            "OldEnd._oldest_remaining",
            "oldest = await self._reader.finder.oldest(view)",
            "oldest = view.segments.holding(view.high_watermark - 1)",
        ),
        _MISSING + "test_a_hole_in_the_log_moves_and_deletes_nothing",
    ),
    Mutation(
        "the log start is stored in the state before objects are deleted",
        Change(
            "services.storage.upkeep.retention",
            "Retention._move_to",
            "await self._move(partition, start)",
            "partition.log.log_start = start",
        ),
        _RETENTION + "test_the_log_start_moves_before_anything_is_deleted",
    ),
    Mutation(
        "only a proven owner deletes",
        Change(
            "services.storage.owning.deletes",
            "OwnerDeletes._delete",
            "if partition.closed or partition.moving or not self._membership.proven:",
            "if partition.closed:",
        ),
        _RETENTION + "test_an_owner_without_a_proven_lease_deletes_nothing",
    ),
    Mutation(
        "an orphan is an object that the log does not use",
        Change(
            "services.storage.upkeep.retention",
            "Retention._delete_orphans",
            "segment is not None and segment.base_offset != key.base_offset",
            "True",
        ),
        _RETENTION + "test_a_dead_owners_objects_are_deleted_when_the_log_has_passed_them",
    ),
    Mutation(
        "readers see the log start of the state",
        Change("services.storage.run", "Run._move_log", "view.log_start = partition.state.log_start", "pass"),
        _RETENTION + "test_delete_records_moves_the_log_start_durably_and_deletes_whole_segments",
    ),
    Mutation(
        "ages are computed with a clock that the object store confirms",
        Change(
            "services.storage.upkeep.retention",
            "Retention._due",
            "compared = await clock_was_right(*clock, at_ms=now_ms)",
            "compared = True",
        ),
        _RETENTION + "test_the_stores_clock_is_checked_before_deleting_by_age",
    ),
    Mutation(
        "missing objects count as deleted only in a bucket with the cluster's mark",
        Change(
            "services.storage.reading.old_end", "OldEnd.start", "not (marked and await self._is_marked())", "not marked"
        ),
        _MISSING + "test_the_log_start_does_not_move_without_the_cluster_mark",
    ),
    Mutation(
        "objects count as deleted only below the log start at the beginning of the deletion",
        Change(
            "services.storage.upkeep.retention",
            "Retention._delete_below",
            "partition.deleted_below = log_start",
            "partition.deleted_below = view.log_start",
        ),
        _LEFTOVERS + "test_segments_that_a_log_start_passes_during_a_deletion_are_deleted_next",
    ),
)
