"""Naive code for exactly-once sinks: each rule of staging, committing, appending and collecting."""

from tests.mutations.mutation import Mutation

_APPENDS = "services/storage/sink_appends.py"
_COMMITS = "services/storage/sink_commits.py"
_PROGRESS = "services/storage/sink_progress.py"
_RECORDS = "services/storage/sink_records.py"
_UPKEEP = "services/storage/sink_upkeep.py"
_FAULTS = "tests/unit/storage/test_sink_faults.py::"
_TESTS = "tests/unit/storage/test_sinks.py::"
_DISCARDS = "tests/unit/storage/test_sink_discards.py::"
_LIMITS = "tests/unit/storage/test_sink_limits.py::"
_UPKEEP_TESTS = "tests/unit/storage/test_sink_upkeep.py::"
_STAGING = "services/storage/staging.py"
_ANYONE_DIES = _FAULTS + "test_an_epoch_is_in_the_logs_once_whoever_dies_at_whatever_step"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    _breaking(
        "how far a log is with an epoch is written with its end",
        "services/storage/committer.py",
        "(noted for buffer in buffers for noted in buffer.sinks.items())",
        "(noted for buffer in partition.buffer.stored()[:0] for noted in buffer.sinks.items())",
        _TESTS + "test_a_stage_is_in_no_log_before_its_commit_and_once_after_it",
    ),
    _breaking(
        "a partition leaves the record when its state says that all is in",
        _APPENDS,
        "if await self._committed(partition, epoch, total):",
        "if total:",
        _ANYONE_DIES,
    ),
    _breaking(
        "what the state says is committed is passed over",
        _PROGRESS,
        "return max(committed_batches(state, epoch), self._appended.get(epoch, 0))",
        "return self._appended.get(epoch, 0)",
        _TESTS + "test_a_new_owner_goes_on_where_the_state_says_the_log_is",
    ),
    _breaking(
        "what waits in a buffer is passed over",
        _PROGRESS,
        "return max(committed_batches(state, epoch), self._appended.get(epoch, 0))",
        "return committed_batches(state, epoch)",
        _FAULTS + "test_what_waits_in_a_buffer_is_not_appended_again_when_the_next_stage_cannot_be_read",
    ),
    _breaking(
        "an owner reads the record after it has the partition",
        _APPENDS,
        "record = await self._waiting_for(epoch, ref)\n",
        "record = self._view.get(epoch.sink)\n",
        _FAULTS + "test_an_owner_that_knows_an_old_record_asks_before_it_appends",
    ),
    _breaking(
        "a state forgets an epoch when its record is known not to wait",
        _APPENDS,
        "            await self._take_out(job, epoch, ref)\n            partition.sinks.finish(epoch)\n",
        "            partition.sinks.finish(epoch)\n            await self._take_out(job, epoch, ref)\n",
        _FAULTS + "test_a_state_forgets_an_epoch_only_when_its_record_is_known_to_be_done",
    ),
    _breaking(
        "states forget",
        _APPENDS,
        "if partition.state.sinks:",
        "if partition.moving:",
        _TESTS + "test_a_state_forgets_what_its_owner_before_had_finished",
    ),
    _breaking(
        "sinks leave room in buffers",
        _APPENDS,
        "while _takes(partition) and not self._has_room(partition, len(batch)):",
        "while False:",
        _TESTS + "test_large_epochs_leave_room_for_producers_and_are_bounded",
    ),
    _breaking(
        "a commit compares what it has read at first",
        _COMMITS,
        '            raise Unavailable("the sink was written by another call meanwhile")\n',
        "            revision = now.mod_revision if now is not None else 0\n",
        _TESTS + "test_a_commit_under_way_does_not_apply_after_its_stages_were_discarded",
    ),
    _breaking(
        "stages are discarded when no commit of theirs can apply any more",
        _STAGING,
        "            self._note_discarded(record, unused)\n",
        "            return unused\n",
        _TESTS + "test_a_commit_under_way_does_not_apply_after_its_stages_were_discarded",
    ),
    _breaking(
        "stages of committed epochs are not discarded",
        _STAGING,
        "unused = [key for key in keys if epoch_of(key) > record.epoch]",
        "unused = keys",
        _TESTS + "test_the_repeat_of_a_commit_that_is_being_applied_takes_nothing_away_from_it",
    ),
    _breaking(
        "a record names what was discarded",
        _COMMITS,
        "            _check_kept(request, before)\n",
        "",
        _DISCARDS + "test_a_commit_that_begins_between_the_discard_s_write_and_its_deletes_is_refused",
    ),
    _breaking(
        "what was discarded stays named over commits of epochs before it",
        _COMMITS,
        "        record.discarded.extend(one for one in before.discarded if one.epoch > request.epoch)\n",
        "",
        _DISCARDS + "test_what_was_taken_back_is_remembered_while_it_could_be_committed_and_no_longer",
    ),
    _breaking(
        "a sink is not forgotten while it names what could be committed",
        _UPKEEP,
        "discarded_ms = max((one.discarded_ms for one in record.discarded), default=0)",
        "discarded_ms = 0",
        _DISCARDS + "test_what_was_taken_back_is_remembered_while_it_could_be_committed_and_no_longer",
    ),
    _breaking(
        "a sink of one write is forgotten when its stages have expired",
        _UPKEEP,
        "of_one_write = record.once or record.epoch == NO_EPOCH",
        "of_one_write = record.epoch == NO_EPOCH",
        _LIMITS + "test_sinks_of_one_write_are_forgotten_when_their_stages_have_expired",
    ),
    _breaking(
        "no epoch is committed to a topic that is gone",
        _COMMITS,
        "            await self._check_topics(epoch.partitions)\n",
        "",
        _TESTS + "test_nothing_is_committed_to_a_topic_that_is_deleted",
    ),
    _breaking(
        "stages in memory are bounded, and those that wait",
        _STAGING,
        "if not self._room.awaited or self._room.awaited + size <= most:",
        "if size:",
        _LIMITS + "test_stages_that_are_being_stored_are_bounded_in_bytes",
    ),
    _breaking(
        "a manifest that cannot be read keeps what its sink staged",
        _UPKEEP,
        "of_known = [key for sink, key in page if sink not in unknown]",
        "of_known = [key for _, key in page]",
        _UPKEEP_TESTS + "test_a_manifest_that_cannot_be_read_keeps_what_its_own_sink_staged_and_nothing_else",
    ),
    _breaking(
        "a commit whose answer is lost is asked about",
        _COMMITS,
        "                await outage.pause(error, sink=record.sink)\n                continue\n",
        "                raise Unavailable(str(error)) from error\n",
        _TESTS + "test_a_commit_whose_answer_is_lost_is_known_all_the_same",
    ),
    _breaking(
        "an epoch follows the one before",
        _COMMITS,
        "if request.epoch <= before.epoch or not before.remaining:",
        "if before is not None:",
        _TESTS + "test_an_epoch_waits_until_all_logs_have_the_one_before",
    ),
    _breaking(
        "a repeated commit deletes nothing that the epoch consists of",
        _COMMITS,
        "[stage.key for stage in request.stages if stage.key not in used]",
        "[stage.key for stage in request.stages]",
        _TESTS + "test_the_repeat_of_a_commit_that_is_being_applied_takes_nothing_away_from_it",
    ),
    _breaking(
        "what the collector may delete is not committed",
        _COMMITS,
        "if epoch.oldest_ms < self._parts.now_ms() - self._parts.settings.stage_expiry_ms // 2:",
        "if epoch.oldest_ms < 0:",
        _TESTS + "test_what_was_staged_long_ago_is_not_committed_and_goes",
    ),
    _breaking(
        "the collector keeps what a committed epoch consists of",
        _UPKEEP,
        "unused = [key for key in of_known if key not in used]",
        "unused = [key for key in of_known if key or used]",
        _TESTS + "test_what_was_staged_long_ago_is_not_committed_and_goes",
    ),
    _breaking(
        "an epoch of a forgotten sink is another one than before",
        _PROGRESS,
        "return cls(value.sink, value.epoch, value.committed_ms)",
        "return cls(value.sink, value.epoch, 0)",
        _TESTS + "test_a_sink_is_forgotten_when_it_commits_nothing_for_long_and_may_begin_anew",
    ),
    _breaking(
        "an epoch does not wait for a deleted topic",
        _UPKEEP,
        "gone.add(key_of(ref))",
        "gone.discard(key_of(ref))",
        _TESTS + "test_an_epoch_does_not_wait_for_a_topic_that_is_deleted",
    ),
    _breaking(
        "a damaged stage is not appended",
        _RECORDS,
        "if len(body) != size or crc32c(body) != crc:",
        "if len(body) != size:",
        _TESTS + "test_a_damaged_stage_is_waited_for_and_told_and_never_passed_over",
    ),
)
