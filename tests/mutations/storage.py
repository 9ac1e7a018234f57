"""Naive storage and indexer services, and naive files that they write."""

from tests.mutations.mutation import Mutation

_COMMITTER = "tests/unit/storage/test_committer.py::"
_LIST = "tests/unit/storage/test_list_offsets.py::"
_WRITE = "tests/unit/storage/test_write_path.py::"
_READ = "tests/unit/storage/test_read_path.py::"
_OWN = "tests/unit/storage/test_ownership.py::"
_DAMAGE = "tests/unit/segment/test_damage.py::"
_TIMES = "tests/unit/indexer/test_times.py::"
_INDEX = "tests/unit/indexer/test_index.py::"

MUTATIONS = (
    # A put that failed counts as done: its records are acked.
    Mutation(
        (1,),
        "services/storage/flusher.py",
        'log.warning("put failed, kept and tried again", key=key, error=str(error))',
        "return",
        _WRITE + "test_pitfall_01_failed_flush_is_not_success_for_anyone",
    ),
    # Who finds the buffer empty, since another one's flush is under way, is told of success.
    Mutation(
        (1,),
        "services/storage/run.py",
        "end = partition.buffer.next_offset",
        "end = partition.buffer.next_offset if partition.buffer.open_bytes else partition.log.committed_end",
        _WRITE + "test_pitfall_01_failed_flush_is_not_success_for_anyone",
    ),
    # Nothing looks at the interval but an append.
    Mutation(
        (2,),
        "services/storage/run.py",
        "self._nursery.start_soon(self._timers.run)",
        "pass",
        _WRITE + "test_pitfall_02_idle_buffer_is_flushed_by_time_and_by_shutdown",
    ),
    # Shutdown does not flush.
    Mutation(
        (2,),
        "services/storage/run.py",
        '            for partition in self.owned:\n                self.seal(partition, "hand_over")\n'
        "            await self._tell_leaving()\n            await self.assignment.give_all()\n",
        "            pass\n",
        _WRITE + "test_pitfall_02_idle_buffer_is_flushed_by_time_and_by_shutdown",
    ),
    # A flush after every append.
    Mutation(
        (3,),
        "services/storage/run.py",
        "if waiting and due <= now:",
        "if waiting:",
        _WRITE + "test_pitfall_03_appends_within_one_interval_share_a_segment",
    ),
    # One upload at a time.
    Mutation(
        (4,),
        "services/storage/flusher.py",
        "                await attempt()\n",
        '                async with globals().setdefault("_one_at_a_time", trio.Lock()):\n'
        "                    await attempt()\n",
        _WRITE + "test_pitfall_04_partitions_of_one_request_are_flushed_together",
    ),
    # The partitions of one request are sealed one after another.
    Mutation(
        (4,),
        "services/storage/service.py",
        'run.seal(one, "request")',
        "continue",
        _WRITE + "test_pitfall_04_partitions_of_one_request_are_flushed_together",
    ),
    # The end moves before the object is there.
    Mutation(
        (6,),
        "services/storage/flusher.py",
        "                index = await self._index(segment)\n",
        "                index = await self._index(segment)\n"
        "                buffer.segment = segment\n"
        "                self._stored(partition)\n",
        _WRITE + "test_pitfall_06_end_moves_only_after_object_and_metadata",
    ),
    # The end moves though the transaction was not answered.
    Mutation(
        (6,),
        "services/storage/committer.py",
        "await outage.pause(error, partitions=len(entries))",
        "[self._apply(entry, entry.compare) for entry in entries]\n                return",
        _WRITE + "test_pitfall_06_end_does_not_move_while_the_commit_is_not_answered",
    ),
    # A failed upload gives its offsets back.
    Mutation(
        (7,),
        "services/storage/flusher.py",
        'log.warning("put failed, kept and tried again", key=key, error=str(error))',
        "partition.buffer._open.next_offset = partition.log.committed_end",
        _WRITE + "test_pitfall_07_offsets_are_not_given_twice_after_a_failed_upload",
    ),
    # The footer's checksum is not looked at.
    Mutation(
        (11,),
        "kafscale/segment/reader.py",
        "if computed != footer.crc:",
        "if False:",
        _DAMAGE + "test_pitfall_11_every_damaged_byte_of_a_segment_is_detected_or_harmless",
    ),
    # Batches are given as they come from the object store.
    Mutation(
        (11,),
        "kafscale/segment/reader.py",
        "if check:",
        "if False:",
        _READ + "test_pitfall_11_damaged_bytes_are_an_error_not_an_answer",
    ),
    # A segment that cannot be read counts as one without a match.
    Mutation(
        (11,),
        "services/indexer/times.py",
        "                if isinstance(found, KafscaleError):\n                    raise found\n"
        "                if found is not None:\n",
        "                if found is not None and not isinstance(found, KafscaleError):\n",
        _TIMES + "test_pitfall_11_a_damaged_or_missing_segment_is_reported_and_never_skipped",
    ),
    # A deleted topic's objects stay.
    Mutation(
        (12,),
        "services/storage/deletion.py",
        "while page := await self._objects.list_from(prefix, after, _PAGE):",
        "for page in ():",
        _OWN + "test_pitfall_12_and_51_a_deleted_topics_name_comes_back_empty",
    ),
    # An object for every interval, whatever was produced.
    Mutation(
        (15,),
        "services/storage/run.py",
        "        self._nursery.start_soon(self._configs.run)\n",
        "        async def mark() -> None:\n"
        "            while True:\n"
        "                await trio.sleep(1)\n"
        "                name = f'{self._parts.namespace}/{trio.current_time()}'\n"
        "                await self._parts.objects.put_if_absent(name, b'')\n\n"
        "        self._nursery.start_soon(mark)\n",
        _WRITE + "test_pitfall_15_an_idle_partition_costs_no_put",
    ),
    # Only the first batch of a record set is placed.
    Mutation(
        (16,),
        "services/storage/buffer.py",
        "in walk(records):",
        "in list(walk(records))[:1]:",
        _WRITE + "test_pitfall_16_every_batch_of_an_append_is_read_back_after_commit",
    ),
    # What stands at our name is never ours.
    Mutation(
        (19,),
        "services/storage/flusher.py",
        "if there.body == data:",
        "if False:",
        _WRITE + "test_pitfall_19_own_put_of_lost_answer_is_not_taken_for_fencing",
    ),
    # Every name that is taken is fencing.
    Mutation(
        (19,),
        "services/storage/flusher.py",
        "await self._claim(partition, key, segment.data)",
        'raise Fenced(f"{key} is taken")',
        _WRITE + "test_pitfall_19_own_put_of_lost_answer_is_not_taken_for_fencing",
    ),
    # A range that does not reach the offset is the answer.
    Mutation(
        (21,),
        "services/storage/reader.py",
        "length *= 4",
        'return b"", offset',
        _READ + "test_pitfall_21_small_batches_beyond_one_index_interval_do_not_stall",
    ),
    # A limit cuts through a batch: from the object store, and from the cache.
    Mutation(
        (22,),
        "services/storage/reader.py",
        "return StoredRange(piece[start:end], entry.position + start, following)",
        "return StoredRange(piece[start:end][:max_bytes], entry.position + start, following)",
        _READ + "test_pitfall_22_a_batch_above_the_limit_comes_whole",
    ),
    Mutation(
        (22,),
        "services/storage/cache.py",
        "last = max(last, first + 1)",
        "return memoryview(self.data)[start : start + max_bytes], self.next_offset",
        _READ + "test_pitfall_22_a_batch_above_the_limit_comes_whole",
    ),
    # The batch that holds the offset is skipped: in the cache, and in the object store.
    Mutation(
        (24,),
        "services/storage/cache.py",
        "bisect_right(self.offsets, offset) - 1",
        "bisect_right(self.offsets, offset - 1)",
        _READ + "test_pitfall_24_middle_of_a_batch_gives_that_batch",
    ),
    Mutation(
        (24,),
        "services/storage/reader.py",
        "if header.next_offset <= offset:",
        "if header.base_offset < offset:",
        _READ + "test_pitfall_24_middle_of_a_batch_gives_that_batch",
    ),
    # Nothing found below the end is an empty answer.
    Mutation(
        (25,),
        "services/storage/reader.py",
        'raise lacking(f"{self.key(view, segment)} does not hold offset {offset}")',
        'return StoredRange(b"", 0, offset)',
        _READ + "test_pitfall_25_and_57_a_hole_in_the_middle_is_reported_and_moves_nothing",
    ),
    # A timestamp gives the end: always, and where no record is as young; or the beginning of its batch.
    Mutation(
        (26,),
        "services/storage/offsets.py",
        "if timestamp == LATEST:",
        "if timestamp != EARLIEST:",
        _LIST + "test_pitfall_26_a_time_gives_the_first_record_at_or_after_it",
    ),
    Mutation(
        (26,),
        "services/storage/offsets.py",
        "else _answer(view, -1, -1)",
        "else _answer(view, view.committed_end, -1)",
        _LIST + "test_pitfall_26_a_time_gives_the_first_record_at_or_after_it",
    ),
    Mutation(
        (26,),
        "kafscale/segment/search.py",
        "return FoundRecord(*found, segment.positions[number])",
        "return FoundRecord(segment.offsets[number], found[1], segment.positions[number])",
        _TIMES + "test_pitfall_26_a_time_finds_the_first_record_at_or_after_it_inside_the_batch",
    ),
    # A partition's own limit is ignored.
    Mutation(
        (27,),
        "services/storage/fetches.py",
        "limit = min(fetch.max_bytes, left)",
        "limit = left",
        _READ + "test_pitfall_27_limits_hold_for_each_partition_and_over_all",
    ),
    # A commit that had applied before its answer was lost is somebody else's.
    Mutation(
        (48,),
        "services/storage/committer.py",
        "if now is not None and now.value == entry.value:",
        "if False:",
        _WRITE + "test_pitfall_48_commit_of_unknown_outcome_is_repeated_as_it_was",
    ),
    # A commit without answer has failed: its records are dropped and their offsets given again.
    Mutation(
        (48,),
        "services/storage/committer.py",
        "await outage.pause(error, partitions=len(entries))",
        "for entry in entries:\n"
        "                    end, buffer = entry.partition.log.committed_end, entry.partition.buffer\n"
        "                    buffer._open = Buffer(end, end)\n"
        "                    buffer._sealed.clear()\n"
        "                return",
        _WRITE + "test_pitfall_48_commit_of_unknown_outcome_is_repeated_as_it_was",
    ),
    # A name is free as soon as its prefix is empty, while a put is on its way there: the owner's who gave it back; a
    # dead owner's, whose partition was taken over, or was not; an owner's that may still be alive.
    Mutation(
        (51,),
        "services/storage/handover.py",
        "partition.may_land(self._objects.settle_seconds)",
        "False",
        _OWN + "test_pitfall_51_the_name_waits_for_requests_that_may_still_land",
    ),
    Mutation(
        (51,),
        "services/storage/owned.py",
        "partition.unclean = taken.unclean",
        "partition.unclean = False",
        _OWN + "test_pitfall_51_the_name_waits_for_what_a_dead_owner_sent",
    ),
    Mutation(
        (51,),
        "services/storage/partition.py",
        "self.taken_at if self.unclean else -math.inf",
        "-math.inf",
        _OWN + "test_pitfall_51_the_name_waits_for_what_a_dead_owner_sent",
    ),
    Mutation(
        (51,),
        "services/storage/deletion.py",
        "if state.unclean or state.owner:",
        "if state.unclean:",
        _OWN + "test_pitfall_51_the_name_waits_for_what_a_dead_owner_sent",
    ),
    # A topic is its name, for who waited to delete it.
    Mutation(
        (51,),
        "services/storage/deletion.py",
        "if topic is None or Topic.FromString(topic.value).id != self._topic.id:",
        "if topic is None:",
        _OWN + "test_pitfall_51_who_did_not_get_to_delete_a_topic_leaves_its_successor_alone",
    ),
    Mutation(
        (51,),
        "services/storage/deletion.py",
        'raise Unavailable(f"run {state.owner} still owns {self._topic.name}-{index}")\n'
        "                compares.append(Unchanged(member_key, 0))\n",
        "pass\n",
        _OWN + "test_pitfall_51_the_name_waits_for_an_owner_whose_lease_still_holds",
    ),
    # A topic is its name.
    Mutation(
        (51,),
        "services/storage/takeover.py",
        "if topic.id != ref.topic_id:",
        "if False:",
        _OWN + "test_pitfall_12_and_51_a_deleted_topics_name_comes_back_empty",
    ),
    # One segment that is missing moves the log's start.
    Mutation(
        (57,),
        "services/storage/reader.py",
        "view.segments.forget_stretch(segment.base_offset)",
        "view.log_start = segment.base_offset + 1",
        _READ + "test_pitfall_25_and_57_a_hole_in_the_middle_is_reported_and_moves_nothing",
    ),
    # The cache is filled by the put.
    Mutation(
        (58,),
        "services/storage/run.py",
        "stored=self._committer.ready,",
        "stored=lambda partition: (\n"
        "                [\n"
        "                    self.reader.segments.put(\n"
        "                        SegmentId(partition.topic.id, partition.ref.partition, s.base_offset, s.epoch),\n"
        "                        CachedSegment(s.data, s.offsets, s.positions, s.next_offset, s.max_timestamp_ms),\n"
        "                    )\n"
        "                    for s in [buffer.segment for buffer in partition.buffer.stored()]\n"
        "                ],\n"
        "                self._committer.ready(partition),\n"
        "            ),\n",
        _READ + "test_pitfall_58_what_is_put_but_not_committed_does_not_enter_the_cache",
    ),
    # One fenced partition takes along all those whose commits share its transaction.
    Mutation(
        (63,),
        "services/storage/committer.py",
        "again.append(entry)",
        "self._fenced(entry.partition, _who(now))",
        _COMMITTER + "test_pitfall_63_a_fenced_partition_does_not_take_others_of_its_transaction_along",
    ),
    # Whatever index stands at our name is taken for ours.
    Mutation(
        (64,),
        "services/storage/flusher.py",
        "if there.body != index:",
        "if False:",
        _WRITE + "test_pitfall_64_a_dead_owners_index_at_our_name_is_replaced",
    ),
    # The index that led astray is read again instead of being rebuilt.
    Mutation(
        (64,),
        "services/storage/reader.py",
        "found = None if rebuild else await self._stored_index(view, segment)",
        "found = await self._stored_index(view, segment)",
        _READ + "test_pitfall_64_an_index_that_leads_astray_is_rebuilt",
    ),
    # An index that leads astray makes its segment unreadable.
    Mutation(
        (64,),
        "services/storage/reader.py",
        "for rebuild in (False, True):",
        "for rebuild in (False,):",
        _READ + "test_pitfall_64_an_index_that_leads_astray_is_rebuilt",
    ),
    # A batch is taken for the one that the index promised.
    Mutation(
        (64,),
        "kafscale/segment/reader.py",
        "fault = link_fault(found, expected, epoch or 0, exact=exact)",
        "fault = None",
        _DAMAGE + "test_pitfall_64_the_index_of_another_owners_segment_is_found_out_in_use",
    ),
    # A rebuilt index replaces whatever stands there by then.
    Mutation(
        (64,),
        "services/indexer/stored.py",
        "return False",
        "await self._store.replace_if_match(key, data, (await self._store.head(key)).etag)",
        _INDEX + "test_pitfall_64_a_rebuild_never_replaces_the_index_of_an_owner_that_wrote_meanwhile",
    ),
)
