"""A naive gateway in front of consumer groups."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_COORDINATOR = "tests/contract/rpc/test_coordinator.py::"
_COORDINATORS = "tests/unit/gateway/test_coordinators.py::"
_GROUPS = "tests/unit/gateway/test_groups.py::"
_MONITORING = "tests/unit/gateway/test_monitoring.py::"

MUTATIONS = (
    Mutation(
        "a JoinGroup with an unknown outcome is repeated",
        Change(
            "services.gateway.fan_out",
            "ask_each",
            (
                "            # The outcome may be unknown, so only the client can decide to repeat the request.\n"
                "            return\n"
            ),
            "            results = await call(link, queries)\n",
        ),
        _COORDINATORS + "test_a_join_of_unknown_outcome_is_not_repeated",
    ),
    Mutation(
        "a JoinGroup waits as long as any call",
        Change(
            "services.gateway.coordinators.links",
            "Coordinators.ask_all",
            "deadline = math.inf if waits else",
            "deadline =",
        ),
        _COORDINATORS + "test_a_join_waits_for_other_members_beyond_the_gateways_timeout",
    ),
    Mutation(
        "OffsetFetch for all topics returns nothing",
        Change("services.gateway.apis.offset_fetch", "_query", "all=asked.topics is None", "all=False"),
        _GROUPS + "test_clients_without_membership_commit_and_fetch_all_offsets",
    ),
    Mutation(
        "the metadata of a commit is lost",
        Change(
            "services.gateway.apis.offset_commit",
            "_offset",
            'metadata=partition.committed_metadata or ""',
            'metadata=""',
        ),
        _GROUPS + "test_clients_without_membership_commit_and_fetch_all_offsets",
    ),
    Mutation(
        "a commit to a group that is being loaded fails in librdkafka's applications",
        Change(
            "services.gateway.apis.offset_commit",
            "_errors",
            (
                "    if reply.error == pb.GroupError.COORDINATOR_LOAD_IN_PROGRESS:\n"
                "        return [NO_COORDINATOR] * count\n"
            ),
            "",
        ),
        _COORDINATORS + "test_a_commit_to_a_loading_group_gets_an_error_on_which_librdkafka_waits",
    ),
    Mutation(
        "a new topic starts without the offsets of an old topic with its name",
        Change(
            "services.gateway.topics.deleted",
            "deleted_topics",
            "            unknown -= await environment.catalog.live_ids()\n",
            "            unknown.clear()\n",
        ),
        _GROUPS + "test_a_recreated_topic_does_not_inherit_committed_offsets",
    ),
    Mutation(
        "a gateway with a stale view sends no reader back to the beginning",
        Change(
            "services.gateway.topics.deleted",
            "deleted_topics",
            "            unknown -= await environment.catalog.live_ids()\n",
            "            pass\n",
        ),
        _GROUPS + "test_a_gateway_with_an_outdated_catalog_does_not_reset_consumers",
    ),
    Mutation(
        "the coordinator named by an error is asked next",
        Change(
            "services.gateway.coordinators.links",
            "Coordinators._moved",
            "            self._hints[shard] = owner",
            "            pass",
        ),
        _COORDINATORS + "test_a_redirect_to_another_coordinator_is_followed_and_remembered",
    ),
    Mutation(
        "no request waits for a coordinator that has gone",
        Change(
            "services.gateway.coordinators.links",
            "CoordinatorLink.end",
            "            scope.cancel()",
            "            pass",
        ),
        _COORDINATORS + "test_a_waiting_join_fails_at_once_when_its_coordinator_goes_away",
    ),
    Mutation(
        "a group is listed by the gateway that clients know as its coordinator",
        Change(
            "services.gateway.apis.list_groups",
            "_list",
            "        if listed.coordinator(each.group).node_id == own\n",
            "",
        ),
        _COORDINATORS + "test_gateways_agree_on_the_coordinators_and_list_each_group_once",
    ),
    Mutation(
        "members do not notice the loading of a group",
        Change(
            "services.gateway.apis.heartbeat",
            "_beat",
            "_answer(call, ErrorCode.none)",
            "_answer(call, group_code(result.error))",
        ),
        _COORDINATORS + "test_heartbeats_succeed_and_syncs_rejoin_while_a_group_loads",
    ),
    Mutation(
        "commits of one connection are stored in its order",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection._may_begin",
            "and order is not Order.ALONE)",
            "or order is Order.ALONE)",
        ),
        _COORDINATORS + "test_commits_of_one_connection_are_stored_in_order",
    ),
    Mutation(
        "a list of groups is complete or refused",
        Change(
            "services.gateway.coordinators.links",
            "Coordinators.list_groups",
            "if answered == _ALL_SHARDS else None",
            "if answered else None",
        ),
        _COORDINATORS + "test_groups_are_listed_only_if_each_shard_has_one_coordinator",
    ),
    Mutation(
        "waiting members do not block heartbeats",
        Change("kafscale.rpc.services", "bind_coordinator", ', waiting=("JoinGroup", "SyncGroup")', ""),
        _COORDINATOR + "test_waiting_members_are_bounded_and_do_not_block_heartbeats",
    ),
    Mutation(
        "an unresponsive coordinator is listed as such",
        Change("services.gateway.coordinators.links", "CoordinatorLink._noted", "self.answers = False", "pass"),
        _MONITORING + "test_metrics_and_health_cover_coordinators_and_their_shards",
    ),
)
