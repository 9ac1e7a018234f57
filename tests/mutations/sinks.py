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
        "how far a log is with an epoch is written with its end",
        Change(
            "services.storage.writing.committer",
            "_entry",
            "(noted for buffer in buffers for noted in buffer.sinks.items())",
            "(noted for buffer in partition.buffer.stored()[:0] for noted in buffer.sinks.items())",
        ),
        _SINKS + "test_a_stage_is_in_no_log_before_its_commit_and_once_after_it",
    ),
    Mutation(
        "a partition leaves the record when its state says that all is in",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_all",
            "if await self._committed(partition, epoch, total):",
            "if total:",
        ),
        _SINK_FAULTS + "test_an_epoch_is_in_the_logs_once_whoever_dies_at_whatever_step",
    ),
    Mutation(
        "what the state says is committed is passed over",
        Change(
            "services.storage.log.sink_progress",
            "SinkPositions.position",
            "return max(committed_batches(state, epoch), self._appended.get(epoch, 0))",
            "return self._appended.get(epoch, 0)",
        ),
        _SINKS + "test_a_new_owner_goes_on_where_the_state_says_the_log_is",
    ),
    Mutation(
        "what waits in a buffer is passed over",
        Change(
            "services.storage.log.sink_progress",
            "SinkPositions.position",
            "return max(committed_batches(state, epoch), self._appended.get(epoch, 0))",
            "return committed_batches(state, epoch)",
        ),
        _SINK_FAULTS + "test_what_waits_in_a_buffer_is_not_appended_again_when_the_next_stage_cannot_be_read",
    ),
    Mutation(
        "an owner reads the record after it has the partition",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_all",
            "record = await self._waiting_for(epoch, ref)\n",
            "record = self._view.get(epoch.sink)\n",
        ),
        _SINK_FAULTS + "test_an_owner_that_knows_an_old_record_asks_before_it_appends",
    ),
    Mutation(
        "a state forgets an epoch when its record is known not to wait",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_all",
            ("            await self._take_out(job, epoch, ref)\n            partition.sinks.finish(epoch)\n"),
            ("            partition.sinks.finish(epoch)\n            await self._take_out(job, epoch, ref)\n"),
        ),
        _SINK_FAULTS + "test_a_state_forgets_an_epoch_only_when_its_record_is_known_to_be_done",
    ),
    Mutation(
        "states forget",
        Change(
            "services.storage.sinks.appends", "SinkAppends.taken", "if partition.state.sinks:", "if partition.moving:"
        ),
        _SINKS + "test_a_state_forgets_what_its_owner_before_had_finished",
    ),
    Mutation(
        "sinks leave room in buffers",
        Change(
            "services.storage.sinks.appends",
            "SinkAppends._append_stage",
            "while _accepts(partition) and not self._has_room(partition, len(batch)):",
            "while False:",
        ),
        _SINKS + "test_large_epochs_leave_room_for_producers_and_are_bounded",
    ),
    Mutation(
        "a commit compares what it has read at first",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._write",
            '            raise Unavailable("another call changed the sink in the meantime")\n',
            "            revision = now.mod_revision if now is not None else 0\n",
        ),
        _SINKS + "test_a_commit_under_way_does_not_apply_after_its_stages_were_discarded",
    ),
    Mutation(
        "stages are discarded when no commit of theirs can apply any more",
        Change(
            "services.storage.sinks.staging",
            "Stages._revoke",
            "            self._note_discarded(record, unused)\n",
            "            return unused\n",
        ),
        _SINKS + "test_a_commit_under_way_does_not_apply_after_its_stages_were_discarded",
    ),
    Mutation(
        "stages of committed epochs are not discarded",
        Change(
            "services.storage.sinks.staging",
            "Stages._revoke",
            "unused = [key for key in keys if epoch_of(key) > record.epoch]",
            "unused = keys",
        ),
        _SINKS + "test_the_repeat_of_a_commit_that_is_being_applied_takes_nothing_away_from_it",
    ),
    Mutation(
        "a record names what was discarded",
        Change(
            "services.storage.sinks.commits", "SinkCommits.commit", "            _check_kept(request, before)\n", ""
        ),
        _SINK_DISCARDS + "test_a_commit_that_begins_between_the_discard_s_write_and_its_deletes_is_refused",
    ),
    Mutation(
        "what was discarded stays named over commits of epochs before it",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._record",
            ("        record.discarded.extend(one for one in before.discarded if one.epoch > request.epoch)\n"),
            "",
        ),
        _SINK_DISCARDS + "test_what_was_taken_back_is_remembered_while_it_could_be_committed_and_no_longer",
    ),
    Mutation(
        "a sink is not forgotten while it names what could be committed",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._idle",
            "discarded_ms = max((one.discarded_ms for one in record.discarded), default=0)",
            "discarded_ms = 0",
        ),
        _SINK_DISCARDS + "test_what_was_taken_back_is_remembered_while_it_could_be_committed_and_no_longer",
    ),
    Mutation(
        "a sink of one write is forgotten when its stages have expired",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._idle",
            "of_one_write = record.once or record.epoch == NO_EPOCH",
            "of_one_write = record.epoch == NO_EPOCH",
        ),
        _SINK_LIMITS + "test_sinks_of_one_write_are_forgotten_when_their_stages_have_expired",
    ),
    Mutation(
        "no epoch is committed to a topic that is gone",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits.commit",
            "            await self._check_topics(epoch.partitions)\n",
            "",
        ),
        _SINKS + "test_nothing_is_committed_to_a_topic_that_is_deleted",
    ),
    Mutation(
        "stages in memory are bounded, and those that wait",
        Change(
            "services.storage.sinks.staging",
            "Stages._reserve",
            "if not self._room.awaited or self._room.awaited + size <= limit:",
            "if size:",
        ),
        _SINK_LIMITS + "test_stages_that_are_being_stored_are_bounded_in_bytes",
    ),
    Mutation(
        "a manifest that cannot be read keeps what its sink staged",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._collect",
            "of_known = [key for sink, key in page if sink not in unknown]",
            "of_known = [key for _, key in page]",
        ),
        _SINK_UPKEEP + "test_a_manifest_that_cannot_be_read_keeps_what_its_own_sink_staged_and_nothing_else",
    ),
    Mutation(
        "a commit whose answer is lost is asked about",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._write",
            ("                await outage.pause(error, sink=record.sink)\n                continue\n"),
            "                raise Unavailable(str(error)) from error\n",
        ),
        _SINKS + "test_a_commit_whose_answer_is_lost_is_known_all_the_same",
    ),
    Mutation(
        "an epoch follows the one before",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._settled",
            "if request.epoch <= before.epoch or not before.remaining:",
            "if before is not None:",
        ),
        _SINKS + "test_an_epoch_waits_until_all_logs_have_the_one_before",
    ),
    Mutation(
        "a repeated commit deletes nothing that the epoch consists of",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._delete_unused",
            "[stage.key for stage in request.stages if stage.key not in used]",
            "[stage.key for stage in request.stages]",
        ),
        _SINKS + "test_the_repeat_of_a_commit_that_is_being_applied_takes_nothing_away_from_it",
    ),
    Mutation(
        "what the collector may delete is not committed",
        Change(
            "services.storage.sinks.commits",
            "SinkCommits._record",
            "if epoch.oldest_ms < self._deps.now_ms() - self._deps.settings.stage_expiry_ms // 2:",
            "if epoch.oldest_ms < 0:",
        ),
        _SINKS + "test_what_was_staged_long_ago_is_not_committed_and_goes",
    ),
    Mutation(
        "the collector keeps what a committed epoch consists of",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._collect",
            "unused = [key for key in of_known if key not in used]",
            "unused = [key for key in of_known if key or used]",
        ),
        _SINKS + "test_what_was_staged_long_ago_is_not_committed_and_goes",
    ),
    Mutation(
        "an epoch of a forgotten sink is another one than before",
        Change(
            "services.storage.log.sink_progress",
            "SinkEpoch.of",
            "return cls(value.sink, value.epoch, value.committed_ms)",
            "return cls(value.sink, value.epoch, 0)",
        ),
        _SINKS + "test_a_sink_is_forgotten_when_it_commits_nothing_for_long_and_may_begin_anew",
    ),
    Mutation(
        "an epoch does not wait for a deleted topic",
        Change(
            "services.storage.sinks.upkeep",
            "SinkUpkeep._take_out_deleted",
            "gone.add(key_of(ref))",
            "gone.discard(key_of(ref))",
        ),
        _SINKS + "test_an_epoch_does_not_wait_for_a_topic_that_is_deleted",
    ),
    Mutation(
        "a damaged stage is not appended",
        Change(
            "services.storage.sinks.records",
            "read_staged",
            "if len(body) != size or crc32c(body) != crc:",
            "if len(body) != size:",
        ),
        _SINKS + "test_a_damaged_stage_is_waited_for_and_told_and_never_passed_over",
    ),
)
