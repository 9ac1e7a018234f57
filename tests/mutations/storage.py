"""Naive storage and indexer services, and naive files that they write."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_DAMAGE = "tests/unit/segment/test_damage.py::"
_INDEX = "tests/unit/indexer/test_index.py::"
_LIST_OFFSETS = "tests/unit/storage/test_list_offsets.py::"
_OWNERSHIP = "tests/unit/storage/test_ownership.py::"
_READ_PATH = "tests/unit/storage/test_read_path.py::"
_TIMES = "tests/unit/indexer/test_times.py::"
_WRITE_PATH = "tests/unit/storage/test_write_path.py::"

MUTATIONS = (
    Mutation(
        "a flush that finds an empty buffer succeeds although another flush is still running",
        Change(
            "services.storage.methods.flush",
            "_end",
            "return one.log.high_watermark if for_plan else one.buffer.next_offset",
            "return one.log.high_watermark",
        ),
        _WRITE_PATH + "test_a_failed_flush_acks_no_append",
    ),
    Mutation(
        "only an append checks the interval",
        Change("services.storage.run", "Run.start", "self._nursery.start_soon(self.buffers.run)", "pass"),
        _WRITE_PATH + "test_a_buffer_is_flushed_after_the_interval_and_at_shutdown",
    ),
    Mutation(
        "a shutdown does not flush",
        Change(
            "services.storage.run",
            "Run.drain",
            (
                "            for partition in self.owned:\n"
                '                self.buffers.seal(partition, "hand_over")\n'
                "            await self._announce_leaving()\n"
                "            await self.assignment.hand_over_all()\n"
            ),
            "            pass\n",
        ),
        _WRITE_PATH + "test_a_buffer_is_flushed_after_the_interval_and_at_shutdown",
    ),
    Mutation(
        "a flush follows every append",
        Change(
            "services.storage.writing.buffers", "Buffers.look_at", "if waiting and due <= now and", "if waiting and"
        ),
        _WRITE_PATH + "test_appends_within_one_interval_share_a_segment",
    ),
    Mutation(
        "the partitions of one request are sealed one after another",
        Change("services.storage.methods.flush", "flush", 'run.buffers.seal(one, "request")', "continue"),
        _WRITE_PATH + "test_partitions_of_one_request_are_flushed_together",
    ),
    Mutation(
        "the footer's checksum is not checked",
        Change("kafscale.segment.reader", "parse_segment", "if computed != footer.crc:", "if False:"),
        _DAMAGE + "test_every_damaged_byte_of_a_segment_is_detected_or_harmless",
    ),
    Mutation(
        "batches are returned as they come from the object store",
        Change("kafscale.segment.reader", "linked_batches", "if check:", "if False:"),
        _READ_PATH + "test_damaged_segments_are_reported_and_not_returned",
    ),
    Mutation(
        "an unreadable segment counts as one without a match",
        Change(
            "services.indexer.times",
            "TimeSearch._first",
            (
                "                if isinstance(found, KafscaleError):\n"
                "                    raise found\n"
                "                if found is not None:\n"
            ),
            "                if found is not None and not isinstance(found, KafscaleError):\n",
        ),
        _TIMES + "test_a_damaged_or_missing_segment_is_reported_and_never_skipped",
    ),
    Mutation(
        "a deleted topic's objects stay",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._empty",
            "while page := await self._objects.list_from(prefix, after, _PAGE):",
            "for page in ():",
        ),
        _OWNERSHIP + "test_a_recreated_topic_is_empty",
    ),
    Mutation(
        "an object is written for every interval, even without records",
        Change(
            "services.storage.run",
            "Run.start",
            "        self._nursery.start_soon(self._configs.run)\n",
            (
                "        async def mark() -> None:\n"
                "            while True:\n"
                "                await trio.sleep(1)\n"
                "                name = f'{self._deps.namespace}/{trio.current_time()}'\n"
                "                await self._deps.objects.put_if_absent(name, b'')\n"
                "\n"
                "        self._nursery.start_soon(mark)\n"
            ),
        ),
        _WRITE_PATH + "test_an_idle_partition_causes_no_requests",
    ),
    Mutation(
        "only the first batch of a record set is placed",
        Change("services.storage.log.buffer", "WriteBuffer.append", "in batches:", "in list(batches)[:1]:"),
        _WRITE_PATH + "test_every_batch_of_an_append_is_readable_after_the_commit",
    ),
    Mutation(
        "a range that does not reach the offset is the answer",
        Change("services.storage.reading.reader", "Reader._scan", "length *= 4", 'return b"", offset'),
        _READ_PATH + "test_small_batches_beyond_one_index_interval_do_not_stall",
    ),
    Mutation(
        "a limit cuts through a batch: from the object store, and from the cache",
        Change(
            "services.storage.reading.reader",
            "Reader._scan",
            "return StoredRange(piece[start:end], entry.position + start, following)",
            "return StoredRange(piece[start:end][:max_bytes], entry.position + start, following)",
        ),
        _READ_PATH + "test_a_batch_above_the_limit_is_returned_whole",
    ),
    Mutation(
        "a batch above the limit is returned completely",
        Change(
            "services.storage.reading.cache",
            "CachedSegment.cut",
            "last = max(last, first + 1)",
            "return memoryview(self.data)[start : start + max_bytes], self.next_offset",
        ),
        _READ_PATH + "test_a_batch_above_the_limit_is_returned_whole",
    ),
    Mutation(
        "the batch with the offset is skipped: in the cache, and in the object store",
        Change(
            "services.storage.reading.cache",
            "CachedSegment.first_for",
            "bisect_right(self.offsets, offset) - 1",
            "bisect_right(self.offsets, offset - 1)",
        ),
        _READ_PATH + "test_an_offset_inside_a_batch_gives_that_batch",
    ),
    Mutation(
        "an offset in the middle of a batch returns that batch",
        Change(
            "services.storage.reading.reader",
            "Reader._scan",
            "if header.next_offset <= offset:",
            "if header.base_offset < offset:",
        ),
        _READ_PATH + "test_an_offset_inside_a_batch_gives_that_batch",
    ),
    Mutation(
        "no result below the end is an empty answer",
        Change(
            "services.storage.reading.reader",
            "Reader.range",
            'raise lacking(f"{self.key(view, segment)} does not hold offset {offset}")',
            'return StoredRange(b"", 0, offset)',
        ),
        _READ_PATH + "test_a_missing_segment_is_reported_and_does_not_move_the_log_start",
    ),
    Mutation(
        ("a lookup by timestamp returns the end, always or without a later record; or the beginning of its batch"),
        Change(
            "services.storage.reading.offsets", "list_offset", "if timestamp == LATEST:", "if timestamp != EARLIEST:"
        ),
        _LIST_OFFSETS + "test_a_timestamp_gives_the_first_record_at_or_after_it",
    ),
    Mutation(
        "a lookup by time returns the first record at or after it",
        Change(
            "services.storage.reading.offsets",
            "list_offset",
            "else _answer(view, -1, -1)",
            "else _answer(view, view.high_watermark, -1)",
        ),
        _LIST_OFFSETS + "test_a_timestamp_gives_the_first_record_at_or_after_it",
    ),
    Mutation(
        "a lookup by time finds the first record at or after it inside the batch",
        Change(
            "kafscale.segment.search",
            "first_at_or_after",
            "return FoundRecord(*found, segment.positions[number])",
            "return FoundRecord(segment.offsets[number], found[1], segment.positions[number])",
        ),
        _TIMES + "test_a_lookup_returns_the_first_record_at_or_after_a_time_inside_its_batch",
    ),
    Mutation(
        "a partition's own limit is ignored",
        Change(
            "services.storage.methods.fetch",
            "_fetch_one",
            "limit = min(fetch.max_bytes, remaining)",
            "limit = remaining",
        ),
        _READ_PATH + "test_limits_apply_per_partition_and_in_total",
    ),
    Mutation(
        (
            "a name is free when its prefix is empty, although a put is in flight from an owner that "
            "released it, that died, or that may still be alive"
        ),
        Change(
            "services.storage.owning.handover",
            "HandOver.release",
            "partition.may_land(self._objects.settle_seconds)",
            "False",
        ),
        _OWNERSHIP + "test_a_deletion_waits_for_requests_that_may_still_apply",
    ),
    Mutation(
        "the name waits for late requests of a dead owner",
        Change(
            "services.storage.owning.owned",
            "OwnedPartitions._partition",
            "partition.unclean = taken.unclean",
            "partition.unclean = False",
        ),
        _OWNERSHIP + "test_a_deletion_waits_for_requests_of_a_dead_owner",
    ),
    Mutation(
        "the name waits for late requests of a dead owner",
        Change(
            "services.storage.log.partition",
            "Partition.may_land",
            "self.taken_at if self.unclean else -math.inf",
            "-math.inf",
        ),
        _OWNERSHIP + "test_a_deletion_waits_for_requests_of_a_dead_owner",
    ),
    Mutation(
        "the name waits for late requests of a dead owner",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._take",
            "if state.unclean or state.owner:",
            "if state.unclean:",
        ),
        _OWNERSHIP + "test_a_deletion_waits_for_requests_of_a_dead_owner",
    ),
    Mutation(
        "a topic is identified by its name by a process that waited to delete it",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._take",
            "if topic is None or Topic.FromString(topic.value).id != self._topic.id:",
            "if topic is None:",
        ),
        _OWNERSHIP + "test_an_instance_that_missed_a_deletion_leaves_the_recreated_topic_alone",
    ),
    Mutation(
        "the name waits for an owner whose lease is still valid",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._take",
            (
                'raise Unavailable(f"run {state.owner} still owns {self._topic.name}-{index}")\n'
                "                compares.append(Unchanged(member_key, 0))\n"
            ),
            "pass\n",
        ),
        _OWNERSHIP + "test_a_deletion_waits_for_an_owner_with_a_valid_lease",
    ),
    Mutation(
        "a topic is identified by its name",
        Change("services.storage.owning.takeover", "checked_topic", "if topic.id != ref.topic_id:", "if False:"),
        _OWNERSHIP + "test_a_recreated_topic_is_empty",
    ),
    Mutation(
        "one missing segment moves the log start",
        Change(
            "services.storage.reading.reader",
            "Reader._missing",
            "view.segments.forget_stretch(segment.base_offset)",
            "view.log_start = segment.base_offset + 1",
        ),
        _READ_PATH + "test_a_missing_segment_is_reported_and_does_not_move_the_log_start",
    ),
    Mutation(
        "the cache is filled by the put",
        Change(
            "services.storage.run",
            "Run.__init__",
            "stored=self._committer.ready,",
            (
                "stored=lambda partition: (\n"
                "                self.reader.committed(\n"
                "                    Commit(partition, partition.buffer.stored(), partition.state)\n"
                "                ),\n"
                "                self._committer.ready(partition),\n"
                "            ),\n"
            ),
        ),
        _READ_PATH + "test_uncommitted_segments_do_not_enter_the_cache",
    ),
    Mutation(
        "a misleading index is read again instead of being rebuilt",
        Change(
            "services.storage.reading.reader",
            "Reader._index",
            "found = None if rebuild else await self._stored_index(view, segment)",
            "found = await self._stored_index(view, segment)",
        ),
        _READ_PATH + "test_a_wrong_index_is_rebuilt",
    ),
    Mutation(
        "a misleading index makes its segment unreadable",
        Change(
            "services.storage.reading.reader",
            "Reader.range",
            "for rebuild in (False, True):",
            "for rebuild in (False,):",
        ),
        _READ_PATH + "test_a_wrong_index_is_rebuilt",
    ),
    Mutation(
        "a batch is assumed to be the one that the index promised",
        Change(
            "kafscale.segment.reader",
            "linked_batches",
            "fault = link_fault(found, expected, epoch or 0, exact=exact)",
            "fault = None",
        ),
        _DAMAGE + "test_the_index_of_another_owners_segment_is_detected_in_use",
    ),
    Mutation(
        "a rebuilt index replaces any index that exists by then",
        Change(
            "services.indexer.stored",
            "StoredSegments.write_index",
            "return False",
            "await self._store.replace_if_match(key, data, (await self._store.head(key)).etag)",
        ),
        _INDEX + "test_rebuild_never_replaces_the_index_that_another_owner_wrote_meanwhile",
    ),
)
