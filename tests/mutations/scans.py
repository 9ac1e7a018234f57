"""Naive plans and scans of whole topics."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_PLANS = "tests/unit/storage/test_plans.py::"
_SCAN_STREAMS = "tests/unit/storage/test_scan_streams.py::"

MUTATIONS = (
    Mutation(
        "what cannot be read is passed over",
        Change(
            "services.storage.methods.scan",
            "_Scan.run",
            "await self._fail(Status.DAMAGED, str(error))",
            "await self._send(ScanPiece(first_offset=self._reported, next_offset=end))",
        ),
        _SCAN_STREAMS + "test_damage_ends_a_scan_with_its_place",
    ),
    Mutation(
        "what retention deletes under a scan is out of range, not damaged",
        Change(
            "services.storage.methods.scan",
            "_Scan._continue",
            "view = self._checked(await self._run.logs.stored_log(ref))",
            "view = await self._run.logs.stored_log(ref)",
        ),
        _SCAN_STREAMS + "test_a_range_that_retention_overtakes_is_out_of_range_where_it_stands",
    ),
    Mutation(
        "a plan tells the log's end as it is now",
        Change(
            "services.storage.owning.logs",
            "Logs.log_now",
            "return self._own(ref) or await self.stored_log(ref)",
            ("return self._own(ref) or self._copy((ref.topic_id, ref.partition)).view or await self.stored_log(ref)"),
        ),
        _PLANS + "test_latest_is_what_is_committed_now",
    ),
    Mutation(
        "an owner says where its log ends only while it can prove its lease",
        Change(
            "services.storage.owning.logs",
            "Logs._own",
            "or not partition.log.epochs or not self._membership.proven",
            "or not partition.log.epochs",
        ),
        _PLANS + "test_an_owner_without_a_lease_does_not_say_where_the_log_ends",
    ),
    Mutation(
        "a scan puts nothing into the cache",
        Change(
            "services.storage.reading.pieces",
            "read_pieces",
            "cached = reader.glance(view, segment)",
            "cached = await reader.whole(view, segment)",
        ),
        _SCAN_STREAMS + "test_scans_leave_the_cache_as_it_is",
    ),
    Mutation(
        "offsets that are missing between imported segments are passed over",
        Change(
            "services.storage.reading.reader",
            "Reader.behind_hole",
            ("if following is None or view.epoch_of(segment.base_offset) or view.epoch_of(following.base_offset):"),
            "if True:",
        ),
        _SCAN_STREAMS + "test_missing_offsets_do_not_stop_a_scan",
    ),
    Mutation(
        "an imported segment in which offsets are missing has no wrong index",
        Change("services.storage.reading.reader", "Reader._scan", "if epoch or not index_is_right:", "if True:"),
        _SCAN_STREAMS + "test_a_large_segment_in_which_offsets_are_missing_is_read_once_by_a_scan",
    ),
    Mutation(
        "an offset that is missing is answered with what comes next",
        Change(
            "services.storage.reading.cache",
            "CachedSegment.first_for",
            "return i + (peek(self.data, self.positions[i]).next_offset <= offset)",
            "return i",
        ),
        _SCAN_STREAMS + "test_missing_offsets_give_the_next_batch_to_a_fetch",
    ),
    Mutation(
        "the little that came since the last plan is not listed",
        Change("services.storage.methods.plan_scan", "_Planner._stretches", "gap.size <= _SMALL_GAP", "gap.size < 0"),
        _PLANS + "test_what_came_since_the_last_plan_is_planned_without_a_listing",
    ),
    Mutation(
        "a search for what lies behind known segments begins there",
        Change(
            "services.storage.reading.finder",
            "SegmentFinder.holding",
            "below, least = log.segments.before(offset)",
            "below, least = None, 0",
        ),
        _PLANS + "test_a_scan_of_what_came_since_lists_once",
    ),
    Mutation(
        "a count is of the range, not of the segments that it touches",
        Change(
            "services.storage.methods.known_counts",
            "Counted.within",
            "return min(end, self.next_offset) - max(start, self.base_offset)",
            "return self.records",
        ),
        _SCAN_STREAMS + "test_a_count_is_told_without_records",
    ),
    Mutation(
        "a batch is left out for its largest timestamp only where all its records have it",
        Change(
            "services.storage.methods.wanted",
            "_out_of_time",
            'return request.HasField("until_ms") and header.is_log_append_time and header.max_timestamp',
            'return request.HasField("until_ms") and header.max_timestamp',
        ),
        _SCAN_STREAMS + "test_an_older_record_behind_a_newer_one_is_not_left_out",
    ),
    Mutation(
        "splits are of even bytes",
        Change("services.storage.log.splits", "cut", "if middle > number:", "if middle > number + 1:"),
        _PLANS + "test_splits_are_of_even_bytes_and_hold_every_offset_once",
    ),
)
