"""Naive readers of a commit stream, which ignore order or wait for news that came before or never comes."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_MESSAGES = "tests/unit/gateway/test_append_messages.py::"
_STORAGE_LINK = "tests/unit/gateway/test_storage_link.py::"
_COMMIT_STREAMS = "tests/unit/storage/test_commit_streams.py::"
_INTAKE = "tests/unit/storage/test_intake.py::"
_WRITE_PATH = "tests/unit/storage/test_write_path.py::"

_LINK_AT_ONCE = "tests/unit/gateway/test_appends_at_once.py::"
_AT_ONCE = "tests/unit/storage/test_appends_at_once.py::"
_LOCAL = "tests/unit/metadata/test_local.py::"
_OWNERSHIP = "tests/unit/storage/test_ownership.py::"
_FENCING = "tests/unit/storage/test_fencing.py::"

MUTATIONS = (
    Mutation(
        "a message is appended at once although an earlier one waits",
        Change("services.gateway.owners.link", "StorageLink.send", " or session.appends.busy", ""),
        _LINK_AT_ONCE + "test_a_message_that_must_wait_is_sent_by_a_task_and_later_ones_follow_it",
    ),
    Mutation(
        "what waited for a message is sent only with the next append",
        Change("services.gateway.owners.link", "StorageLink._exchange", "        self.send()\n", ""),
        _LINK_AT_ONCE + "test_a_message_that_must_wait_is_sent_by_a_task_and_later_ones_follow_it",
    ),
    Mutation(
        "a message is appended at once although it is not its turn",
        Change(
            "services.storage.methods.append", "append_at_once", "or request.sequence != stream.applied + 1", "or False"
        ),
        _AT_ONCE + "test_an_append_that_would_have_to_wait_is_not_begun",
    ),
    Mutation(
        "records are appended at once before those of the former owner are in segments",
        Change("services.storage.methods.append", "append_at_once", " or partition.is_recovering", ""),
        _AT_ONCE + "test_nothing_is_appended_at_once_while_a_tail_is_recovered",
    ),
    Mutation(
        "an error of an append at once leaves its stream open",
        Change(
            "services.gateway.owners.link",
            "StorageLink.send",
            'session.give_up(f"an Append failed: {error!r}")',
            "pass",
        ),
        _LINK_AT_ONCE + "test_an_error_ends_the_stream_and_leaves_the_outcome_open",
    ),
    Mutation(
        "an event that the gateway does not take is dropped",
        Change(
            "services.storage.writing.commit_streams",
            "CommitStream.notify",
            "(self.report is not None and self.report(event))",
            "(self.report is not None and (self.report(event) or True))",
        ),
        _AT_ONCE + "test_the_stream_sends_only_the_events_that_the_caller_does_not_take",
    ),
    Mutation(
        "an event that cannot be applied ends storage",
        Change(
            "services.gateway.owners.link", "_Session.apply", "except Exception as error:", "except OSError as error:"
        ),
        _LINK_AT_ONCE + "test_an_event_that_cannot_be_applied_ends_the_stream_and_not_the_storage",
    ),
    Mutation(
        "events are taken after the end of their stream",
        Change("services.gateway.owners.link", "_Session.apply", "if self.over:", "if False:"),
        _LINK_AT_ONCE + "test_an_event_that_cannot_be_applied_ends_the_stream_and_not_the_storage",
    ),
    Mutation(
        "a plan waits for take-overs too",
        Change("services.storage.writing.buffers", "Buffers._is_held", " and not partition.planned", ""),
        _OWNERSHIP + "test_segments_of_new_owners_wait_while_take_overs_wait_for_each_other",
    ),
    Mutation(
        "segments do not wait for take-overs",
        Change(
            "services.storage.writing.buffers",
            "Buffers._is_held",
            "return is_new and",
            "return False and",
        ),
        _OWNERSHIP + "test_segments_of_new_owners_wait_while_take_overs_wait_for_each_other",
    ),
    Mutation(
        "the epoch history may change while a partition is fenced",
        Change(
            "services.storage.owning.takeover",
            "_fence",
            "            Unchanged(history_key, history_kv.mod_revision if history_kv else 0),\n",
            "",
        ),
        _FENCING + "test_an_epoch_that_is_recorded_during_a_take_over_is_known_to_it",
    ),
    Mutation(
        "a watch that waits falls behind while other keys change",
        Change(
            "kafscale.metadata.local",
            "_Watcher.applied",
            "self.from_revision = max(self.from_revision, revision + 1)",
            "pass",
        ),
        _LOCAL + "test_a_watch_that_waits_keeps_its_place_while_other_keys_change",
    ),
    Mutation(
        "batches queued after a refused batch of their partition are sent all the same",
        Change(
            "services.gateway.owners.appends",
            "AppendStream.replied",
            "                self._queue.refuse(append.key, behind(error))\n",
            "",
        ),
        _MESSAGES + "test_a_refusal_also_refuses_queued_appends_to_its_partition",
    ),
    Mutation(
        "producers that were answered are waited for",
        Change(
            "services.gateway.owners.link",
            "StorageLink._follow",
            "self.queue.answered(session.view.apply(event.committed))",
            "session.view.apply(event.committed)",
        ),
        _MESSAGES + "test_appends_of_producers_that_were_just_answered_share_a_call",
    ),
    Mutation(
        "a stream reports what a reply is to report",
        Change(
            "services.storage.writing.commit_streams", "CommitStream.pump", "not self._let_replies_go() or beat", "True"
        ),
        _INTAKE + "test_a_reply_that_waits_reports_all_its_commits_in_place_of_the_stream",
    ),
    Mutation(
        "replies wait although their stream has ended",
        Change(
            "services.storage.writing.commit_streams",
            "CommitStream._let_replies_go",
            "self._ended or is_reached()",
            "is_reached()",
        ),
        _COMMIT_STREAMS + "test_a_stream_that_ends_lets_all_replies_go_and_sends_what_is_pending",
    ),
    Mutation(
        "a heartbeat is left out if a reply goes",
        Change("services.storage.writing.commit_streams", "CommitStream.pump", " or beat", ""),
        _COMMIT_STREAMS + "test_a_heartbeat_is_sent_although_a_reply_takes_the_events",
    ),
    Mutation(
        "a refusal waits until the other records of its message are durable",
        Change(
            "services.storage.methods.append",
            "append",
            "if request.wait_ms and all(result.status == OK for result in results):",
            "if request.wait_ms:",
        ),
        _INTAKE + "test_a_reply_with_a_refusal_does_not_wait",
    ),
    Mutation(
        "a message waits although one of its appends need not be durable",
        Change(
            "services.gateway.owners.appends",
            "AppendMessage.request",
            "0 if any(append.unacknowledged for append in self.appends) else self.wait_ms",
            "self.wait_ms",
        ),
        _MESSAGES + "test_a_message_with_an_append_that_need_not_be_durable_asks_for_a_reply_at_once",
    ),
    Mutation(
        "all messages in flight wait until their records are durable",
        Change("services.gateway.owners.appends", "AppendStream.next_message", "<= self._most_waiting", "<= 1000"),
        _MESSAGES + "test_the_last_messages_in_flight_ask_for_a_reply_at_once",
    ),
    Mutation(
        "a commit stream without news is silent",
        Change("services.storage.writing.commit_streams", "CommitStreams.run", "stream.beat()", "pass"),
        _WRITE_PATH + "test_a_commit_stream_without_news_has_heartbeats",
    ),
    Mutation(
        "a commit stream is abandoned some time after it began",
        Change(
            "services.gateway.owners.link",
            "StorageLink._follow",
            "silence.deadline = earliest + self._silence / 8",
            "pass",
        ),
        _STORAGE_LINK + "test_a_stream_with_events_in_time_is_kept",
    ),
    Mutation(
        "messages are applied as they arrive",
        Change(
            "services.storage.methods.append",
            "append",
            "if stream is None or not await stream.turn(request.sequence):",
            "if stream is None:",
        ),
        _WRITE_PATH + "test_requests_that_arrive_out_of_order_are_applied_in_order",
    ),
    Mutation(
        "a reply waits for news, even if they came before it",
        Change(
            "services.gateway.owners.commit_view",
            "CommitView.hold",
            "        if verdict is None:\n",
            "        if True:\n",
        ),
        _STORAGE_LINK + "test_a_commit_announced_before_the_reply_completes_it",
    ),
    Mutation(
        "a silent stream is kept",
        Change(
            "services.gateway.owners.link",
            "StorageLink._follow",
            "trio.move_on_after(self._silence)",
            'trio.move_on_after(float("inf"))',
        ),
        _STORAGE_LINK + "test_a_silent_stream_is_abandoned",
    ),
)
