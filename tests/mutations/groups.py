"""Naive code for consumer groups."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_JOINING = "tests/unit/coordinator/test_joining.py::"
_LOADING = "tests/unit/coordinator/test_loading.py::"
_OFFSETS = "tests/unit/coordinator/test_offsets.py::"
_PACING = "tests/unit/coordinator/test_pacing.py::"
_PROTOCOL_RULES = "tests/unit/coordinator/test_protocol_rules.py::"
_SHELL = "tests/unit/coordinator/test_shell.py::"
_SHELL_HEARTBEATS = "tests/unit/coordinator/test_shell_heartbeats.py::"
_SHELL_OFFSETS = "tests/unit/coordinator/test_shell_offsets.py::"
_SHELL_WRITES = "tests/unit/coordinator/test_shell_writes.py::"
_STATIC = "tests/unit/coordinator/test_static.py::"
_STORM = "tests/unit/coordinator/test_storm.py::"

MUTATIONS = (
    Mutation(
        "the coordinator assigns by itself",
        Change(
            "services.coordinator.syncing",
            "_assign",
            'assignments.get(member.member_id, b"")',
            'b"all" if member.member_id == group.leader else b""',
        ),
        _PROTOCOL_RULES + "test_the_leaders_assignment_is_passed_through_byte_for_byte",
    ),
    Mutation(
        "only members may commit",
        Change(
            "services.coordinator.offsets",
            "_commit_refusal",
            ("if without_membership(request) or (request.generation < 0 and turn.group.state is State.EMPTY):"),
            "if False:",
        ),
        _PROTOCOL_RULES + "test_offsets_are_fetched_for_all_topics_and_committed_without_membership",
    ),
    Mutation(
        "ids that were given are members for good",
        Change(
            "services.coordinator.joining",
            "_join_new",
            "    turn.set_timer(Timer(TimerKind.SESSION, member_id), request.session_timeout_ms)\n",
            "",
        ),
        _PROTOCOL_RULES + "test_join_group_waits_for_the_rebalance_and_leaves_no_phantom_member",
    ),
    Mutation(
        "heartbeats write the group",
        Change(
            "services.coordinator.syncing",
            "heartbeat",
            "        turn.keep_session(turn.group.members[beat.member_id])\n",
            ("        turn.keep_session(turn.group.members[beat.member_id])\n        write_header(turn)\n"),
        ),
        _PROTOCOL_RULES + "test_heartbeats_write_nothing",
    ),
    Mutation(
        "one write at a time",
        Change(
            "services.coordinator.run",
            "Run.__init__",
            "trio.CapacityLimiter(settings.group_writes_in_flight)",
            "trio.CapacityLimiter(1)",
        ),
        _SHELL_WRITES + "test_a_write_under_way_holds_up_no_other_group_of_its_shard",
    ),
    Mutation(
        "what successive coordinators write has the same names",
        Change("kafscale.paths", "group_version", 'return f"{generation}-{revision}"', 'return f"{generation}-0"'),
        _PROTOCOL_RULES + "test_a_coordinator_that_lost_a_group_names_nothing_that_its_successor_has",
    ),
    Mutation(
        "groups without members go, and deletion keeps the offsets",
        Change(
            "services.coordinator.offsets",
            "expire_offsets",
            "len(expired) == len(group.offsets) and not group.pending",
            "not group.pending",
        ),
        _PROTOCOL_RULES + "test_empty_groups_stay_with_their_offsets_and_deletion_takes_both",
    ),
    Mutation(
        "empty groups stay with their offsets and deletion takes both",
        Change(
            "services.coordinator.stored",
            "delete_stored",
            ("    effects.stage += [Record(group.keys.offset(*partition), None) for partition in group.offsets]\n"),
            "",
        ),
        _PROTOCOL_RULES + "test_empty_groups_stay_with_their_offsets_and_deletion_takes_both",
    ),
    Mutation(
        "a member is forgotten when its rebalance begins",
        Change("services.coordinator.rebalance", "begin", "    elif group.all_joined:\n", "    elif group.joining:\n"),
        _PROTOCOL_RULES + "test_members_stay_known_through_rebalances_that_overlap",
    ),
    Mutation(
        "metadata of commits is kept",
        Change("services.coordinator.stored", "offset_record", "        metadata=offset.metadata,\n", ""),
        _PROTOCOL_RULES + "test_metadata_of_commits_is_kept",
    ),
    Mutation(
        "the generation is persisted before JoinGroup is answered",
        Change(
            "services.coordinator.rebalance",
            "complete",
            "    write_header(turn)\n    if group.members:\n",
            "    if group.members:\n",
        ),
        _JOINING + "test_the_generation_is_persisted_with_its_members_before_join_group_is_answered",
    ),
    Mutation(
        "a rebalance timeout of 0 evicts nobody",
        Change(
            "services.coordinator.member",
            "Member.update",
            "timeout if timeout > 0 else request.session_timeout_ms",
            "timeout",
        ),
        _JOINING + "test_a_rebalance_timeout_of_0_evicts_no_member",
    ),
    Mutation(
        "a static member's former id is fenced",
        Change("services.coordinator.group", "Group.membership_error", "return E.FENCED_INSTANCE_ID", "return E.NONE"),
        _STATIC + "test_the_former_id_is_fenced_everywhere",
    ),
    Mutation(
        "a stable group goes on with its next coordinator",
        Change(
            "services.coordinator.stored",
            "read_group",
            "group.state = State.STABLE if header.assignments_version else State.COMPLETING",
            "group.state = State.COMPLETING",
        ),
        _LOADING + "test_a_stable_group_goes_on_without_a_rebalance_and_with_whole_sessions",
    ),
    Mutation(
        "retention begins when the group becomes empty",
        Change("services.coordinator.offsets", "_is_over", "since = max(since, group.changed_ms)", "pass"),
        _OFFSETS + "test_offsets_of_an_empty_group_expire_a_retention_after_it_became_empty",
    ),
    Mutation(
        "offsets of deleted topics are forgotten",
        Change("services.coordinator.offsets", "expire_offsets", "offset.topic_id in gone or ", ""),
        _SHELL_OFFSETS + "test_offsets_of_topics_that_are_no_more_are_forgotten",
    ),
    Mutation(
        "offsets are kept while it is not known which topics there are",
        Change(
            "services.coordinator.run",
            "Run._deleted_topics",
            "            return set()\n        return known - live",
            "            live = set()\n        return known - live",
        ),
        _SHELL_OFFSETS + "test_offsets_of_topics_that_are_no_more_are_forgotten",
    ),
    Mutation(
        "heartbeats are not answered with what is not stored yet",
        Change(
            "services.coordinator.shard",
            "Shard.beat",
            "if result.error in _FINAL and any(entry.alone for entry in self._queues.get(beat.group, ())):",
            "if False:",
        ),
        _SHELL_HEARTBEATS + "test_heartbeats_are_answered_at_once_and_never_with_what_is_not_stored",
    ),
    Mutation(
        "a group's header fits the metadata store",
        Change(
            "services.coordinator.joining",
            "_exceeds_header",
            "reference_bytes(request.member_id or new_id) > turn.limits.max_header_bytes",
            "0 < 0",
        ),
        _JOINING + "test_a_header_that_would_be_too_large_is_refused_before_it_is_made",
    ),
    Mutation(
        "ids that were given and not used are bounded",
        Change(
            "services.coordinator.joining",
            "_join_new",
            "        len(group.pending) >= limits.max_size\n",
            "        False\n",
        ),
        _JOINING + "test_ids_that_were_given_and_not_used_are_bounded",
    ),
    Mutation(
        "groups are not listed while one of them is being loaded",
        Change(
            "services.coordinator.service",
            "CoordinatorService.list_groups",
            "            if shard.loading:\n",
            "            if False:\n",
        ),
        _SHELL + "test_groups_are_not_listed_while_one_is_loaded_anew",
    ),
    Mutation(
        ("heartbeats write nothing, so nothing stops a coordinator that has lost the group from answering them"),
        Change("services.coordinator.run", "Run.proven", "if self.membership.proven:", "if True:"),
        _SHELL + "test_a_coordinator_whose_lease_is_not_proven_answers_nothing_heartbeats_included",
    ),
    Mutation(
        "offsets are written without a look at who has the group by now",
        Change(
            "services.coordinator.shard",
            "Shard._write",
            "            Unchanged(self._key, self.claimed.revision),\n",
            "",
        ),
        _SHELL + "test_a_commit_of_unknown_outcome_cannot_land_after_a_later_one",
    ),
    Mutation(
        "offsets are written without a look at who has the group by now",
        Change(
            "services.coordinator.shard",
            "Shard._write",
            "            Unchanged(self._key, self.claimed.revision),\n",
            "            # whoever has it\n",
        ),
        _SHELL + "test_a_stale_coordinator_can_change_nothing",
    ),
    Mutation(
        "a group in trouble loses nothing that was answered",
        Change(
            "services.coordinator.shard",
            "Shard.perform",
            "        entry = Entry.of(",
            "        self._answer(effects.replies)\n        entry = Entry.of(",
        ),
        _STORM + "test_a_group_in_trouble_loses_nothing_and_is_never_two",
    ),
    Mutation(
        "requests are answered when what they changed is stored",
        Change(
            "services.coordinator.shard",
            "Shard.perform",
            "        entry = Entry.of(",
            "        self._answer(effects.replies)\n        entry = Entry.of(",
        ),
        _SHELL + "test_a_commit_of_unknown_outcome_cannot_land_after_a_later_one",
    ),
    Mutation(
        "members whose heartbeats could not be answered have their whole sessions again",
        Change(
            "services.coordinator.run",
            "Run.proven",
            "            self._drop(shard, NotServed(E.NOT_COORDINATOR))\n        return False",
            "            pass\n        return False",
        ),
        _SHELL + "test_an_outage_of_the_store_ends_no_session",
    ),
    Mutation(
        "commits that wait share a transaction",
        Change(
            "services.coordinator.writes", "together", "        if entry.alone or ", "        if entry is not first or "
        ),
        _SHELL_OFFSETS + "test_commits_that_wait_share_a_transaction",
    ),
    Mutation(
        "a group writes no more than its share of the metadata store",
        Change("services.coordinator.shard", "Shard._store", "if wait and not self.releasing:", "if False:"),
        _PACING + "test_a_group_that_writes_too_much_is_slowed_down_and_no_other",
    ),
    Mutation(
        "a group that is slowed down leaves room in the queue",
        Change(
            "services.coordinator.service",
            "CoordinatorService._begin",
            " or shard.delayed_bytes(group) >= limit // _DELAYED_PART",
            "",
        ),
        _PACING + "test_what_waits_of_a_group_that_is_slowed_down_leaves_room_for_others",
    ),
    Mutation(
        "what a group keeps as metadata has a bound",
        Change("services.coordinator.offsets", "_MetadataQuota.accepts", "if more > max(self._free, 0):", "if False:"),
        _OFFSETS + "test_metadata_of_all_offsets_of_a_group_has_a_largest_size",
    ),
    Mutation(
        "an unchanged offset that is committed all the time does not expire",
        Change(
            "services.coordinator.offsets",
            "_is_unchanged",
            "0 <= offset.committed_ms - stored.committed_ms < late_ms",
            "0 <= offset.committed_ms - stored.committed_ms",
        ),
        _OFFSETS + "test_an_offset_that_is_committed_again_and_again_does_not_expire",
    ),
    Mutation(
        "a transaction has no more operations than etcd takes",
        Change("services.coordinator.writes", "transactions", "len(part) == MAX_OPERATIONS or ", ""),
        _SHELL_OFFSETS + "test_a_commit_of_more_offsets_than_a_transaction_takes_is_stored_whole",
    ),
    Mutation(
        "a group that moves is finished, released and taken at once",
        Change(
            "services.coordinator.run",
            "Run._hand_over",
            "        await self._release(index)\n",
            "        await trio.sleep(60)\n        await self._release(index)\n",
        ),
        _SHELL + "test_groups_move_to_a_newcomer_and_back_from_one_that_stops",
    ),
)
