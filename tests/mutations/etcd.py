"""Naive clients of etcd."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_COMPACTION = "tests/unit/metadata/test_compaction.py::"
_ETCD_ACCESS = "tests/contract/metadata/test_etcd_access.py::"
_ETCD_FAILOVER = "tests/unit/metadata/test_etcd_failover.py::"
_ETCD_MEMBERS = "tests/contract/metadata/test_etcd_members.py::"
_LEASES = "tests/contract/metadata/test_leases.py::"

MUTATIONS = (
    Mutation(
        "a transaction with an unknown outcome is not repeated",
        Change(
            "kafscale.metadata.etcd_client",
            "EtcdClient.call",
            "if not repeatable and not isinstance(error, NotDone):",
            "if False:",
        ),
        _ETCD_FAILOVER + "test_a_write_that_may_have_been_applied_is_sent_once",
    ),
    Mutation(
        "a transaction with an unknown outcome is not repeated",
        Change(
            "kafscale.metadata.etcd_client",
            "EtcdClient.call",
            "if not repeatable and not isinstance(error, NotDone):",
            "if False:  # on real members",
        ),
        _ETCD_MEMBERS + "test_killing_members_one_after_another_loses_no_write_and_repeats_none",
    ),
    Mutation(
        "a client leaves a silent member for another",
        Change(
            "kafscale.metadata.etcd_client",
            "EtcdClient.call",
            "except Unavailable as error:\n                self.leave(member)",
            "except Unavailable as error:",
        ),
        _ETCD_FAILOVER + "test_a_read_is_sent_to_the_next_member_if_the_first_does_not_answer",
    ),
    Mutation(
        "watches leave a silent member together with the calls",
        Change(
            "kafscale.metadata.etcd_client",
            "EtcdClient.leave",
            "            for scope in member.waiting:\n                scope.cancel()",
            "            member.waiting.clear()",
        ),
        _ETCD_FAILOVER + "test_waiters_for_messages_of_a_member_wake_when_it_is_left_and_no_one_waits_for_it_again",
    ),
    Mutation(
        "tokens are renewed",
        Change(
            "kafscale.metadata.etcd_client", "EtcdClient.call", "                self.renew_token(token, error)\n", ""
        ),
        _ETCD_ACCESS + "test_an_expired_token_is_renewed_without_an_error",
        slow=True,
    ),
    Mutation(
        "a watch does not wait for revisions that a restored etcd creates again",
        Change("kafscale.metadata.etcd_watch", "EtcdWatch._stream", "            await self._check_newest()\n", ""),
        _ETCD_MEMBERS + "test_a_watch_that_reconnects_to_older_data_raises_compacted_and_its_follower_reads_all_again",
        slow=True,
    ),
    Mutation(
        "a watch continues after the last event it returned",
        Change(
            "kafscale.metadata.etcd_watch",
            "EtcdWatch._take",
            "self._from_revision = reply.events[-1].kv.mod_revision + 1",
            "pass",
        ),
        _ETCD_MEMBERS + "test_data_survives_a_restart_and_a_watch_continues",
    ),
    Mutation(
        "pages are of one revision",
        Change(
            "kafscale.metadata.etcd", "EtcdMetadataStore.read_page", "limit=limit, revision=revision)", "limit=limit)"
        ),
        _ETCD_MEMBERS + "test_a_prefix_of_several_pages_is_read_at_one_revision",
    ),
    Mutation(
        "an expired lease cannot be kept alive",
        Change("kafscale.metadata.etcd", "EtcdMetadataStore.keep_alive", "if reply.TTL <= 0:", "if reply.TTL < 0:"),
        _LEASES + "test_leases_that_ended_are_distinguished_from_later_ones",
    ),
    Mutation(
        "history is kept for its time span",
        Change(
            "kafscale.metadata.compaction",
            "Upkeep._compact_older",
            "if len(self._seen) > 1 and self._seen[1][0] <= limit:",
            "if len(self._seen) > 1:",
        ),
        _COMPACTION + "test_nothing_is_compacted_before_the_span_is_over",
    ),
    Mutation(
        "history is compacted before it fills etcd",
        Change("kafscale.metadata.compaction", "Upkeep._look", "if self._is_growing() and before:", "if False:"),
        _COMPACTION + "test_history_is_compacted_by_size_long_before_it_is_old",
    ),
    Mutation(
        "a full etcd is defragmented before its alarm is disarmed",
        Change(
            "kafscale.metadata.compaction",
            "Upkeep._shrink_or_disarm",
            "if space.file_share(member) > SIZE_SHARE and",
            "if False and",
        ),
        _COMPACTION + "test_a_full_etcd_is_compacted_defragmented_member_by_member_and_disarmed",
    ),
    Mutation(
        "the alarm of an etcd that would be full again is not disarmed",
        Change("kafscale.metadata.compaction", "Upkeep._shrink_or_disarm", "if largest > _DISARM_SHARE:", "if False:"),
        _COMPACTION + "test_an_etcd_that_is_full_of_live_keys_is_not_disarmed",
    ),
)
