"""Naive ends of a commit stream: one that waits for what was told before or never will be, one that takes any order."""

from tests.mutations.mutation import Mutation

_LINK = "tests/unit/gateway/test_storage_link.py::"
_WRITE = "tests/unit/storage/test_write_path.py::"

MUTATIONS = (
    # Of a partition whose batch was refused, what is queued behind it goes out all the same.
    Mutation(
        (54,),
        "services/gateway/appender.py",
        "                self._queue.refuse(append.key, behind(error))\n",
        "",
        _LINK + "test_pitfall_54_a_refusal_takes_along_all_that_is_queued_behind_it_for_its_partition",
    ),
    # Messages are applied as they arrive.
    Mutation(
        (59,),
        "services/storage/service.py",
        "if stream is None or not await stream.turn(request.sequence):",
        "if stream is None:",
        _WRITE + "test_pitfall_59_messages_that_arrive_out_of_order_are_applied_in_theirs",
    ),
    # A reply waits for news, whatever was told before it came.
    Mutation(
        (65,),
        "services/gateway/commit_view.py",
        "        if verdict is None:\n",
        "        if True:\n",
        _LINK + "test_pitfall_65_a_commit_that_is_announced_before_the_reply_lets_the_reply_go",
    ),
    # A stream that says nothing any more is listened to for ever.
    Mutation(
        (65,),
        "services/gateway/storage_link.py",
        "trio.move_on_after(self._silence)",
        'trio.move_on_after(float("inf"))',
        _LINK + "test_pitfall_65_a_half_open_stream_is_given_up_when_it_falls_silent",
    ),
)
