"""Naive code of the Spark package: reads, stream positions, and audits."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_APART = "tests/unit/spark/test_apart.py::"
_CHAIN = "tests/unit/spark/test_chain.py::"
_CLIENT = "tests/unit/spark/test_client.py::"
_DAMAGE = "tests/unit/spark/test_damage.py::"
_OUTGOING = "tests/unit/rpc/test_outgoing.py::"
_PLANNING = "tests/unit/spark/test_planning.py::"
_READING = "tests/unit/spark/test_reading.py::"
_STREAM = "tests/unit/spark/test_stream.py::"
_WORKERS = "tests/unit/spark/test_workers.py::"

MUTATIONS = (
    Mutation(
        "no slot is idle in the last round of tasks",
        Change(
            "kafscale_spark.planning", "_how_many", "count = _parts(count, slots) * slots", "count = max(count, slots)"
        ),
        _PLANNING + "test_the_number_of_tasks_depends_on_slots_and_sizes",
    ),
    Mutation(
        "each offset is in one task",
        Change(
            "kafscale_spark.planning",
            "Range.within",
            "start, end = max(self.start, start), min(self.end, end)",
            "start, end = max(self.start, start), min(self.end, end + 1)",
        ),
        _PLANNING + "test_ranges_are_divided_evenly",
    ),
    Mutation(
        "a task reads all its ranges",
        Change("kafscale_spark.reading", "read_split", "for part in split.ranges:", "for part in split.ranges[:1]:"),
        _READING + "test_a_task_reads_ranges_of_several_topics_in_turn_from_all_instances",
    ),
    Mutation(
        "a task asks an instance that failed after the others",
        Change(
            "kafscale_spark.reading",
            "_Instances.failed",
            "self._failed.append(self._ready.popleft())",
            "self._ready.rotate(-1)",
        ),
        _READING + "test_an_instance_that_failed_is_not_asked_first_for_later_ranges",
    ),
    Mutation(
        "maxRecordsPerPartition limits a task as splitBytes does",
        Change(
            "kafscale_spark.planning",
            "tasks",
            "for few in divided(part, _parts(_offsets(part), settings.split_records), even=True)",
            "for few in [part]",
        ),
        _PLANNING + "test_no_task_has_too_many_records_or_bytes",
    ),
    Mutation(
        "a message of a stream that cannot be encoded ends the stream",
        Change(
            "kafscale.rpc.outgoing",
            "Outgoing.send",
            "            self._slots.release()\n            self.sender.cancel()",
            "            self.sender.cancel()",
        ),
        _OUTGOING + "test_a_message_that_cannot_be_encoded_ends_the_stream_with_its_error",
    ),
    Mutation(
        "no message of a stream is written after a failed one",
        Change("kafscale.rpc.outgoing", "Outgoing._write", "if not self._broken:", "if data:"),
        _OUTGOING + "test_a_failed_write_cancels_the_sender_and_ends_the_stream",
    ),
    Mutation(
        "a broken scan is continued at its position",
        Change(
            "kafscale_spark.reading",
            "_Range._scan",
            "            start=self._next,\n            end=self._part.end,",
            "            start=self._part.start,\n            end=self._part.end,",
        ),
        _READING + "test_broken_streams_are_continued",
    ),
    Mutation(
        "a scan's early end is not the end of the range",
        Change("kafscale_spark.reading", "_Range.read", 'reason = f"{endpoint}: the scan ended early"', "return"),
        _READING + "test_a_stream_that_ends_early_without_an_error_is_continued",
    ),
    Mutation(
        "a range ends at its configured end",
        Change(
            "kafscale_spark.reading",
            "_Decoded.__init__",
            "wanted = Wanted(request.start, request.end, ",
            "wanted = Wanted(request.start, request.end + 1, ",
        ),
        _READING + "test_a_range_can_begin_and_end_inside_batches",
    ),
    Mutation(
        "the last occurrence of a repeated field is used",
        Change(
            "kafscale_spark.apart",
            "taken_apart",
            "found, kept = view[at : at + size], at + size",
            "found, kept = found or view[at : at + size], at + size",
        ),
        _APART + "test_a_repeated_field_is_merged_as_in_protobuf",
    ),
    Mutation(
        "a message that ends within its large field is refused",
        Change("kafscale_spark.apart", "taken_apart", "    if at > len(message):\n", "    if at > 2 * len(message):\n"),
        _APART + "test_data_that_is_not_a_message_is_refused",
    ),
    Mutation(
        "a worker that had a task excludes its imports from garbage collection",
        Change(
            "kafscale_spark.workers",
            "begin_task",
            "elif number == 2:",
            "elif number == 3:",
        ),
        _WORKERS + "test_every_kind_of_task_counts",
    ),
    Mutation(
        "a worker keeps freed memory for the next piece",
        Change("kafscale_spark.workers", "begin_task", "keep_freed_memory(_KEPT_BYTES)", "pass"),
        _WORKERS + "test_every_kind_of_task_counts",
    ),
    Mutation(
        "a scan times out when its next reply is late",
        Change("kafscale_spark.client", "_Watch._watch", "if time.monotonic() > self._until:", "if self._late:"),
        _CLIENT + "test_a_silent_stream_times_out",
    ),
    Mutation(
        "the timeout does not include the time of the reader",
        Change(
            "kafscale_spark.client",
            "_Watch.replies",
            "            self._until = math.inf\n            if reply is None:",
            "            if reply is None:",
        ),
        _CLIENT + "test_a_slow_reader_does_not_time_out",
    ),
    Mutation(
        "a scan ends when its reader leaves",
        Change(
            "kafscale_spark.client",
            "_Watch.__exit__",
            "        self._call.cancel()\n        self._watching.join()",
            "        self._watching.join()",
        ),
        _CLIENT + "test_a_call_ends_when_its_reader_leaves",
    ),
    Mutation(
        "a worker that creates sources does so too",
        Change(
            "kafscale_spark.source",
            "KafscaleDataSource.schema",
            "        begin_task()\n        return spark_schema(",
            "        return spark_schema(",
        ),
        _WORKERS + "test_every_kind_of_task_counts",
    ),
    Mutation(
        "a worker that plans does so too",
        Change(
            "kafscale_spark.source",
            "KafscaleDataSource.reader",
            "        begin_task()\n        options = source_options(self.options)",
            "        options = source_options(self.options)",
        ),
        _WORKERS + "test_every_kind_of_task_counts",
    ),
    Mutation(
        "a batch with a wrong checksum is an error",
        Change(
            "kafscale_spark.pieces",
            "_whole",
            "np.flatnonzero(sums != table[:, kernel.CRC])",
            "np.flatnonzero(sums < 0)",
        ),
        _DAMAGE + "test_every_damaged_byte_causes_an_error_or_changes_nothing",
    ),
    Mutation(
        "no record of the first damaged batch of a piece is read",
        Change("kafscale_spark.pieces", "_whole", "return int(damaged[0]) if", "return int(damaged[-1]) if"),
        _DAMAGE + "test_batches_before_the_first_damaged_one_are_read",
    ),
    Mutation(
        "damage is reported with the offset of its batch",
        Change("kafscale_spark.pieces", "Chain.tables", "expected = int(table[whole - 1,", "_ = int(table[whole - 1,"),
        _DAMAGE + "test_batches_before_the_first_damaged_one_are_read",
    ),
    Mutation(
        "data loss fails the query unless failOnDataLoss is false",
        Change("kafscale_spark.loss", "data_lost", "    if fail:\n", "    if not what:\n"),
        _READING + "test_retention_fails_the_task_or_is_skipped_with_a_warning",
    ),
    Mutation(
        "records that retention deletes before a trigger reads them are lost",
        Change(
            "kafscale_spark.stream",
            "Stream._check",
            "elif start is not None and start < found.log_start:",
            "elif start is not None and found.high_watermark < start:",
        ),
        _STREAM + "test_retention_may_overtake_a_stream",
    ),
    Mutation(
        "a stream continues at its checkpoint",
        Change(
            "kafscale_spark.stream",
            "_scans",
            "start=pb.Bound(offset=start.offsets[key]) if key in start.offsets else _EARLIEST",
            "start=_EARLIEST",
        ),
        _STREAM + "test_limited_triggers_share_in_proportion_to_lag",
    ),
    Mutation(
        "a trigger ends at its configured end",
        Change(
            "kafscale_spark.stream",
            "_scans",
            "end=_LATEST if ends is None else pb.Bound(offset=ends[key])",
            "end=_LATEST",
        ),
        _STREAM + "test_limited_triggers_share_in_proportion_to_lag",
    ),
    Mutation(
        "offsets of a topic that was created again are other records",
        Change(
            "kafscale_spark.stream_offsets",
            "StreamOffsets.recreated",
            "if self.ids[topic] != ids.get(topic, self.ids[topic])",
            "if topic not in ids",
        ),
        _STREAM + "test_a_recreated_topic_is_not_confused_with_the_old_one",
    ),
    Mutation(
        "partitions of a stream stay in its checkpoint when AvailableNow sees fewer",
        Change(
            "kafscale_spark.stream",
            "Stream.latest",
            "self._target = _extended(self._target, start, self.newest)",
            "_extended(self._target, start, self.newest)",
        ),
        _STREAM + "test_available_now_stops_at_an_end_for_every_partition_it_reads",
    ),
    Mutation(
        "discovered instances are asked for topics that the first one lacks",
        Change(
            "kafscale_spark.client",
            "Client.answers",
            "while left := [endpoint for endpoint in self._endpoints if endpoint not in asked]:",
            "while left := [endpoint for endpoint in self.connection.endpoints if endpoint not in asked]:",
        ),
        _STREAM + "test_an_instance_that_does_not_know_a_topic_yet_is_not_trusted",
    ),
    Mutation(
        "a topic that is deleted while a trigger is planned is lost",
        Change("kafscale_spark.stream", "Stream.latest", "for key in start.offsets:", "for key in ():"),
        _STREAM + "test_a_topic_deleted_before_planning_is_data_loss",
    ),
    Mutation(
        "the offsets in a run's checkpoint are compared with the log",
        Change(
            "kafscale_spark.stream",
            "Stream.partitions",
            "begun = self._without_lost(start, end.offsets, end.ids)",
            "begun = start.only(key for key in end.offsets if key[0] not in start.recreated(end.ids))",
        ),
        _STREAM + "test_loss_is_detected_if_spark_does_not_report_the_start_of_a_run",
    ),
    Mutation(
        "calls are not retried at instances that TLS does not trust",
        Change(
            "kafscale_spark.client",
            "Client.call",
            "if final is Untrusted or not attempts.pause():",
            "if not attempts.pause():",
        ),
        _CLIENT + "test_the_error_names_the_reason_if_tls_fails",
    ),
    Mutation(
        "calls use TLS files that have changed",
        Change("kafscale_spark.client", "Client._renew", "tls.state() == former.tls", "former.tls"),
        _CLIENT + "test_certificates_that_have_changed_are_used_after_a_reconnect",
    ),
    Mutation(
        "missing segments are damage",
        Change(
            "kafscale_spark.audit.chain",
            "check_chain",
            "if segment.base_offset > expected:",
            "if segment.base_offset > expected and not expected:",
        ),
        _CHAIN + "test_segments_are_checked_against_the_bounds_of_their_log",
    ),
    Mutation(
        "a log that ends before its metadata's end is damaged",
        Change(
            "kafscale_spark.audit.chain",
            "check_chain",
            "if before is not None and expected < before:",
            "if before is not None and expected < before and not ordered:",
        ),
        _CHAIN + "test_segments_are_checked_against_the_bounds_of_their_log",
    ),
    Mutation(
        "the epochs of a log do not fall",
        Change(
            "kafscale_spark.audit.chain",
            "check_chain",
            "epoch = max(epoch, segment.epoch)",
            "epoch = min(epoch, segment.epoch)",
        ),
        _CHAIN + "test_segments_are_checked_against_the_bounds_of_their_log",
    ),
)
