"""Code that breaks rules of several services."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_CACHE = "tests/unit/storage/test_cache.py::"
_COMMITTER = "tests/unit/storage/test_committer.py::"
_FENCING = "tests/unit/storage/test_fencing.py::"
_IDEMPOTENCE = "tests/unit/storage/test_idempotence.py::"
_LEFTOVERS = "tests/unit/storage/test_leftovers.py::"
_LISTENER = "tests/unit/gateway/test_listener.py::"
_LIST_OFFSETS = "tests/unit/storage/test_list_offsets.py::"
_LOAD = "tests/unit/storage/test_load.py::"
_ORDER = "tests/unit/gateway/test_order.py::"
_READ_PATH = "tests/unit/storage/test_read_path.py::"
_WRITE_PATH = "tests/unit/storage/test_write_path.py::"

MUTATIONS = (
    Mutation(
        "a take-over compares that the former owner is still gone",
        Change("services.storage.owning.takeover", "_fence", "compares.append(Unchanged(member_key, 0))", "pass"),
        _FENCING + "test_an_owner_that_registers_during_a_take_over_keeps_its_partition",
    ),
    Mutation(
        "a lease that is not renewed proves nothing after a while",
        Change(
            "kafscale.metadata.membership", "Membership.proven", "return self._clock() < self._deadline", "return True"
        ),
        _FENCING + "test_requests_that_need_a_proven_lease_fail_when_it_is_not_renewed",
    ),
    Mutation(
        "acks=0 and 1 need a lease that is proven",
        Change(
            "services.storage.methods.append",
            "_append_to",
            "(append.unacknowledged and not run.membership.proven)",
            "False",
        ),
        _FENCING + "test_requests_that_need_a_proven_lease_fail_when_it_is_not_renewed",
    ),
    Mutation(
        "reads and offsets need a proven lease",
        Change(
            "services.storage.methods.refusal",
            "refusal_of",
            "if not run.membership.proven and not (only_records and below_the_end):",
            "if False:",
        ),
        _FENCING + "test_requests_that_need_a_proven_lease_fail_when_it_is_not_renewed",
    ),
    Mutation(
        "records below the end are read without a lease",
        Change(
            "services.storage.methods.refusal",
            "refusal_of",
            "if not run.membership.proven and not (only_records and below_the_end):",
            "if not run.membership.proven:",
        ),
        _FENCING + "test_requests_that_need_a_proven_lease_fail_when_it_is_not_renewed",
    ),
    Mutation(
        "an owner that cannot confirm its lease reports no high watermark",
        Change(
            "services.storage.methods.fetch",
            "_fetch_one",
            "if not run.membership.proven:\n        # A later owner may have advanced",
            "if False:\n        # A later owner may have advanced",
        ),
        _FENCING + "test_requests_that_need_a_proven_lease_fail_when_it_is_not_renewed",
    ),
    Mutation(
        "acks=all needs no lease that is proven: its commit compares",
        Change(
            "services.storage.methods.append",
            "_append_to",
            "(append.unacknowledged and not run.membership.proven)",
            "not run.membership.proven",
        ),
        _FENCING + "test_requests_that_need_a_proven_lease_fail_when_it_is_not_renewed",
    ),
    Mutation(
        "a later owner's object is not replaced",
        Change("services.storage.writing.flusher", "Flusher._replace", "if epoch < partition.epoch:", "if True:"),
        _FENCING + "test_an_object_of_a_later_owner_fences_and_is_not_overwritten",
    ),
    Mutation(
        "only objects of lower epochs are replaced",
        Change(
            "services.storage.writing.flusher",
            "Flusher._replace",
            "if epoch < partition.epoch:",
            "if epoch <= partition.epoch:",
        ),
        _FENCING + "test_an_unexplained_object_of_the_same_or_a_later_epoch_is_not_overwritten",
    ),
    Mutation(
        "an object of another epoch does not belong to the log",
        Change("services.storage.reading.reader", "Reader.holding", "if header.epoch == key.epoch:", "if True:"),
        _LEFTOVERS + "test_a_dead_owners_object_inside_the_log_is_skipped",
    ),
    Mutation(
        "out of range is reported only after a read of the metadata",
        Change(
            "services.storage.methods.refusal",
            "refusal_of",
            "now = await deps.metadata.get(key)",
            (
                "now = None\n"
                '        return NotAvailable(Status.OFFSET_OUT_OF_RANGE, f"the log ends at '
                '{view.high_watermark}")'
            ),
        ),
        _FENCING + "test_only_an_owner_that_read_the_metadata_reports_out_of_range",
    ),
    Mutation(
        "only the owner reports out of range",
        Change(
            "services.storage.methods.refusal",
            "refusal_of",
            "if now is None or PartitionState.FromString(now.value).owner != run.membership.run_id:",
            "if now is None:",
        ),
        _FENCING + "test_only_an_owner_that_read_the_metadata_reports_out_of_range",
    ),
    Mutation(
        "accepted records that are not committed yet are not out of range",
        Change(
            "services.storage.methods.refusal",
            "refusal_of",
            "(view.high_watermark if partition.offline else partition.buffer.next_offset)",
            "view.high_watermark",
        ),
        _FENCING + "test_an_assigned_but_uncommitted_offset_is_not_out_of_range",
    ),
    Mutation(
        "records in the state are not out of range",
        Change(
            "services.storage.methods.refusal",
            "refusal_of",
            "if offset <= max(view.high_watermark, PartitionState.FromString(now.value).high_watermark):",
            "if False:",
        ),
        _FENCING + "test_a_committed_offset_of_an_offline_partition_is_not_out_of_range",
    ),
    Mutation(
        "a transaction that is too large for the metadata store is split",
        Change(
            "services.storage.writing.committer",
            "Committer._commit",
            "if len(entries) > 1:",
            "if False:",
        ),
        _COMMITTER + "test_a_transaction_that_is_too_large_for_the_store_is_split",
    ),
    Mutation(
        "a full cache evicts the least recently used value",
        Change(
            "services.storage.reading.cache", "LruCache.put", "while self.used_bytes > self._capacity:", "while False:"
        ),
        _CACHE + "test_a_cache_never_exceeds_its_capacity",
    ),
    Mutation(
        "using a value keeps it",
        Change("services.storage.reading.cache", "LruCache.get", "kept.values.move_to_end(key)", "pass"),
        _CACHE + "test_the_least_recently_used_value_is_evicted_first",
    ),
    Mutation(
        "the buffers of all partitions share a limit",
        Change(
            "services.storage.methods.append",
            "_append_to",
            ", settings.buffer_bytes - run.buffers.size",
            ", settings.partition_buffer_bytes",
        ),
        _WRITE_PATH + "test_all_partitions_share_a_total_limit",
    ),
    Mutation(
        "throttled producers get their replies as room becomes available",
        Change("services.storage.methods.append", "_account", "buffer.end_of_first(excess)", "buffer.end_of_first(1)"),
        _WRITE_PATH + "test_a_producer_with_many_requests_in_flight_is_slowed_down_and_not_refused",
    ),
    Mutation(
        "the unanswered bytes of a connection are limited",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection.__init__",
            "max_in_flight_bytes=environment.settings.max_in_flight_bytes,",
            "max_in_flight_bytes=1 << 40,",
        ),
        _LISTENER + "test_requests_in_flight_are_bounded_and_all_are_answered",
    ),
    Mutation(
        "committed records leave the shared limit of the buffers",
        Change(
            "services.storage.writing.buffers",
            "Buffers.committed",
            "self.size -= commit.partition.buffer.committed(commit.buffers)",
            "commit.partition.buffer.committed(commit.buffers)",
        ),
        _WRITE_PATH + "test_all_partitions_share_a_total_limit",
    ),
    Mutation(
        "lost records leave the shared limit of the buffers",
        Change(
            "services.storage.writing.buffers",
            "Buffers.discard",
            "self.size -= partition.buffer.discard(keep_durable=keep_durable)",
            "partition.buffer.discard(keep_durable=keep_durable)",
        ),
        _WRITE_PATH + "test_a_lost_partition_frees_its_buffer_space",
    ),
    Mutation(
        "the number of requests of a connection with their own tasks is limited",
        Change(
            "services.gateway.clients.connection", "ClientConnection._may_begin", "self._tasks >= _MAX_TASKS", "False"
        ),
        _LISTENER + "test_waiting_requests_of_a_connection_are_bounded_and_all_are_answered",
    ),
    Mutation(
        "a request that creates a topic runs alone on its connection",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection._start",
            "if order is not Order.ALONE and api.changes(call):",
            "if False:",
        ),
        _ORDER + "test_metadata_waits_for_a_parked_fetch_only_if_it_creates_a_topic",
    ),
    Mutation(
        "the number of concurrent reads from the object store is limited",
        Change(
            "services.storage.reading.reader",
            "Reader.__init__",
            "trio.CapacityLimiter(reads_in_flight)",
            "trio.CapacityLimiter(1_000)",
        ),
        _LOAD + "test_concurrent_reads_are_bounded",
    ),
    Mutation(
        "concurrent readers of an object share its load",
        Change(
            "services.storage.reading.single_flight",
            "SingleFlight.begin",
            "flight = self._flights.get(key)",
            "flight = None",
        ),
        _LOAD + "test_readers_of_one_cold_segment_share_its_reads",
    ),
    Mutation(
        "segments ahead of a reader are read",
        Change(
            "services.storage.reading.reader", "Reader._read_from", "self._read_ahead(view, segment, position)", "pass"
        ),
        _LOAD + "test_segments_ahead_of_a_reader_are_prefetched",
    ),
    Mutation(
        "no more segments than configured are read ahead",
        Change(
            "services.storage.reading.reader",
            "Reader._read_ahead",
            "for _ in range(self._readahead):",
            "for _ in range(64):",
        ),
        _LOAD + "test_segments_ahead_of_a_reader_are_prefetched",
    ),
    Mutation(
        "segments with unknown times are searched",
        Change(
            "services.storage.reading.offsets",
            "_LookUp._first_in_segments",
            "if segment.max_timestamp == UNKNOWN_TIME or segment.max_timestamp >= self._timestamp:",
            "if segment.max_timestamp >= self._timestamp:",
        ),
        _LIST_OFFSETS + "test_a_timestamp_is_found_in_segments_of_an_earlier_run",
    ),
    Mutation(
        "the largest time is searched in all segments",
        Change(
            "services.storage.reading.offsets",
            "list_offset",
            "await (look_up.largest() if timestamp == MAX_TIMESTAMP else look_up.first())",
            "await look_up.first()",
        ),
        _LIST_OFFSETS + "test_the_largest_timestamp_is_searched_in_every_segment",
    ),
    Mutation(
        "the first segment with a match ends a lookup by time",
        Change(
            "services.storage.reading.offsets",
            "_LookUp._first_in_segments",
            ("                        return found\n                    candidates = []\n        return await"),
            (
                "                        self.kept = getattr(self, 'kept', found)\n"
                "                    candidates = []\n"
                "        last = await self._locate(candidates)\n"
                "        return getattr(self, 'kept', None) or last or await"
            ),
        ),
        _LIST_OFFSETS + "test_a_lookup_reads_no_segments_after_the_first_match",
    ),
    Mutation(
        "a take-over lists only objects above the end",
        Change(
            "services.storage.owning.stored",
            "_above_high_watermark",
            ('    start_after = paths.segment_key(namespace, ref.topic, ref.partition, end - 1) if end else ""\n'),
            (
                '    start_after = ""\n'
                "    while page := await objects.list_from(prefix, start_after, 1000):\n"
                "        start_after = page[-1].key\n"
                "    start_after = paths.segment_key(namespace, ref.topic, ref.partition, end - 1) if end "
                'else ""\n'
            ),
        ),
        _READ_PATH + "test_startup_cost_does_not_grow_with_the_log",
    ),
    Mutation(
        "small records share a segment, however long they wait",
        Change(
            "services.storage.writing.buffers",
            "Buffers.look_at",
            "elif waiting >= settings.early_flush_bytes and not self._intake.is_on:",
            "elif waiting:",
        ),
        _WRITE_PATH + "test_a_buffer_that_keeps_filling_or_is_small_is_not_flushed_early",
    ),
    Mutation(
        "a waiting producer does not wait for the whole interval",
        Change(
            "services.storage.writing.buffers",
            "Buffers.look_at",
            "elif waiting >= settings.early_flush_bytes and not self._intake.is_on:",
            "elif False:",
        ),
        _WRITE_PATH + "test_a_buffer_whose_producers_wait_is_flushed_early",
    ),
    Mutation(
        "a stream gets the current state of a partition when it subscribes",
        Change(
            "services.storage.writing.commit_streams",
            "CommitStream.subscribe",
            "            self.notify(key, now())\n",
            "            pass\n",
        ),
        _IDEMPOTENCE + "test_sequences_survive_kills_and_stops",
    ),
    Mutation(
        "an object of another epoch does not return with a listing",
        Change(
            "services.storage.reading.finder",
            "SegmentFinder._list",
            "if log.segments.belongs(key.base_offset):",
            "if True:",
        ),
        _LEFTOVERS + "test_offsets_near_a_dead_owners_object_are_readable",
    ),
)
