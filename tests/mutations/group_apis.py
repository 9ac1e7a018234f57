"""A naive gateway in front of consumer groups."""

from tests.mutations.mutation import Mutation

_COORDINATORS = "tests/unit/gateway/test_coordinators.py::"
_GROUPS = "tests/unit/gateway/test_groups.py::"
_PROTOCOL = "tests/unit/gateway/test_protocol.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    # A join is asked for again when its outcome is unknown.
    Mutation(
        (31,),
        "services/gateway/coordinators.py",
        "            # The outcome may be unknown: whether to ask again is the client's to know.\n            return\n",
        "            with link.calling():\n"
        "                results = await ask(link, [question.query for question in questions], timeout)\n",
        _COORDINATORS + "test_pitfall_31_a_join_of_unknown_outcome_is_not_sent_again",
    ),
    # A join waits as long as any call.
    Mutation(
        (31,),
        "services/gateway/coordinators.py",
        "deadline = math.inf if waits else",
        "deadline =",
        _COORDINATORS + "test_pitfall_31_a_join_waits_for_the_others_whatever_the_gateways_timeout_is",
    ),
    # OffsetFetch of all topics answers nothing.
    Mutation(
        (30, 40),
        "services/gateway/apis/offset_fetch.py",
        "all=topics is None",
        "all=False",
        _GROUPS + "test_pitfall_30_and_40_who_is_no_member_commits_and_all_offsets_come_with_their_metadata",
    ),
    # The metadata of a commit is lost.
    Mutation(
        (30, 40),
        "services/gateway/apis/offset_commit.py",
        'metadata=partition.committed_metadata or ""',
        'metadata=""',
        _GROUPS + "test_pitfall_30_and_40_who_is_no_member_commits_and_all_offsets_come_with_their_metadata",
    ),
    _breaking(
        "A commit to a group that is being loaded fails in librdkafka's applications",
        "services/gateway/apis/offset_commit.py",
        "    if reply.error == pb.GroupError.COORDINATOR_LOAD_IN_PROGRESS:\n        return [NO_COORDINATOR] * count\n",
        "",
        _COORDINATORS + "test_a_commit_to_a_group_that_is_being_loaded_is_answered_so_that_librdkafka_waits",
    ),
    # A version's rule holds for the one before it too.
    Mutation(
        (37,),
        "services/gateway/apis/describe_groups.py",
        "_NOT_FOUND_FROM = 6",
        "_NOT_FOUND_FROM = 5",
        _PROTOCOL + "test_pitfall_37_every_advertised_version_is_answered_in_full",
    ),
    _breaking(
        "A new topic begins without the offsets of an old one of its name",
        "services/gateway/group_questions.py",
        "            unknown -= await environment.catalog.live_ids()\n",
        "            unknown.clear()\n",
        _GROUPS + "test_a_new_topic_does_not_take_up_what_was_committed_for_an_old_one_of_its_name",
    ),
    _breaking(
        "A gateway that is behind sends no reader back to the beginning",
        "services/gateway/group_questions.py",
        "            unknown -= await environment.catalog.live_ids()\n",
        "            pass\n",
        _GROUPS + "test_a_gateway_that_has_not_seen_a_topic_yet_does_not_send_its_readers_back",
    ),
    _breaking(
        "The run that is named has the group",
        "services/gateway/coordinators.py",
        "            self._hints[shard] = owner",
        "            pass",
        _COORDINATORS + "test_the_run_that_is_named_by_one_that_has_not_the_group_is_asked_at_once_and_from_then_on",
    ),
    _breaking(
        "Nobody waits for a coordinator that has gone",
        "services/gateway/coordinators.py",
        "            scope.cancel()",
        "            pass",
        _COORDINATORS + "test_a_join_that_waits_at_a_coordinator_that_goes_is_answered",
    ),
    _breaking(
        "Heartbeats are gathered",
        "services/gateway/heartbeats.py",
        "_MOST_GATHERED = 1000",
        "_MOST_GATHERED = 1",
        _COORDINATORS + "test_heartbeats_that_arrive_together_are_one_call",
    ),
    _breaking(
        "A group is listed by the gateway that clients find it at",
        "services/gateway/apis/list_groups.py",
        "        if listed.coordinator(each.group).node_id == own\n",
        "",
        _COORDINATORS + "test_gateways_give_the_same_answers_spread_groups_and_list_each_group_once",
    ),
    _breaking(
        "Members do not know of loading",
        "services/gateway/apis/heartbeat.py",
        "_answer(call, ErrorCode.none)",
        "_answer(call, group_code(result.error))",
        _COORDINATORS + "test_a_group_that_is_being_loaded_lets_heartbeats_pass_and_sync_join_again_as_in_kafka",
    ),
    _breaking(
        "Commits of one connection are stored in its order",
        "services/gateway/connection.py",
        "and order is not Order.ALONE)",
        "or order is Order.ALONE)",
        _COORDINATORS + "test_pitfall_61_commits_of_one_connection_are_stored_in_its_order",
    ),
    _breaking(
        "A list of groups has all of them, or is refused",
        "services/gateway/coordinators.py",
        "if answered == _ALL_SHARDS else None",
        "if answered else None",
        _COORDINATORS + "test_groups_are_listed_only_when_each_shard_is_answered_for_by_one_coordinator",
    ),
    _breaking(
        "Members that wait keep no heartbeat out",
        "kafscale/rpc/typed.py",
        ", waiting=_WAITING",
        "",
        "tests/contract/rpc/test_coordinator.py::"
        "test_members_that_wait_for_others_keep_no_heartbeat_out_and_are_bounded_too",
    ),
    _breaking(
        "A coordinator that does not answer is shown",
        "services/gateway/coordinators.py",
        "self.answers = False",
        "pass",
        "tests/unit/gateway/test_monitoring.py::"
        "test_which_coordinators_there_are_what_they_are_given_and_whether_they_answer",
    ),
)
