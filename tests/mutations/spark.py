"""Naive code of the Spark package: how it reads, where streams stand, what audits find."""

from tests.mutations.mutation import Mutation

_CLIENT = "spark/kafscale_spark/client.py"
_PLANNING = "spark/kafscale_spark/planning.py"
_READING = "spark/kafscale_spark/reading.py"
_STREAM = "spark/kafscale_spark/stream.py"
_CHAIN = "spark/kafscale_spark/audit/chain.py"
_CLIENT_TESTS = "tests/unit/spark/test_client.py::"
_PLANNING_TESTS = "tests/unit/spark/test_planning.py::"
_READING_TESTS = "tests/unit/spark/test_reading.py::"
_STREAM_TESTS = "tests/unit/spark/test_stream.py::"
_DAMAGE_TESTS = "tests/unit/spark/test_damage.py::"
_CHAIN_TEST = "tests/unit/spark/test_chain.py::test_segments_and_what_is_known_of_their_log"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    _breaking(
        "no slot is idle in the last round of tasks",
        _PLANNING,
        "count = _parts(count, slots) * slots",
        "count = max(count, slots)",
        _PLANNING_TESTS + "test_how_many_tasks_there_are",
    ),
    _breaking(
        "each offset is in one task",
        _PLANNING,
        "start, end = max(self.start, start), min(self.end, end)",
        "start, end = max(self.start, start), min(self.end, end + 1)",
        _PLANNING_TESTS + "test_ranges_are_divided_evenly",
    ),
    _breaking(
        "a task reads all its ranges",
        _READING,
        "for part in split.ranges:",
        "for part in split.ranges[:1]:",
        _READING_TESTS + "test_a_task_reads_ranges_of_several_topics_in_turn_from_all_instances",
    ),
    _breaking(
        "a task asks an instance that failed after those that did not",
        _READING,
        "self._failed.append(self._ready.popleft())",
        "self._ready.rotate(-1)",
        _READING_TESTS + "test_an_instance_that_failed_is_not_asked_first_for_each_range",
    ),
    _breaking(
        "maxRecordsPerPartition bounds a task as splitBytes does",
        _PLANNING,
        "for few in divided(part, _parts(_offsets(part), settings.split_records), even=True)",
        "for few in [part]",
        _PLANNING_TESTS + "test_many_records_and_many_bytes_are_no_task_each",
    ),
    _breaking(
        "a message of a stream that cannot be encoded ends it",
        "kafscale/rpc/outgoing.py",
        "            self._room.release()\n            self.giver.cancel()",
        "            self.giver.cancel()",
        "tests/unit/rpc/test_outgoing.py::test_a_message_that_cannot_be_encoded_ends_the_stream_with_that_error",
    ),
    _breaking(
        "after a message of a stream that could not be written none is",
        "kafscale/rpc/outgoing.py",
        "if not self._broken:",
        "if data:",
        "tests/unit/rpc/test_outgoing.py::test_when_one_cannot_be_written_the_giver_is_cancelled_and_nothing_follows",
    ),
    _breaking(
        "a scan that broke is gone on with where it stands",
        _READING,
        "            start=self._next,\n            end=self._part.end,",
        "            start=self._part.start,\n            end=self._part.end,",
        _READING_TESTS + "test_pitfall_25_streams_that_break_are_gone_on_with",
    ),
    _breaking(
        "a scan's early end is not the end of the range",
        _READING,
        'trouble = f"{endpoint}: the scan ended early"',
        "return",
        _READING_TESTS + "test_a_stream_that_ends_early_without_a_word_is_gone_on_with",
    ),
    _breaking(
        "a range ends where it was said to end",
        _READING,
        "wanted = Wanted(request.start, request.end, ",
        "wanted = Wanted(request.start, request.end + 1, ",
        _READING_TESTS + "test_pitfall_24_a_range_begins_and_ends_inside_batches",
    ),
    _breaking(
        "records whose columns differ are not counted alone",
        "spark/kafscale_spark/schema.py",
        '_OF_PARTITIONS = {"topic", "partition"}',
        '_OF_PARTITIONS = {"topic", "partition", "offset"}',
        _READING_TESTS + "test_pitfall_25_streams_that_break_are_gone_on_with",
    ),
    _breaking(
        "of a field that is there twice the last one counts",
        "spark/kafscale_spark/apart.py",
        "found, kept = view[at : at + size], at + size",
        "found, kept = found or view[at : at + size], at + size",
        "tests/unit/spark/test_apart.py::test_what_is_there_twice_counts_as_protobuf_has_it",
    ),
    _breaking(
        "a message that ends within its large field is refused",
        "spark/kafscale_spark/apart.py",
        "    if at > len(message):\n",
        "    if at > 2 * len(message):\n",
        "tests/unit/spark/test_apart.py::test_what_is_no_message_is_refused",
    ),
    _breaking(
        "a worker that had a task leaves what it has imported to no collection",
        "spark/kafscale_spark/workers.py",
        "if next(_begun) == 2 and in_worker():",
        "if next(_begun) == 3 and in_worker():",
        "tests/unit/spark/test_workers.py::test_workers_of_spark_do_so_from_the_second_task_on",
    ),
    _breaking(
        "a worker that makes sources does so too",
        "spark/kafscale_spark/source.py",
        "        begin_task()\n        return spark_schema(",
        "        return spark_schema(",
        "tests/unit/spark/test_workers.py::test_workers_of_spark_do_so_from_the_second_task_on",
    ),
    _breaking(
        "a worker that plans does so too",
        "spark/kafscale_spark/source.py",
        "        begin_task()\n        options = source_options(self.options)",
        "        options = source_options(self.options)",
        "tests/unit/spark/test_workers.py::test_workers_of_spark_do_so_from_the_second_task_on",
    ),
    _breaking(
        "a batch whose bytes are not those of its checksum is an error",
        "spark/kafscale_spark/pieces.py",
        "np.flatnonzero(sums != table[:, kernel.CRC])",
        "np.flatnonzero(sums < 0)",
        _DAMAGE_TESTS + "test_every_damaged_byte_is_an_error_or_changes_nothing",
    ),
    _breaking(
        "nothing is read of the first damaged batch of a piece",
        "spark/kafscale_spark/pieces.py",
        "return int(damaged[0]) if",
        "return int(damaged[-1]) if",
        _DAMAGE_TESTS + "test_of_many_batches_those_before_the_first_damaged_one_are_read",
    ),
    _breaking(
        "damage is told of with the offset of its batch",
        "spark/kafscale_spark/pieces.py",
        "expected = int(table[whole - 1,",
        "_ = int(table[whole - 1,",
        _DAMAGE_TESTS + "test_of_many_batches_those_before_the_first_damaged_one_are_read",
    ),
    _breaking(
        "what is lost fails the query unless failOnDataLoss is false",
        "spark/kafscale_spark/loss.py",
        "    if fail:\n",
        "    if not what:\n",
        _READING_TESTS + "test_retention_fails_the_task_or_is_passed_over_with_a_warning",
    ),
    _breaking(
        "what retention took before a trigger read it is lost",
        _STREAM,
        "elif start is not None and start < found.log_start:",
        "elif start is not None and found.committed_end < start:",
        _STREAM_TESTS + "test_retention_overtakes_a_stream",
    ),
    _breaking(
        "a stream goes on from its checkpoint",
        _STREAM,
        "start=pb.Bound(offset=start.offsets[key]) if key in start.offsets else _EARLIEST",
        "start=_EARLIEST",
        _STREAM_TESTS + "test_limited_triggers_share_as_partitions_are_behind",
    ),
    _breaking(
        "a trigger ends where it was said to end",
        _STREAM,
        "end=_LATEST if ends is None else pb.Bound(offset=ends[key])",
        "end=_LATEST",
        _STREAM_TESTS + "test_limited_triggers_share_as_partitions_are_behind",
    ),
    _breaking(
        "offsets of a topic that was made anew mean other records",
        "spark/kafscale_spark/stream_offsets.py",
        "if self.ids[topic] != ids.get(topic, self.ids[topic])",
        "if topic not in ids",
        _STREAM_TESTS + "test_a_topic_made_anew_is_not_taken_for_the_old_one",
    ),
    _breaking(
        "what a stream reads stays in its checkpoint when AvailableNow is told of less",
        _STREAM,
        "self._target = _with(self._target, start, self.newest)",
        "_with(self._target, start, self.newest)",
        _STREAM_TESTS + "test_where_available_now_ends_is_known_of_all_that_is_read",
    ),
    _breaking(
        "instances that are learnt of are asked for what the first lacks",
        "spark/kafscale_spark/client.py",
        "while left := [endpoint for endpoint in self._endpoints if endpoint not in asked]:",
        "while left := [endpoint for endpoint in self.connection.endpoints if endpoint not in asked]:",
        _STREAM_TESTS + "test_an_instance_that_does_not_know_a_topic_yet_is_not_believed",
    ),
    _breaking(
        "a topic that goes while a trigger is planned is lost",
        _STREAM,
        "for key in start.offsets:",
        "for key in ():",
        _STREAM_TESTS + "test_a_topic_that_goes_before_it_is_planned",
    ),
    _breaking(
        "what a run's checkpoint has is compared with what is there",
        _STREAM,
        "begun = self._still_there(start, end.offsets, end.ids)",
        "begun = start.only(key for key in end.offsets if key[0] not in start.made_anew(end.ids))",
        _STREAM_TESTS + "test_loss_is_seen_by_a_spark_that_does_not_say_where_a_run_begins",
    ),
    _breaking(
        "calls are not repeated to instances that TLS does not trust",
        _CLIENT,
        "if final is Untrusted or not attempts.pause():",
        "if not attempts.pause():",
        _CLIENT_TESTS + "test_instances_that_tls_does_not_reach_say_why",
    ),
    _breaking(
        "segments that are missing are damage",
        _CHAIN,
        "if segment.base_offset > expected:",
        "if segment.base_offset > expected and not expected:",
        _CHAIN_TEST,
    ),
    _breaking(
        "a log that ends before its metadata says is damaged",
        _CHAIN,
        "if before is not None and expected < before:",
        "if before is not None and expected < before and not ordered:",
        _CHAIN_TEST,
    ),
    _breaking(
        "epochs of a log do not fall",
        _CHAIN,
        "epoch = max(epoch, segment.epoch)",
        "epoch = min(epoch, segment.epoch)",
        _CHAIN_TEST,
    ),
)
