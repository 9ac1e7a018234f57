"""Naive clients of etcd."""

from tests.mutations.mutation import Mutation

_CLIENT = "kafscale/metadata/etcd_client.py"
_STORE = "kafscale/metadata/etcd.py"
_FAILOVER = "tests/unit/metadata/test_etcd_failover.py::"
_MEMBERS = "tests/contract/metadata/test_etcd_members.py::"

_COMPACTION = "tests/unit/metadata/test_compaction.py::"
MUTATIONS = (
    Mutation(
        (),
        _CLIENT,
        "if not repeatable and not isinstance(error, NotDone):",
        "if False:",
        _FAILOVER + "test_a_write_that_may_have_been_done_is_sent_once",
        "a transaction of unknown outcome is not repeated",
    ),
    Mutation(
        (),
        _CLIENT,
        "if not repeatable and not isinstance(error, NotDone):",
        "if False:  # on real members",
        _MEMBERS + "test_members_killed_one_after_another_lose_no_write_and_do_none_twice",
        "a transaction of unknown outcome is not repeated",
    ),
    Mutation(
        (),
        _CLIENT,
        "except Unavailable as error:\n                self.leave(member)",
        "except Unavailable as error:",
        _FAILOVER + "test_a_read_is_asked_of_the_next_member_when_the_first_is_silent",
        "a silent member is left for another",
    ),
    Mutation(
        (),
        _CLIENT,
        "            for scope in member.waiting:\n                scope.cancel()",
        "            member.waiting.clear()",
        _FAILOVER + "test_who_waits_for_messages_of_a_member_is_woken_when_it_is_left_and_nobody_waits_for_it_again",
        "watches leave a silent member with the calls",
    ),
    Mutation(
        (),
        _CLIENT,
        "                self.renew_token(token, error)\n",
        "",
        "tests/contract/metadata/test_etcd_access.py::test_a_token_that_ran_out_is_renewed_without_being_seen",
        "tokens are renewed",
    ),
    Mutation(
        (),
        "kafscale/metadata/etcd_errors.py",
        '    "failed to connect to all addresses": NotDone,\n',
        "",
        _MEMBERS + "test_an_endpoint_where_nobody_listens_costs_no_write",
        "what was not sent is sent to another member",
    ),
    Mutation(
        (),
        "kafscale/metadata/etcd_watch.py",
        "            await self._check_newest()\n",
        "",
        _MEMBERS + "test_a_watch_that_comes_back_to_older_data_says_compacted_and_its_follower_reads_all_anew",
        "a watch does not wait for revisions that a restored etcd makes anew",
    ),
    Mutation(
        (),
        "kafscale/metadata/etcd_watch.py",
        "self._from_revision = reply.events[-1].kv.mod_revision + 1",
        "pass",
        _MEMBERS + "test_the_same_data_is_there_after_a_restart_and_a_watch_goes_on",
        "a watch goes on after what it gave",
    ),
    Mutation(
        (),
        _STORE,
        "limit=limit, revision=revision)",
        "limit=limit)",
        _MEMBERS + "test_a_prefix_of_several_pages_is_read_at_one_revision",
        "pages are of one revision",
    ),
    Mutation(
        (),
        _STORE,
        "if reply.TTL <= 0:",
        "if reply.TTL < 0:",
        "tests/contract/metadata/test_leases.py::test_leases_that_ended_are_told_apart_from_later_ones",
        "a lease that ended cannot be kept alive",
    ),
    Mutation(
        (),
        "kafscale/metadata/compaction.py",
        "if len(self._seen) > 1 and self._seen[1][0] <= limit:",
        "if len(self._seen) > 1:",
        _COMPACTION + "test_nothing_is_forgotten_before_the_span_is_over",
        "history is kept for its span",
    ),
    Mutation(
        (),
        "kafscale/metadata/compaction.py",
        "if self._is_growing() and before:",
        "if False:",
        _COMPACTION + "test_history_is_compacted_by_size_long_before_it_is_old",
        "history is compacted before it fills etcd",
    ),
    Mutation(
        (),
        "kafscale/metadata/compaction.py",
        "if space.file_share(member) > SIZE_SHARE and",
        "if False and",
        _COMPACTION + "test_a_full_etcd_is_compacted_defragmented_member_by_member_and_disarmed",
        "a full etcd is defragmented before it is disarmed",
    ),
    Mutation(
        (),
        "kafscale/metadata/compaction.py",
        "if largest > _DISARM_SHARE:",
        "if False:",
        _COMPACTION + "test_an_etcd_whose_keys_fill_it_is_not_disarmed",
        "an etcd that would be full again is not disarmed",
    ),
)
