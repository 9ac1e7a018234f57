"""Naive readers of a commit stream, which ignore order or wait for news that came before or never comes."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_STORAGE_LINK = "tests/unit/gateway/test_storage_link.py::"
_WRITE_PATH = "tests/unit/storage/test_write_path.py::"

MUTATIONS = (
    Mutation(
        "batches queued after a refused batch of their partition are sent all the same",
        Change(
            "services.gateway.owners.appends",
            "AppendStream.replied",
            "                self._queue.refuse(append.key, behind(error))\n",
            "",
        ),
        _STORAGE_LINK + "test_a_refusal_also_refuses_queued_appends_to_its_partition",
    ),
    Mutation(
        "producers that were answered are waited for",
        Change("services.gateway.owners.link", "StorageLink._follow", "if finished:", "if False:"),
        _STORAGE_LINK + "test_appends_of_producers_that_were_just_answered_share_a_call",
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
