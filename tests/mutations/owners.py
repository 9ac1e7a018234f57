"""Wrong appends, commits and routing between the gateway and storage."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_ROUTING = "tests/unit/gateway/test_routing.py::"
_STORAGE_LINK = "tests/unit/gateway/test_storage_link.py::"

MUTATIONS = (
    Mutation(
        "a batch lost with its epoch is acked",
        Change(
            "services.gateway.owners.commit_view",
            "_Partition.last_verdict",
            "return ErrorCode.none if durable else MAY_BE_KEPT",
            "return ErrorCode.none",
        ),
        _STORAGE_LINK + "test_a_lost_partition_acks_only_appends_up_to_the_high_watermark",
    ),
    Mutation(
        "an append without an answer is sent again",
        Change(
            "services.gateway.owners.link",
            "StorageLink._exchange",
            'session.give_up(f"an Append has no answer: {error}")',
            "await self._client.append(request, timeout=self._timeout)",
        ),
        _STORAGE_LINK + "test_an_append_without_an_answer_is_not_repeated_and_opens_a_new_stream",
    ),
    Mutation(
        "a commit acks everything below it in any epoch; a topic that was created again is the old one",
        Change(
            "services.gateway.owners.commit_view",
            "_Partition.verdict",
            "        if append.epoch > self.epoch:\n",
            (
                "        if append.wait_for <= self.high_watermark:\n"
                "            return ErrorCode.none\n"
                "        if append.epoch > self.epoch:\n"
            ),
        ),
        _STORAGE_LINK + "test_an_acks_all_reply_waits_for_its_own_topic_id_and_epoch",
    ),
    Mutation(
        "batches go to the new owner before the former owner has refused earlier ones",
        Change(
            "services.gateway.owners.routing",
            "Router.link_for_append",
            "if other is not link and other.queue.carries(key):",
            "if False:",
        ),
        _ROUTING + "test_appends_in_flight_to_a_former_owner_are_not_overtaken",
    ),
    Mutation(
        "an instance that has gone receives requests until its lease expires",
        Change(
            "services.gateway.owners.routing",
            "Router._follow",
            "present = {member.run_id for member in view.present}",
            "present = {member.run_id for member in view}",
        ),
        _ROUTING + "test_the_older_run_of_an_address_gets_no_requests",
    ),
    Mutation(
        "readers get an error that names the owner",
        Change(
            "services.gateway.owners.questions",
            "ask_owners",
            "    await _ask_round(router, moved, ask, grace, begun=0 < len(moved) < len(asked))\n",
            "",
        ),
        _ROUTING + "test_a_read_follows_the_owner_named_in_a_refusal",
    ),
    Mutation(
        "the owner named by an error is trusted forever",
        Change("services.gateway.owners.routing", "Router._owner_changed", "        self._hints.pop(key, None)\n", ""),
        _ROUTING + "test_an_ownership_change_overrides_the_owner_of_a_refusal",
    ),
    Mutation(
        "requests that wait for an instance that has gone wait until their timeout",
        Change("services.gateway.owners.routing", "Router._follow", "            link.end()\n", ""),
        _ROUTING + "test_a_lost_instance_fails_held_appends_and_refuses_queued_ones",
    ),
    Mutation(
        "the news that an instance has left overtakes its last commits",
        Change(
            "services.gateway.owners.link",
            "StorageLink.end",
            "        if self._session is None or not self._session.waits:\n",
            "        if True:\n",
        ),
        _STORAGE_LINK + "test_commits_of_a_leaving_instance_are_acked_after_its_departure_is_known",
    ),
    Mutation(
        "requests wait for an instance that has gone as long as producers wait",
        Change(
            "services.gateway.owners.link",
            "StorageLink.end",
            "        self._life.deadline = trio.current_time() + _LAST_NEWS_SECONDS\n",
            "",
        ),
        _STORAGE_LINK + "test_a_silent_instance_that_has_left_is_not_waited_for_long",
    ),
)
