"""Code that breaks rules which are no pitfalls of the list."""

from tests.mutations.mutation import Mutation

_CACHE = "tests/unit/storage/test_cache.py::"
_COMMITTER = "tests/unit/storage/test_committer.py::"
_FENCING = "tests/unit/storage/test_fencing.py::"
_LEFTOVERS = "tests/unit/storage/test_leftovers.py::"
_LISTENER = "tests/unit/gateway/test_listener.py::"
_LIST = "tests/unit/storage/test_list_offsets.py::"
_LOAD = "tests/unit/storage/test_load.py::"
_READ = "tests/unit/storage/test_read_path.py::"
_WRITE = "tests/unit/storage/test_write_path.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    _breaking(
        "a take-over compares that the former owner is still gone",
        "services/storage/takeover.py",
        "compares.append(Unchanged(member_key, 0))",
        "pass",
        _FENCING + "test_an_owner_that_shows_up_during_the_take_over_keeps_its_partition",
    ),
    _breaking(
        "a lease that is not renewed proves nothing after a while",
        "kafscale/metadata/membership.py",
        "return self._clock() < self._deadline",
        "return True",
        _FENCING + "test_what_only_the_lease_proves_is_refused_when_it_is_not_renewed",
    ),
    _breaking(
        "acks=0 and 1 need a lease that is proven",
        "services/storage/placing.py",
        "(append.unacknowledged and not run.membership.proven)",
        "False",
        _FENCING + "test_what_only_the_lease_proves_is_refused_when_it_is_not_renewed",
    ),
    _breaking(
        "reads and offsets need a lease that is proven",
        "services/storage/refusal.py",
        "if not run.membership.proven and not (only_records and below_the_end):",
        "if False:",
        _FENCING + "test_what_only_the_lease_proves_is_refused_when_it_is_not_renewed",
    ),
    _breaking(
        "records below the end are read without a lease",
        "services/storage/refusal.py",
        "if not run.membership.proven and not (only_records and below_the_end):",
        "if not run.membership.proven:",
        _FENCING + "test_what_only_the_lease_proves_is_refused_when_it_is_not_renewed",
    ),
    _breaking(
        "acks=all needs no lease that is proven: its commit compares",
        "services/storage/placing.py",
        "(append.unacknowledged and not run.membership.proven)",
        "not run.membership.proven",
        _FENCING + "test_what_only_the_lease_proves_is_refused_when_it_is_not_renewed",
    ),
    _breaking(
        "a later owner's object is not replaced",
        "services/storage/flusher.py",
        "if epoch < partition.epoch:",
        "if True:",
        _FENCING + "test_an_object_of_a_later_owner_fences_and_is_not_replaced",
    ),
    _breaking(
        "only objects of lower epochs are replaced",
        "services/storage/flusher.py",
        "if epoch < partition.epoch:",
        "if epoch <= partition.epoch:",
        _FENCING + "test_an_object_of_no_lower_epoch_that_nothing_explains_is_not_replaced",
    ),
    _breaking(
        "an object of another epoch is not the log's",
        "services/storage/reader.py",
        "if header.epoch == key.epoch:",
        "if True:",
        _LEFTOVERS + "test_a_dead_owners_object_inside_the_log_is_passed_over",
    ),
    _breaking(
        "out of range is said only after asking the metadata",
        "services/storage/refusal.py",
        "now = await parts.metadata.get(key)",
        'now = None\n        return NotAvailable(Status.OFFSET_OUT_OF_RANGE, f"the log ends at {view.committed_end}")',
        _FENCING + "test_out_of_range_is_said_by_the_owner_only_and_only_when_the_metadata_says_so",
    ),
    _breaking(
        "out of range is said only by the owner",
        "services/storage/refusal.py",
        "if now is None or PartitionState.FromString(now.value).owner != run.membership.run_id:",
        "if now is None:",
        _FENCING + "test_out_of_range_is_said_by_the_owner_only_and_only_when_the_metadata_says_so",
    ),
    _breaking(
        "what is taken in and not committed yet is not out of range",
        "services/storage/refusal.py",
        "(view.committed_end if partition.offline else partition.buffer.next_offset)",
        "view.committed_end",
        _FENCING + "test_an_offset_that_is_given_and_not_committed_is_not_out_of_range",
    ),
    _breaking(
        "what the state has is not out of range",
        "services/storage/refusal.py",
        "if offset <= PartitionState.FromString(now.value).committed_end:",
        "if False:",
        _FENCING + "test_an_offset_that_the_state_has_is_not_out_of_range_for_an_offline_partition",
    ),
    _breaking(
        "a transaction has no more partitions than the metadata store takes",
        "services/storage/committer.py",
        "list(self._ready)[:_MOST_PARTITIONS]",
        "list(self._ready)",
        _COMMITTER + "test_more_partitions_than_fit_into_one_transaction_are_committed",
    ),
    _breaking(
        "a full cache drops what was used least recently",
        "services/storage/cache.py",
        "while self.used_bytes > self._capacity:",
        "while False:",
        _CACHE + "test_a_cache_holds_no_more_than_its_capacity",
    ),
    _breaking(
        "using a value keeps it",
        "services/storage/cache.py",
        "kept.values.move_to_end(key)",
        "pass",
        _CACHE + "test_what_was_used_last_goes_last",
    ),
    _breaking(
        "all partitions together have a bound on what they buffer",
        "services/storage/placing.py",
        "or run.buffered_bytes + len(records) > settings.buffer_bytes\n",
        "or False\n",
        _WRITE + "test_all_partitions_together_hold_no_more_than_the_bound_over_all",
    ),
    _breaking(
        "producers that are slowed get their replies as room comes back",
        "services/storage/placing.py",
        "buffer.end_of_first(too_much)",
        "buffer.end_of_first(1)",
        _WRITE + "test_a_producer_with_much_in_flight_is_slowed_and_never_refused",
    ),
    _breaking(
        "a connection has a bound on the bytes that are not answered",
        "services/gateway/connection.py",
        "max_in_flight_bytes=environment.settings.max_in_flight_bytes,",
        "max_in_flight_bytes=1 << 40,",
        "tests/unit/gateway/test_listener.py::test_requests_in_flight_are_bounded_and_all_are_answered_in_the_end",
    ),
    _breaking(
        "what is committed leaves the buffers' bound",
        "services/storage/run.py",
        "self.buffered_bytes -= partition.buffer.committed(buffers)",
        "partition.buffer.committed(buffers)",
        _WRITE + "test_all_partitions_together_hold_no_more_than_the_bound_over_all",
    ),
    _breaking(
        "what is lost leaves the buffers' bound",
        "services/storage/run.py",
        "self.buffered_bytes -= lost",
        "pass",
        _WRITE + "test_a_lost_partition_gives_its_room_in_the_buffers_back",
    ),
    _breaking(
        "only so many requests of a connection have tasks of their own",
        "services/gateway/connection.py",
        "self._tasks >= _MAX_TASKS",
        "False",
        _LISTENER + "test_requests_of_one_connection_that_wait_are_bounded_and_all_are_answered_in_the_end",
    ),
    _breaking(
        "a request that creates a topic is alone on its connection",
        "services/gateway/connection.py",
        "Order.ALONE if api.changes(call) else api.order",
        "api.order",
        "tests/unit/gateway/test_order.py::test_metadata_waits_for_a_parked_fetch_only_where_it_creates_a_topic",
    ),
    _breaking(
        "reads from the object store at the same time are bounded",
        "services/storage/reader.py",
        "trio.CapacityLimiter(reads_in_flight)",
        "trio.CapacityLimiter(1_000)",
        _LOAD + "test_reads_at_the_same_time_are_bounded",
    ),
    _breaking(
        "readers of one thing share its load",
        "services/storage/single_flight.py",
        "flight = self._flights.get(key)",
        "flight = None",
        _LOAD + "test_readers_of_one_cold_segment_share_its_reads",
    ),
    _breaking(
        "segments ahead of a reader are read",
        "services/storage/reader.py",
        "self._read_ahead(view, segment)",
        "pass",
        _LOAD + "test_segments_ahead_of_a_reader_are_read_before_it_asks",
    ),
    _breaking(
        "no more segments than set are read ahead",
        "services/storage/reader.py",
        "for _ in range(self._readahead):",
        "for _ in range(64):",
        _LOAD + "test_segments_ahead_of_a_reader_are_read_before_it_asks",
    ),
    _breaking(
        "segments of unknown time are looked at",
        "services/storage/offsets.py",
        "if segment.max_timestamp == UNKNOWN_TIME or segment.max_timestamp >= self._timestamp:",
        "if segment.max_timestamp >= self._timestamp:",
        _LIST + "test_a_time_is_found_in_segments_whose_times_are_not_known_yet",
    ),
    _breaking(
        "the largest time is looked for in all segments",
        "services/storage/offsets.py",
        "await (look_up.largest() if timestamp == MAX_TIMESTAMP else look_up.first())",
        "await look_up.first()",
        _LIST + "test_the_largest_time_of_all_is_looked_for_in_every_segment",
    ),
    _breaking(
        "the first segment with a match ends a look-up by time",
        "services/storage/offsets.py",
        "                        return found\n                    candidates = []\n        return await",
        "                        self.kept = getattr(self, 'kept', found)\n                    candidates = []\n"
        "        last = await self._locate(candidates)\n        return getattr(self, 'kept', None) or last or await",
        _LIST + "test_a_time_that_is_found_early_ends_the_look_up",
    ),
    _breaking(
        "a take-over lists only what lies above the end",
        "services/storage/takeover.py",
        '    start_after = paths.segment_key(namespace, ref.topic, ref.partition, end - 1) if end else ""\n',
        '    start_after = ""\n'
        "    while page := await objects.list_from(prefix, start_after, 1000):\n"
        "        start_after = page[-1].key\n"
        '    start_after = paths.segment_key(namespace, ref.topic, ref.partition, end - 1) if end else ""\n',
        _READ + "test_start_up_cost_does_not_grow_with_the_log",
    ),
    _breaking(
        "small records share a segment, however long they wait",
        "services/storage/run.py",
        "elif waiting >= settings.early_flush_bytes:",
        "elif waiting:",
        _WRITE + "test_a_buffer_that_goes_on_filling_or_holds_little_is_not_stored_early",
    ),
    _breaking(
        "a producer that waits is not kept waiting for the interval",
        "services/storage/run.py",
        "elif waiting >= settings.early_flush_bytes:",
        "elif False:",
        _WRITE + "test_a_buffer_whose_producers_wait_is_stored_before_its_interval_is_over",
    ),
    _breaking(
        "a stream is told how a partition stands when it subscribes",
        "services/storage/commits.py",
        "            self.tell(key, now())\n",
        "            pass\n",
        "tests/unit/storage/test_idempotence.py::test_sequences_are_remembered_over_a_kill_and_a_stop",
    ),
    _breaking(
        "an object of another epoch does not come back by a listing",
        "services/storage/finder.py",
        "if log.segments.belongs(key.base_offset):",
        "if True:",
        _LEFTOVERS + "test_the_log_is_found_below_a_dead_owners_object",
    ),
)
