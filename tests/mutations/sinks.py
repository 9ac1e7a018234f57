"""Naive code for exactly-once sinks: each rule of staging, committing, appending and collecting."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_SINKS = "tests/unit/storage/test_sinks.py::"
_SINK_DISCARDS = "tests/unit/storage/test_sink_discards.py::"
_SINK_FAULTS = "tests/unit/storage/test_sink_faults.py::"
_SINK_LIMITS = "tests/unit/storage/test_sink_limits.py::"
_SINK_UPKEEP = "tests/unit/storage/test_sink_upkeep.py::"

MUTATIONS = (
    Mutation(
        "the progress of an epoch in a log is written together with the log's end",
        Change(
            "services.storage.writing.committer",
            "_entry",
            "((epoch, batches) for buffer in buffers for _, epoch, batches in buffer.sinks)",
            "((epoch, batches) for buffer in partition.buffer.stored()[:0] for _, epoch, batches in buffer.sinks)",
        ),
        _SINKS + "test_a_stage_is_in_the_log_once_and_only_after_its_commit",
    ),
    Mutation(
        "a partition leaves the sink's record when the epoch is durable",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_all",
            "if await self._durable(partition, epoch, total):",
            "if total:",
        ),
        _SINK_FAULTS + "test_an_epoch_is_applied_once_if_an_instance_dies_at_any_step",
    ),
    Mutation(
        "batches that are committed according to the state are skipped",
        Change(
            "services.storage.log.sink_progress",
            "SinkPositions.position",
            "return max(committed_batches(state, epoch), self._appended.get(epoch, 0))",
            "return self._appended.get(epoch, 0)",
        ),
        _SINKS + "test_a_new_owner_continues_an_epoch_where_the_state_says",
    ),
    Mutation(
        "batches that wait in a buffer are skipped",
        Change(
            "services.storage.log.sink_progress",
            "SinkPositions.position",
            "return max(committed_batches(state, epoch), self._appended.get(epoch, 0))",
            "return committed_batches(state, epoch)",
        ),
        _SINK_FAULTS + "test_a_buffered_stage_is_not_appended_again_if_the_next_one_is_unreadable",
    ),
    Mutation(
        "an owner reads the sink's record after it has acquired the partition",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_all",
            "record = await self._waiting_for(epoch, ref)\n",
            "record = self._view.get(epoch.sink)\n",
        ),
        _SINK_FAULTS + "test_an_owner_with_an_outdated_sink_record_reads_it_before_appending",
    ),
    Mutation(
        "a state forgets an epoch when the sink's record no longer waits for it",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_all",
            ("            await self._take_out(job, epoch, ref)\n            partition.sinks.finish(epoch)\n"),
            ("            partition.sinks.finish(epoch)\n            await self._take_out(job, epoch, ref)\n"),
        ),
        _SINK_FAULTS + "test_a_state_forgets_an_epoch_only_after_its_record_is_complete",
    ),
    Mutation(
        "states forget",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends.taken",
            "if partition.sinks.known(partition.state):",
            "if partition.moving:",
        ),
        _SINKS + "test_a_new_owner_removes_the_finished_epochs_of_the_former_one",
    ),
    Mutation(
        "sinks leave room in buffers",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_stage",
            "while _accepts(partition) and not self._has_room(partition, len(batch)):",
            "while False:",
        ),
        _SINKS + "test_large_epochs_leave_buffer_space_for_producers",
    ),
    Mutation(
        "a commit compares the values that it read first",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._write",
            '            raise Unavailable("another call changed the sink in the meantime")\n',
            "            revision = now.mod_revision if now is not None else 0\n",
        ),
        _SINKS + "test_a_commit_in_flight_fails_if_its_stages_are_discarded",
    ),
    Mutation(
        "stages are discarded when no commit of them can apply any longer",
        Change(
            "services.storage.sinks.staging",
            "Stages._revoke",
            "            self._note_discarded(record, unused)\n",
            "            return unused\n",
        ),
        _SINKS + "test_a_commit_in_flight_fails_if_its_stages_are_discarded",
    ),
    Mutation(
        "stages of committed epochs are not discarded",
        Change(
            "services.storage.sinks.staging",
            "Stages._revoke",
            "unused = [key for key in keys if epoch_of(key) > record.epoch]",
            "unused = keys",
        ),
        _SINKS + "test_repeating_a_commit_that_is_being_applied_does_not_change_it",
    ),
    Mutation(
        "a sink's record names discarded stages",
        Change(
            "services.storage.sinks.commits", "SinkCommits.commit", "            _check_kept(request, before)\n", ""
        ),
        _SINK_DISCARDS + "test_a_commit_between_a_discards_write_and_its_deletes_is_refused",
    ),
    Mutation(
        "discarded stages stay recorded over commits of earlier epochs",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._record",
            ("        record.discarded.extend(one for one in before.discarded if one.epoch > request.epoch)\n"),
            "",
        ),
        _SINK_DISCARDS + "test_discarded_stages_are_remembered_only_while_they_could_be_committed",
    ),
    Mutation(
        "a sink is not forgotten while its record names stages that could be committed",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._idle",
            "discarded_ms = max((one.discarded_ms for one in record.discarded), default=0)",
            "discarded_ms = 0",
        ),
        _SINK_DISCARDS + "test_discarded_stages_are_remembered_only_while_they_could_be_committed",
    ),
    Mutation(
        "a sink of one write is forgotten when its stages have expired",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._idle",
            "of_one_write = record.once or record.epoch == NO_EPOCH",
            "of_one_write = record.epoch == NO_EPOCH",
        ),
        _SINK_LIMITS + "test_one_time_sinks_are_forgotten_when_their_stages_expire",
    ),
    Mutation(
        "no epoch is committed to a deleted topic",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits.commit",
            "            await self._check_topics(epoch.partitions)\n",
            "",
        ),
        _SINKS + "test_a_commit_to_a_deleted_topic_is_refused",
    ),
    Mutation(
        "stages in memory are limited, including waiting ones",
        Change(
            "services.storage.sinks.staging",
            "Stages._reserve",
            "if not self._room.awaited or self._room.awaited + size <= limit:",
            "if size:",
        ),
        _SINK_LIMITS + "test_concurrent_stages_are_bounded_in_bytes",
    ),
    Mutation(
        "an unreadable manifest keeps the stages of its sink",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._collect",
            "of_known = [key for sink, key in page if sink not in unknown]",
            "of_known = [key for _, key in page]",
        ),
        _SINK_UPKEEP + "test_an_unreadable_manifest_keeps_only_the_stages_of_its_own_sink",
    ),
    Mutation(
        "a commit with a lost answer is checked",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._write",
            ("                await outage.pause(error, sink=record.sink)\n                continue\n"),
            "                raise Unavailable(str(error)) from error\n",
        ),
        _SINKS + "test_a_commit_whose_answer_is_lost_is_recognized",
    ),
    Mutation(
        "an epoch follows the previous one",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._settled",
            "if request.epoch <= before.epoch or not before.remaining:",
            "if before is not None:",
        ),
        _SINKS + "test_an_epoch_waits_until_the_previous_one_is_applied",
    ),
    Mutation(
        "a repeated commit deletes no stage of the epoch",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._delete_unused",
            "[stage.key for stage in request.stages if stage.key not in used]",
            "[stage.key for stage in request.stages]",
        ),
        _SINKS + "test_repeating_a_commit_that_is_being_applied_does_not_change_it",
    ),
    Mutation(
        "stages that the collector may delete are not committed",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._record",
            "if epoch.oldest_ms < self._deps.now_ms() - self._deps.settings.stage_expiry_ms // 2:",
            "if epoch.oldest_ms < 0:",
        ),
        _SINKS + "test_expired_stages_are_not_committed_and_are_deleted",
    ),
    Mutation(
        "the collector keeps the stages of a committed epoch",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._collect",
            "unused = [key for key in of_known if key not in used]",
            "unused = [key for key in of_known if key or used]",
        ),
        _SINKS + "test_expired_stages_are_not_committed_and_are_deleted",
    ),
    Mutation(
        "an epoch of a forgotten sink differs from the earlier one",
        Change(
            "services.storage.log.sink_progress",
            "SinkEpoch.of",
            "return cls(value.sink, value.epoch, value.committed_ms)",
            "return cls(value.sink, value.epoch, 0)",
        ),
        _SINKS + "test_an_expired_sink_may_start_again",
    ),
    Mutation(
        "an epoch does not wait for a deleted topic",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._take_out_deleted",
            "gone.add(key_of(ref))",
            "gone.discard(key_of(ref))",
        ),
        _SINKS + "test_an_epoch_does_not_wait_for_a_deleted_topic",
    ),
    Mutation(
        "a damaged stage is not appended",
        Change(
            "services.storage.sinks.records",
            "read_staged",
            "if len(body) != size or crc32c(body) != crc:",
            "if len(body) != size:",
        ),
        _SINKS + "test_an_epoch_waits_for_a_damaged_stage_and_never_skips_it",
    ),
)
