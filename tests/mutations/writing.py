"""A wrong write path of storage."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_COMMITTER = "tests/unit/storage/test_committer.py::"
_WRITE_PATH = "tests/unit/storage/test_write_path.py::"
_INTAKE = "tests/unit/storage/test_intake.py::"
_FILLING = "tests/unit/storage/test_filling.py::"

MUTATIONS = (
    Mutation(
        "a failed put counts as done and its records are acked",
        Change(
            "services.storage.writing.flusher",
            "Flusher._put",
            "await outage.pause(error, key=key)",
            "return",
        ),
        _WRITE_PATH + "test_a_failed_flush_acks_no_append",
    ),
    Mutation(
        "one upload at a time",
        Change(
            "services.storage.writing.flusher",
            "Flusher._put",
            "                there = await put_own(self._objects, key, segment.data)\n",
            (
                '                async with globals().setdefault("_one_at_a_time", trio.Lock()):\n'
                "                    there = await put_own(self._objects, key, segment.data)\n"
            ),
        ),
        _WRITE_PATH + "test_partitions_of_one_request_are_flushed_together",
    ),
    Mutation(
        "the end moves before the object is stored",
        Change(
            "services.storage.writing.flusher",
            "Flusher._store",
            "                await self._put(partition, segment)\n",
            (
                "                buffer.segment = segment\n"
                "                self._stored(partition)\n"
                "                await self._put(partition, segment)\n"
            ),
        ),
        _WRITE_PATH + "test_the_high_watermark_moves_only_after_object_and_metadata_are_stored",
    ),
    Mutation(
        "the end moves although the transaction was not answered",
        Change(
            "services.storage.writing.committer",
            "Committer._commit",
            "await outage.pause(error, partitions=len(entries))",
            "[self._apply(entry, entry.compare) for entry in entries]\n                return",
        ),
        _WRITE_PATH + "test_the_high_watermark_does_not_move_before_the_commit_is_answered",
    ),
    Mutation(
        "a failed put counts as done and its records are acked",
        Change(
            "services.storage.writing.flusher",
            "Flusher._put",
            "await outage.pause(error, key=key)",
            (
                "partition.buffer._open.next_offset = partition.log.high_watermark\n"
                "                await outage.pause(error, key=key)"
            ),
        ),
        _WRITE_PATH + "test_offsets_are_not_assigned_twice_after_a_failed_upload",
    ),
    Mutation(
        "an object at our key is never ours",
        Change("kafscale.objects.puts", "put_own", "None if there.body == whole(body) else there", "there"),
        _WRITE_PATH + "test_an_own_put_with_a_lost_answer_is_not_mistaken_for_fencing",
    ),
    Mutation(
        "every existing object means fencing",
        Change(
            "services.storage.writing.flusher",
            "Flusher._put",
            "await self._replace(partition, key, segment.data, there)",
            'raise Fenced(f"{key} is taken")',
        ),
        _WRITE_PATH + "test_a_dead_owners_segment_with_the_same_key_is_replaced",
    ),
    Mutation(
        "a commit that had applied before its answer was lost is attributed to another process",
        Change(
            "services.storage.writing.committer",
            "Committer._settle",
            "if now is not None and now.value == entry.value:",
            "if False:",
        ),
        _WRITE_PATH + "test_a_commit_of_unknown_outcome_is_repeated_unchanged",
    ),
    Mutation(
        "the end moves although the transaction was not answered",
        Change(
            "services.storage.writing.committer",
            "Committer._commit",
            "await outage.pause(error, partitions=len(entries))",
            (
                "for entry in entries:\n"
                "                    end, buffer = entry.partition.log.high_watermark, entry.partition.buffer\n"
                "                    buffer._open = Buffer(end, end)\n"
                "                    buffer._sealed.clear()\n"
                "                return"
            ),
        ),
        _WRITE_PATH + "test_a_commit_of_unknown_outcome_is_repeated_unchanged",
    ),
    Mutation(
        "one fenced partition fails all those whose commits share its transaction",
        Change(
            "services.storage.writing.committer",
            "Committer._settle",
            "again.append(entry)",
            "self._fenced(entry.partition, _who(now))",
        ),
        _COMMITTER + "test_a_fenced_partition_does_not_affect_others_in_its_transaction",
    ),
    Mutation(
        "any index at our key is assumed to be ours",
        Change("kafscale.objects.puts", "put_derived", "if there is not None:", "if False:"),
        _WRITE_PATH + "test_a_dead_owners_index_with_the_same_key_is_replaced",
    ),
    Mutation(
        "no buffer is waited for until it is full",
        Change(
            "services.storage.intake.writer",
            "IntakeWriter._begin",
            "fills = partition.filling.is_due(partition.buffer, self._fillings)",
            "fills = False",
        ),
        _FILLING + "test_records_of_producers_that_do_not_wait_are_stored_once",
    ),
    Mutation(
        "full buffers are waited for again and again in vain",
        Change("services.storage.log.filling", "Filling.end", "attempts.failed()", "pass"),
        _FILLING + "test_producers_that_wait_are_delayed_at_most_a_few_times",
    ),
    Mutation(
        "a full buffer is waited for although its producer has one request in flight",
        Change("services.storage.intake.writer", "_may_go_on", "not buffer.ends_with_sequence", "True"),
        _FILLING + "test_producers_that_wait_are_delayed_at_most_a_few_times",
    ),
    Mutation(
        "a buffer that was flushed meanwhile counts as waited for in vain",
        Change("services.storage.log.filling", "Filling.end", "elif buffer.open_offset == self._offset:", "else:"),
        _FILLING + "test_a_buffer_that_was_sealed_while_it_was_waited_for_does_not_count_as_waited_for_in_vain",
    ),
    Mutation(
        "batches in segments are kept until those of all partitions in the chain are",
        Change(
            "services.storage.intake.writer", "IntakeWriter.committed", "_forget_what_is_in_segments(partition)", "pass"
        ),
        _INTAKE + "test_batches_in_segments_are_not_kept_in_memory_until_those_of_other_partitions_are",
    ),
    Mutation(
        "a chain that is too long is tidied as rarely as others",
        Change("services.storage.intake.writer", "IntakeWriter._tidy", "_TIDY_LONG_SECONDS if", "_TIDY_SECONDS if"),
        _INTAKE + "test_a_chain_that_is_too_long_does_not_wait_for_a_deleted_topic",
    ),
)
