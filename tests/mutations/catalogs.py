"""Naive code for catalog pages and topic objects, which are derived from segments and metadata."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_CATALOGS = "tests/unit/storage/test_catalogs.py::"
_PAGE = "tests/unit/catalog/test_page.py::"
_RETENTION = "tests/unit/storage/test_retention.py::"
_TOPIC_OBJECTS = "tests/unit/storage/test_topic_objects.py::"

MUTATIONS = (
    Mutation(
        "the segments of a page have the epochs of the history",
        Change(
            "kafscale.catalog.page",
            "misfit",
            "if not first <= segment.base_offset < segment.next_offset <= end:",
            "if False:",
        ),
        _CATALOGS + "test_a_page_of_a_stale_owner_with_uncommitted_segments_is_ignored",
    ),
    Mutation(
        "a page belongs to this topic and not to an earlier one of the same name",
        Change("kafscale.catalog.page", "misfit", "if content.topic_id != partition.topic_id:", "if False:"),
        _CATALOGS + "test_a_page_of_another_topic_with_the_same_name_is_ignored",
    ),
    Mutation(
        "a page is not trusted above the high watermark",
        Change(
            "kafscale.catalog.page",
            "misfit",
            "    if content.segments[-1].next_offset > high_watermark:\n",
            ("    high_watermark = max(high_watermark, content.segments[-1].next_offset)\n    if False:\n"),
        ),
        _CATALOGS + "test_a_page_beyond_the_high_watermark_is_ignored",
    ),
    Mutation(
        "a page lists committed segments, not stored ones",
        Change(
            "services.storage.run",
            "Run.__init__",
            "stored=self._committer.ready,",
            (
                "stored=lambda partition: (\n"
                "                self.catalogs.committed("
                "Commit(partition, partition.buffer.stored(), partition.state)),\n"
                "                self._committer.ready(partition),\n"
                "            ),"
            ),
        ),
        _CATALOGS + "test_a_page_lists_only_committed_segments",
    ),
    Mutation(
        "damage in a page is detected",
        Change("kafscale.catalog.page", "parse_page", "if computed != page.crc:", "if False:"),
        _PAGE + "test_no_damaged_byte_goes_unnoticed",
    ),
    Mutation(
        "lookups by time read pages, not segments",
        Change(
            "services.storage.reading.catalogs",
            "Catalogs.segments",
            "listed = await self._read(view, offset)",
            "listed: list[CatalogSegment] = []",
        ),
        _CATALOGS + "test_timestamps_are_looked_up_in_pages_after_a_restart",
    ),
    Mutation(
        "times reported by an indexer are kept",
        Change("services.storage.reading.offsets", "_LookUp._locate", "if newest != UNKNOWN_TIME:", "if False:"),
        _CATALOGS + "test_timestamps_are_looked_up_in_pages_after_a_restart",
    ),
    Mutation(
        "retention by time reads pages",
        Change(
            "services.storage.upkeep.retention",
            "Retention._too_old",
            "newest = await self._catalogs.age_from(partition.log, segment)",
            "pass",
        ),
        _CATALOGS + "test_retention_by_time_reads_pages_after_a_restart",
    ),
    Mutation(
        "the largest time is searched only where it can be",
        Change(
            "services.storage.reading.offsets",
            "_LookUp._largest_of",
            "if segment.max_timestamp == UNKNOWN_TIME or minimum <= segment.max_timestamp <= maximum:",
            "if True:",
        ),
        _CATALOGS + "test_the_largest_timestamp_is_looked_up_in_pages",
    ),
    Mutation(
        "a page continues where the last one ends",
        Change("services.storage.reading.catalogs", "Catalogs._store_full", "page.prepend(found)", "page.prepend([])"),
        _CATALOGS + "test_a_new_owner_continues_the_pages_of_the_former_one",
    ),
    Mutation(
        "a page that cannot be stored is not retried with every commit",
        Change(
            "services.storage.reading.catalogs",
            "Catalogs.committed",
            "page.full and not page.under_way and trio.current_time() >= page.not_before",
            "page.full and not page.under_way",
        ),
        _CATALOGS + "test_producers_do_not_wait_for_pages_and_a_failed_page_is_stored_later",
    ),
    Mutation(
        "the number of pages that are not stored is limited",
        Change("services.storage.log.pages", "UnfinishedPage.add", "if len(self.segments) > MAX_WAITING:", "if False:"),
        _CATALOGS + "test_segments_that_wait_for_a_page_are_bounded",
    ),
    Mutation(
        "a segment that has left the cache is not the last one",
        Change(
            "services.storage.reading.finder",
            "SegmentFinder.after",
            "known = log.segments.after(segment) or next(iter(found), None)",
            "known = log.segments.after(segment)",
        ),
        _RETENTION + "test_retention_keeps_young_segments_in_a_log_larger_than_the_segment_map",
    ),
    Mutation(
        "cached pages that are too old are not read again",
        Change(
            "services.storage.reading.catalogs",
            "Catalogs.segments",
            "if page is not None and page.read and page.newest < at_least:",
            "if False:",
        ),
        _CATALOGS + "test_lookups_in_a_log_larger_than_the_segment_map_read_few_pages",
    ),
    Mutation(
        "a page is deleted when all its segments are below the log start",
        Change(
            "services.storage.reading.catalogs",
            "Catalogs.keys_below",
            "doomed = [name for name in names if whole or name.base_offset < names[-1].base_offset]",
            "doomed = names",
        ),
        _CATALOGS + "test_retention_by_time_reads_pages_after_a_restart",
    ),
    Mutation(
        "only an owner with a proven lease deletes pages",
        Change(
            "services.storage.owning.deletes",
            "OwnerDeletes._delete",
            "if partition.closed or partition.moving or not self._membership.proven:",
            "if partition.closed or partition.moving:",
        ),
        _CATALOGS + "test_pages_are_deleted_after_the_log_start_moved_and_only_with_a_proven_lease",
    ),
    Mutation(
        "a deleted topic leaves no pages",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._empty",
            "                paths.catalog_prefix(self._namespace, self._topic.name, index),\n",
            "",
        ),
        _CATALOGS + "test_pages_are_deleted_with_their_topic",
    ),
    Mutation(
        "a deleted topic leaves no topic object",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._empty",
            "await self._delete([paths.topic_object_key(self._namespace, self._topic.name)])",
            "pass",
        ),
        _TOPIC_OBJECTS + "test_the_bucket_alone_describes_topics_and_their_logs",
    ),
    Mutation(
        "an older revision of a topic object does not replace a newer one",
        Change(
            "services.storage.upkeep.topic_objects",
            "TopicObjects._put",
            "(found.same_as(current) or found.metadata_revision > current.metadata_revision)",
            "found.same_as(current)",
        ),
        _TOPIC_OBJECTS + "test_a_newer_topic_object_is_kept_and_a_damaged_one_replaced",
    ),
    Mutation(
        "one member writes a topic's object",
        Change(
            "services.storage.upkeep.topic_objects",
            "TopicObjects._is_assigned",
            "return assigned is not None and assigned.run_id == self._membership.run_id",
            "return assigned is not None",
        ),
        _TOPIC_OBJECTS + "test_one_instance_writes_topic_objects_and_another_continues_when_it_dies",
    ),
    Mutation(
        "several changes of a topic share one write of its object",
        Change(
            "services.storage.upkeep.topic_objects",
            "TopicObjects._write_due",
            "self._not_before[topic_id] = now + SECONDS_BETWEEN",
            "pass",
        ),
        _TOPIC_OBJECTS + "test_changes_to_a_topic_share_writes",
    ),
    Mutation(
        "an unchanged topic costs no request",
        Change(
            "services.storage.upkeep.topic_objects",
            "TopicObjects._write",
            "if current is not None and (stored is None or not stored.same_as(current)):",
            "if current is not None:",
        ),
        _TOPIC_OBJECTS + "test_unchanged_topics_cause_no_requests_to_the_object_store",
    ),
    Mutation(
        "a late object of a deleted topic is deleted",
        Change(
            "services.storage.upkeep.topic_objects", "TopicObjects.run", "                    await self._sweep()\n", ""
        ),
        _TOPIC_OBJECTS + "test_a_topic_object_stored_after_the_deletion_is_deleted_later",
    ),
    Mutation(
        "the deletion of a late object spares the object of a new topic",
        Change("services.storage.upkeep.topic_objects", "TopicObjects._delete_late", "await self._put(again)", "pass"),
        _TOPIC_OBJECTS + "test_a_recreated_topic_keeps_its_object_when_a_late_one_is_deleted",
    ),
    Mutation(
        "a topic missing in the metadata is no reason to delete its object",
        Change(
            "services.storage.upkeep.topic_objects",
            "TopicObjects._follow_topics",
            "if not topic.live and topic.id not in view.by_id",
            "if topic.id not in view.by_id",
        ),
        _TOPIC_OBJECTS + "test_an_object_of_an_unknown_topic_is_kept",
    ),
)
