"""Naive code for rewritten logs."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_COMPACTION = "tests/unit/storage/test_compaction.py::"
_MERGING = "tests/unit/storage/test_merging.py::"
_ROOTS = "services.storage.rewriting.roots"
_REWRITES = "services.storage.rewriting.rewrites"
_OBSOLETE = "services.storage.rewriting.obsolete"
_PIECES = "tests/unit/indexer/test_rewrite_calls.py::test_an_object_passes_to_and_from_its_process_in_pieces"
_CHOICE = "services.storage.log.rewriting"

MUTATIONS = (
    Mutation(
        "merges keep up with producers",
        Change("services.storage.rewriting.merge_pace", "MergePace.note", "(appended - self._appended)", "0"),
        _MERGING + "test_old_segments_are_merged_slowly_and_new_ones_as_they_arrive",
    ),
    Mutation(
        "a merge has the pace that its owner sets",
        Change("services.indexer.rewriting.rewrites", "Rewrites._run", "IoRate(request.bytes_per_second,", "IoRate(0,"),
        _MERGING + "test_old_segments_are_merged_slowly_and_new_ones_as_they_arrive",
    ),
    Mutation(
        "what a root replaces stays for the grace",
        Change(_ROOTS, "Roots._past_grace", "known_at < latest", "True"),
        _COMPACTION + "test_replaced_objects_are_deleted_after_the_grace_and_once",
    ),
    Mutation(
        "a root is not committed for a former root alone",
        Change(_ROOTS, "Roots.due", " if not isinstance(parse_rewritten_key(key), RootKey)", ""),
        _COMPACTION + "test_replaced_objects_are_deleted_after_the_grace_and_once",
    ),
    Mutation(
        "an object that is kept unchanged is recognized by its entry, not by the number of its attempt",
        Change(_REWRITES, "_checked", "entry not in there", "entry.attempt == request.attempt"),
        _COMPACTION + "test_an_object_of_an_earlier_owner_that_stays_whole_may_have_the_number_of_the_attempt",
    ),
    Mutation(
        "a new owner deletes what its predecessor's root lists",
        Change("services.storage.owning.owned", "OwnedPartitions._partition", "taken.rewritten.root.obsolete", "()"),
        _COMPACTION + "test_another_owner_reads_and_continues",
    ),
    Mutation(
        "objects below the log start leave the root",
        Change(_CHOICE, "next_root", "entry.end > view.log_start", "True"),
        _COMPACTION + "test_a_log_start_within_a_rewritten_log",
    ),
    Mutation(
        "roots above that of the state show that the metadata is older",
        Change(
            "services.storage.owning.stored", "_unknown_root", "if key.number > state.root.number + 1:", "if False:"
        ),
        _COMPACTION + "test_metadata_older_than_the_roots_takes_the_partition_offline",
    ),
    Mutation(
        "an unreadable root is no empty log",
        Change("services.storage.reading.finder", "SegmentFinder._check_root", "rewritten.fault and ", "False and "),
        _COMPACTION + "test_a_missing_root_makes_only_the_rewritten_log_unreadable",
    ),
    Mutation(
        "a root that was unreadable is read again",
        Change(_REWRITES, "Rewrites._has_root", "rewritten is not None and rewritten.fault", "False"),
        _COMPACTION + "test_a_missing_root_makes_only_the_rewritten_log_unreadable",
    ),
    Mutation(
        "objects of ended attempts are deleted",
        Change(_REWRITES, "Rewrites._rewrite", "partition.ended_attempts.add(attempt)", "pass"),
        _COMPACTION + "test_objects_of_an_attempt_that_came_to_nothing_are_deleted",
    ),
    Mutation(
        "the objects that the root names are not swept",
        Change(_OBSOLETE, "Obsolete._named", "keys |= {str(key), str(key.index)}", "pass"),
        _COMPACTION + "test_another_owner_reads_and_continues",
    ),
    Mutation(
        "the delete horizon includes the grace and the longest rewrite",
        Change(
            _REWRITES,
            "Rewrites._compact",
            "config.delete_retention_ms + self._settings.rewrite_grace_ms + _LONGEST_MS",
            "config.delete_retention_ms",
        ),
        _COMPACTION + "test_a_tombstone_stays_for_its_time",
    ),
    Mutation(
        "a deleted topic leaves no rewritten objects",
        Change("services.storage.upkeep.deletion", "_Deletion._empty", "await self._empty_rewritten(index)", "pass"),
        _COMPACTION + "test_a_deleted_topic_leaves_no_rewritten_objects",
    ),
    Mutation(
        "the active segment is not compacted",
        Change(_CHOICE, "dirty", "cleanable = candidates[:active]", "cleanable = candidates[:]"),
        _COMPACTION + "test_records_of_the_active_segment_and_younger_ones_stay",
    ),
    Mutation(
        "records younger than the lag are not compacted",
        Change(_CHOICE, "dirty", "part.time_ms > now_ms - config.min_compaction_lag_ms", "False"),
        _COMPACTION + "test_records_younger_than_the_lag_stay",
    ),
    Mutation(
        "a rewritten log is counted by its root",
        Change(
            "services.storage.methods.known_counts",
            "counted_segments",
            "if offset < view.segments.through:",
            "if False:",
        ),
        _COMPACTION + "test_scans_and_counts_of_a_compacted_log",
    ),
    Mutation(
        "the last batch of a producer stays",
        Change(_REWRITES, "Rewrites._compact", "partition.committed_producers.last_batches()", "()"),
        _COMPACTION + "test_a_producer_is_known_although_its_records_are_gone",
    ),
    Mutation(
        "compaction does not pass what a new owner must read of producers",
        Change(_REWRITES, "Rewrites._compact", "await self._cover(partition, end)", "pass"),
        _COMPACTION + "test_a_producer_is_known_although_its_records_are_gone",
    ),
    Mutation(
        "no compaction begins while the log lacks records of a sink",
        Change(_REWRITES, "Rewrites._compact", "self._has_sink_epoch(partition)", "False"),
        _COMPACTION + "test_a_log_that_waits_for_a_sink_is_not_compacted",
    ),
    Mutation(
        "a merged object is not merged again",
        Change(_CHOICE, "merges_of", "if not part.is_segment or part.end > limit:", "if part.end > limit:"),
        _MERGING + "test_small_segments_become_one_object",
    ),
    Mutation(
        "a compacted object spans a part of what retention keeps",
        Change(_CHOICE, "steps_of", "part.time_ms - oldest_ms > longest_ms", "False"),
        _COMPACTION + "test_retention_removes_what_is_old_of_a_compacted_log",
    ),
    Mutation(
        "a pass that the log start has passed ends",
        Change(_REWRITES, "Rewrites._compact", "not has_bounds(parts, resumed.next_offset, resumed.end)", "False"),
        _COMPACTION + "test_a_log_start_above_an_interrupted_pass_ends_it",
    ),
    Mutation(
        "a delete that failed is sent again",
        Change(_REWRITES, "Rewrites._keep_up", "if partition.undeleted:", "if False:"),
        _COMPACTION + "test_replaced_objects_whose_delete_failed_are_deleted_later",
    ),
    Mutation(
        "few segments are not merged",
        Change(
            _CHOICE, "merges_of", "while merges and sum(map(len, merges)) < _LEAST_SHARE * len(merges):", "while False:"
        ),
        _MERGING + "test_a_merged_object_spans_only_a_part_of_what_retention_keeps",
    ),
    Mutation(
        "segments that were checked are not read at each check",
        Change(
            "services.storage.rewriting.parts",
            "LogParts._in_log",
            "segment.max_timestamp != UNKNOWN_TIME or base in learned.written_ms",
            "False",
        ),
        _MERGING + "test_checks_of_what_is_not_merged_yet_read_nothing",
    ),
    Mutation(
        "a rewrite ends when the topic does not ask for it any more",
        Change(
            _REWRITES,
            "_wanted",
            "config.merges and not config.compacted if rules is None else config.compacted",
            "True",
        ),
        _MERGING + "test_a_topic_that_is_not_merged_any_more_keeps_its_other_segments",
    ),
    Mutation(
        "a new owner knows its segments by catalog pages",
        Change("services.storage.rewriting.parts", "LogParts._in_log", "not learned.pages", "False"),
        _MERGING + "test_a_new_owner_reads_pages_instead_of_each_segment",
    ),
    Mutation(
        "an object of a dead owner does not end a part of the log",
        Change(
            "services.storage.rewriting.parts",
            "LogParts._in_log",
            "header.epoch != view.epoch_of(base)",
            "False",
        ),
        _COMPACTION + "test_a_dead_owners_object_inside_the_log_is_not_compacted",
    ),
    Mutation(
        "a topic decides for itself whether it is merged",
        Change(_REWRITES, "Rewrites._may_merge", "not partition.config.merges", 'self._settings.merge != "on"'),
        _MERGING + "test_a_merged_object_spans_only_a_part_of_what_retention_keeps",
    ),
    Mutation(
        "a merged object spans an eighth of what retention keeps",
        Change(_CHOICE, "within_retention", "config.retention_ms // _SHARE_OF_RETENTION", "config.retention_ms"),
        _MERGING + "test_a_merged_object_spans_only_a_part_of_what_retention_keeps",
    ),
    Mutation(
        "objects are read ahead up to a size",
        Change(
            "services.indexer.rewriting.read_ahead",
            "ReadAhead._begin",
            "self._bytes + size > self._most_bytes",
            "False",
        ),
        "tests/unit/indexer/test_rewrite_calls.py::test_objects_are_read_ahead_up_to_a_size_and_each_once",
    ),
    Mutation(
        "reads of a rewrite wait while the process is busy",
        Change("services.indexer.rewriting.give_way", "give_way", "_TIMES * (", "0 * ("),
        "tests/unit/indexer/test_rewrite_calls.py::test_a_busy_process_does_other_work_between_reads",
    ),
    Mutation(
        "a limited merge stores its object slowly",
        Change("services.indexer.rewriting.rewrites", "_Call._put", "body, send_seconds=send_seconds", "body"),
        "tests/unit/indexer/test_rewrite_calls.py::test_a_limited_merge_stores_its_object_slowly_and_reads_it_back_in_pieces",
    ),
    Mutation(
        "an object is passed in pieces to the process that rewrites",
        Change("services.indexer.rewriting.runners", "_InProcess._send", "if start:", "if False:"),
        _PIECES,
    ),
    Mutation(
        "an object is passed in pieces from the process that rewrites",
        Change("services.indexer.rewriting.runners", "_InProcess._read", "if done and", "if False and"),
        _PIECES,
    ),
    Mutation(
        "deletes of replaced objects rest",
        Change("services.storage.rewriting.obsolete", "Obsolete._delete_slowly", "min(_REST * (", "min(0 * ("),
        _MERGING + "test_replaced_objects_are_deleted_some_at_a_time",
    ),
)
