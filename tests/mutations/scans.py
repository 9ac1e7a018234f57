"""Naive plans and scans of whole topics."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_SCANS = "tests/unit/storage/test_scans.py::"
_PLANS = "tests/unit/storage/test_plans.py::"
_SCAN_STREAMS = "tests/unit/storage/test_scan_streams.py::"

MUTATIONS = (
    Mutation(
        "unreadable records are skipped",
        Change(
            "services.storage.methods.scan",
            "_Scan.run",
            "await self._fail(Status.DAMAGED, str(error))",
            "await self._send(ScanPiece(first_offset=self._reported, next_offset=end))",
        ),
        _SCAN_STREAMS + "test_a_scan_ends_at_damage_and_reports_its_position",
    ),
    Mutation(
        "records deleted by retention during a scan are out of range, not damaged",
        Change(
            "services.storage.methods.scan",
            "_Scan._continue",
            "view = self._checked(await self._run.logs.stored_log(ref))",
            "view = await self._run.logs.stored_log(ref)",
        ),
        _SCAN_STREAMS + "test_a_scan_overtaken_by_retention_ends_out_of_range",
    ),
    Mutation(
        "a scan by time does not skip segments that retention deleted as if they were older",
        Change(
            "services.storage.methods.scan",
            "_Scan._check_passed",
            "if view.log_start > self._passed_from:",
            "if False:",
        ),
        _SCAN_STREAMS + "test_a_scan_by_time_reports_that_segments_were_deleted_during_it",
    ),
    Mutation(
        "a plan has the current end of the log",
        Change(
            "services.storage.owning.logs",
            "Logs.log_now",
            "return self._own(ref) or await self.stored_log(ref)",
            "return self._own(ref) or self._copy(ref).view or await self.stored_log(ref)",
        ),
        _PLANS + "test_latest_is_the_current_high_watermark",
    ),
    Mutation(
        "an owner scans its log only by the name of its topic",
        Change(
            "services.storage.owning.logs",
            "Logs._own",
            "return partition.log if partition.log.topic == ref.topic else None",
            "return partition.log",
        ),
        _SCANS + "test_a_log_is_not_read_by_its_id_with_the_name_of_another_topic",
    ),
    Mutation(
        "a copy of a log is scanned only by the name of its topic",
        Change(
            "services.storage.owning.logs",
            "Logs._copy",
            "key = ref.topic, (ref.topic_id, ref.partition)",
            'key = "", (ref.topic_id, ref.partition)',
        ),
        _SCANS + "test_a_log_is_not_read_by_its_id_with_the_name_of_another_topic",
    ),
    Mutation(
        "an owner reports the end of its log only while its lease is proven",
        Change(
            "services.storage.owning.logs",
            "Logs._own",
            "or not partition.log.epochs or not self._membership.proven",
            "or not partition.log.epochs",
        ),
        _PLANS + "test_an_owner_without_a_lease_does_not_report_the_end_of_the_log",
    ),
    Mutation(
        "a scan adds nothing to the cache",
        Change(
            "services.storage.reading.pieces",
            "read_pieces",
            "cached = reader.glance(view, segment, start)",
            "cached = await reader.whole(view, segment)",
        ),
        _SCAN_STREAMS + "test_scans_do_not_change_the_cache",
    ),
    Mutation(
        "missing offsets between imported segments are skipped",
        Change(
            "services.storage.reading.reader",
            "Reader.behind_hole",
            ("if following is None or view.epoch_of(segment.base_offset) or view.epoch_of(following.base_offset):"),
            "if True:",
        ),
        _SCAN_STREAMS + "test_missing_offsets_do_not_stop_a_scan",
    ),
    Mutation(
        "an imported segment with missing offsets counts as one with a wrong index",
        Change("services.storage.reading.reader", "Reader._scan", "if epoch or not index_is_right:", "if True:"),
        _SCAN_STREAMS + "test_a_scan_reads_a_large_segment_with_missing_offsets_once",
    ),
    Mutation(
        "a missing offset is answered with the next record",
        Change(
            "services.storage.reading.cache",
            "CachedSegment.first_for",
            "return i + (peek(self.data, self.positions[i]).next_offset <= offset)",
            "return i",
        ),
        _SCAN_STREAMS + "test_a_fetch_at_a_missing_offset_returns_the_next_batch",
    ),
    Mutation(
        "the few records since the last plan are not listed",
        Change("services.storage.methods.plan_scan", "_Planner._stretches", "gap.size <= _SMALL_GAP", "gap.size < 0"),
        _PLANS + "test_a_few_new_segments_are_planned_without_a_listing",
    ),
    Mutation(
        "a search after known segments begins behind them",
        Change(
            "services.storage.reading.finder",
            "SegmentFinder.holding",
            "below, least = log.segments.before(offset)",
            "below, least = None, 0",
        ),
        _PLANS + "test_a_scan_of_new_segments_lists_once",
    ),
    Mutation(
        "a count covers the range, not whole segments",
        Change(
            "services.storage.methods.known_counts",
            "Counted.within",
            "return min(end, self.next_offset) - max(start, self.base_offset)",
            "return self.records",
        ),
        _SCAN_STREAMS + "test_a_count_scan_returns_no_records",
    ),
    Mutation(
        "a batch is left out by its largest timestamp only if all its records have it",
        Change(
            "services.storage.methods.scan_filter",
            "_out_of_time",
            'return request.HasField("until_ms") and header.is_log_append_time and header.max_timestamp',
            'return request.HasField("until_ms") and header.max_timestamp',
        ),
        _SCAN_STREAMS + "test_an_older_record_behind_a_newer_one_is_not_omitted",
    ),
    Mutation(
        "splits have equal bytes",
        Change("services.storage.log.splits", "cut", "if middle > number:", "if middle > number + 1:"),
        _PLANS + "test_splits_are_even_in_bytes_and_cover_every_offset_once",
    ),
)
