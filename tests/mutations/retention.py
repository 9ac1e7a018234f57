"""Naive code for the old end of the log."""

from tests.mutations.mutation import Mutation

_RETENTION = "tests/unit/storage/test_retention.py::"
_MISSING = "tests/unit/storage/test_missing_objects.py::"
_MODULE = "services/storage/retention.py"
_OLD_END = "services/storage/old_end.py"

MUTATIONS = (
    # Retention is stored and never enforced.
    Mutation(
        (13,),
        _MODULE,
        "if not await self._too_old(partition, segment, now_ms):",
        "if True:",
        _RETENTION + "test_pitfall_13_what_is_too_old_goes_and_the_log_start_with_it",
    ),
    # The limit is the most that is kept.
    Mutation(
        (13,),
        _MODULE,
        "if too_much < 0:",
        "if too_much + segment.size <= 0:",
        _RETENTION + "test_pitfall_13_as_much_as_the_size_limit_is_kept_at_least",
    ),
    # What a lifecycle rule removed stays in the way for ever.
    Mutation(
        (57,),
        _MODULE,
        "await self._move_over_missing(partition)",
        "pass",
        _MISSING + "test_pitfall_57_objects_that_others_removed_from_the_old_end_move_the_log_start",
    ),
    # A hole is taken for the old end.
    Mutation(
        (57,),
        _OLD_END,
        "first = await self._finder.oldest(view)",
        "first = view.segments.holding(view.committed_end - 1)",
        _MISSING + "test_pitfall_57_a_hole_moves_nothing_and_deletes_nothing",
    ),
    Mutation(
        (),
        _MODULE,
        "await self._move(partition, start)",
        "partition.log.log_start = start",
        _RETENTION + "test_the_log_start_moves_before_anything_is_deleted",
        "the log start is in the state before objects go",
    ),
    Mutation(
        (),
        _MODULE,
        "if partition.closed or partition.moving or not self._membership.proven:",
        "if partition.closed:",
        _RETENTION + "test_an_owner_that_cannot_prove_its_lease_deletes_nothing",
        "only a proven owner deletes",
    ),
    Mutation(
        (),
        _MODULE,
        "segment is not None and segment.base_offset != key.base_offset",
        "True",
        _RETENTION + "test_what_a_dead_owner_left_is_deleted_when_the_log_has_passed_it",
        "an orphan is a name that the log does not use",
    ),
    Mutation(
        (),
        "services/storage/run.py",
        "log_view.log_start = partition.state.log_start",
        "pass",
        _RETENTION + "test_delete_records_moves_the_log_start_durably_and_deletes_whole_segments",
        "readers see the log start that the state has",
    ),
    Mutation(
        (),
        _MODULE,
        "compared = compared or await self._clock_is_right(now_ms)",
        "compared = True",
        _RETENTION + "test_the_store_is_asked_for_its_clock_before_anything_is_too_old",
        "age is counted by a clock that the object store's confirms",
    ),
    Mutation(
        (),
        _OLD_END,
        "not (marked and await self._is_marked())",
        "not marked",
        _MISSING + "test_a_store_without_the_clusters_mark_moves_no_log_start",
        "missing objects count where the cluster's mark is, in the same place",
    ),
    Mutation(
        (),
        _MODULE,
        "partition.deleted_below = log_start",
        "partition.deleted_below = view.log_start",
        "tests/unit/storage/test_leftovers.py::test_what_a_log_start_passes_during_a_deletion_is_deleted_next",
        "what counts as deleted lies below the log start that the deletion began with",
    ),
    Mutation(
        (),
        "services/storage/finder.py",
        "if max(start, log.log_start) <= last < covered and",
        "if max(start, log.log_start) <= last < covered < 0 and",
        "tests/unit/storage/test_list_offsets.py::test_a_listing_that_lacks_the_last_segment_is_not_believed",
        "what a listing of an empty replica lacks is not passed over",
    ),
)
