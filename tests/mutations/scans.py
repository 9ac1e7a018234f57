"""Naive plans and scans of whole topics."""

from tests.mutations.mutation import Mutation

_STREAM = "services/storage/scan_stream.py"
_LOGS = "services/storage/logs.py"
_STREAM_TESTS = "tests/unit/storage/test_scan_streams.py::"
_PLAN_TESTS = "tests/unit/storage/test_plans.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    # What cannot be read is passed over.
    Mutation(
        (46,),
        _STREAM,
        "await self._fail(Status.DAMAGED, str(error))",
        "await self._send(ScanPiece(first_offset=self._told, next_offset=end))",
        _STREAM_TESTS + "test_pitfall_46_damage_ends_a_scan_with_its_place",
    ),
    _breaking(
        "what retention deletes under a scan is out of range, not damaged",
        _STREAM,
        "view = self._checked(await self._run.logs.stored_log(ref))",
        "view = await self._run.logs.stored_log(ref)",
        _STREAM_TESTS + "test_a_range_that_retention_overtakes_is_out_of_range_where_it_stands",
    ),
    _breaking(
        "a plan tells the log's end as it is now",
        _LOGS,
        "return self._own(ref) or await self.stored_log(ref)",
        "return self._own(ref) or self._copy((ref.topic_id, ref.partition)).view or await self.stored_log(ref)",
        _PLAN_TESTS + "test_latest_is_what_is_committed_now",
    ),
    _breaking(
        "an owner says where its log ends only while it can prove its lease",
        _LOGS,
        "or not partition.log.epochs or not self._membership.proven",
        "or not partition.log.epochs",
        _PLAN_TESTS + "test_an_owner_without_a_lease_does_not_say_where_the_log_ends",
    ),
    _breaking(
        "a scan puts nothing into the cache",
        "services/storage/pieces.py",
        "cached = reader.glance(view, segment)",
        "cached = await reader.whole(view, segment)",
        _STREAM_TESTS + "test_scans_leave_the_cache_as_it_is",
    ),
    _breaking(
        "offsets that are missing between imported segments are passed over",
        "services/storage/reader.py",
        "if following is None or view.epoch_of(segment.base_offset) or view.epoch_of(following.base_offset):",
        "if True:",
        _STREAM_TESTS + "test_missing_offsets_do_not_stop_a_scan",
    ),
    _breaking(
        "an imported segment in which offsets are missing has no wrong index",
        "services/storage/reader.py",
        "if epoch or not led:",
        "if True:",
        _STREAM_TESTS + "test_a_large_segment_in_which_offsets_are_missing_is_read_once_by_a_scan",
    ),
    _breaking(
        "an offset that is missing is answered with what comes next",
        "services/storage/cache.py",
        "return i + (peek(self.data, self.positions[i]).next_offset <= offset)",
        "return i",
        _STREAM_TESTS + "test_missing_offsets_give_the_next_batch_to_a_fetch",
    ),
    _breaking(
        "the little that came since the last plan is not listed",
        "services/storage/plans.py",
        "gap.size <= _LITTLE",
        "gap.size < 0",
        _PLAN_TESTS + "test_what_came_since_the_last_plan_is_planned_without_a_listing",
    ),
    _breaking(
        "a search for what lies behind known segments begins there",
        "services/storage/finder.py",
        "below, least = log.segments.before(offset)",
        "below, least = None, 0",
        _PLAN_TESTS + "test_a_scan_of_what_came_since_lists_once",
    ),
    _breaking(
        "a count is of the range, not of the segments that it touches",
        "services/storage/known_counts.py",
        "return min(end, self.next_offset) - max(start, self.base_offset)",
        "return self.records",
        _STREAM_TESTS + "test_a_count_is_told_without_records",
    ),
    _breaking(
        "a batch is left out for its largest timestamp only where all its records have it",
        "services/storage/wanted.py",
        'return request.HasField("until_ms") and header.is_log_append_time and header.max_timestamp',
        'return request.HasField("until_ms") and header.max_timestamp',
        _STREAM_TESTS + "test_an_older_record_behind_a_newer_one_is_not_left_out",
    ),
    _breaking(
        "splits are of even bytes",
        "services/storage/splits.py",
        "if middle > number:",
        "if middle > number + 1:",
        _PLAN_TESTS + "test_splits_are_of_even_bytes_and_hold_every_offset_once",
    ),
)
