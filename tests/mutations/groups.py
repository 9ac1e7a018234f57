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
        "the coordinator assigns partitions itself",
        Change(
            "services.coordinator.syncing",
            "_assign",
            'assignments.get(member.member_id, b"")',
            'b"all" if member.member_id == group.leader else b""',
        ),
        _PROTOCOL_RULES + "test_the_leaders_assignment_is_passed_on_unchanged",
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
        "member ids that were assigned are members forever",
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
        _SHELL_WRITES + "test_a_write_in_flight_does_not_delay_other_groups_of_its_shard",
    ),
    Mutation(
        "successive coordinators use the same keys",
        Change("kafscale.paths", "group_version", 'return f"{generation}-{revision}"', 'return f"{generation}-0"'),
        _PROTOCOL_RULES + "test_a_former_coordinator_never_writes_keys_of_its_successor",
    ),
    Mutation(
        "groups without members expire, and deletion keeps the offsets",
        Change(
            "services.coordinator.offsets",
            "expire_offsets",
            "len(expired) == len(group.offsets) and not group.pending",
            "not group.pending",
        ),
        _PROTOCOL_RULES + "test_empty_groups_keep_their_offsets_until_they_are_deleted",
    ),
    Mutation(
        "empty groups stay with their offsets, and a deletion removes both",
        Change(
            "services.coordinator.stored",
            "delete_stored",
            ("    effects.stage += [Record(group.keys.offset(*partition), None) for partition in group.offsets]\n"),
            "",
        ),
        _PROTOCOL_RULES + "test_empty_groups_keep_their_offsets_until_they_are_deleted",
    ),
    Mutation(
        "a member is forgotten when its rebalance begins",
        Change("services.coordinator.rebalance", "begin", "    elif group.all_joined:\n", "    elif group.joining:\n"),
        _PROTOCOL_RULES + "test_members_stay_known_through_overlapping_rebalances",
    ),
    Mutation(
        "metadata of commits is kept",
        Change("services.coordinator.stored", "offset_record", "        metadata=offset.metadata,\n", ""),
        _PROTOCOL_RULES + "test_metadata_of_commits_is_stored",
    ),
    Mutation(
        "the generation is persisted before JoinGroup is answered",
        Change(
            "services.coordinator.rebalance",
            "complete",
            "    write_header(turn)\n    if group.members:\n",
            "    if group.members:\n",
        ),
        _JOINING + "test_the_generation_and_its_members_are_persisted_before_join_group_is_answered",
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
        _STATIC + "test_the_former_member_id_is_fenced_in_every_request",
    ),
    Mutation(
        "a stable group continues with its next coordinator",
        Change(
            "services.coordinator.stored",
            "read_group",
            "group.state = State.STABLE if header.assignments_version else State.COMPLETING",
            "group.state = State.COMPLETING",
        ),
        _LOADING + "test_a_stable_group_continues_without_a_rebalance_and_with_full_sessions",
    ),
    Mutation(
        "retention begins when the group becomes empty",
        Change("services.coordinator.offsets", "_is_over", "since = max(since, group.changed_ms)", "pass"),
        _OFFSETS + "test_offsets_of_a_group_expire_after_it_has_been_empty_for_the_retention",
    ),
    Mutation(
        "offsets of deleted topics are forgotten",
        Change("services.coordinator.offsets", "expire_offsets", "offset.topic_id in gone or ", ""),
        _SHELL_OFFSETS + "test_offsets_of_deleted_topics_are_removed_from_the_store",
    ),
    Mutation(
        "offsets are kept while the set of topics is unknown",
        Change(
            "services.coordinator.run",
            "Run._deleted_topics",
            "            return set()\n        return known - live",
            "            live = set()\n        return known - live",
        ),
        _SHELL_OFFSETS + "test_offsets_of_deleted_topics_are_removed_from_the_store",
    ),
    Mutation(
        "heartbeats do not report state that is not stored yet",
        Change(
            "services.coordinator.shard",
            "Shard.beat",
            "if result.error in _FINAL and any(entry.alone for entry in self._queues.get(beat.group, ())):",
            "if False:",
        ),
        _SHELL_HEARTBEATS + "test_heartbeats_are_answered_at_once_from_stored_state",
    ),
    Mutation(
        "a group's header fits the metadata store",
        Change(
            "services.coordinator.joining",
            "_exceeds_header",
            "reference_bytes(request.member_id or new_id) > turn.limits.max_header_bytes",
            "0 < 0",
        ),
        _JOINING + "test_members_that_would_make_the_header_too_large_are_refused",
    ),
    Mutation(
        "the number of assigned but unused member ids is limited",
        Change(
            "services.coordinator.joining",
            "_join_new",
            "        len(group.pending) >= limits.max_size\n",
            "        False\n",
        ),
        _JOINING + "test_the_number_of_pending_members_is_bounded",
    ),
    Mutation(
        "groups are not listed while one of them is being loaded",
        Change(
            "services.coordinator.service",
            "CoordinatorService.list_groups",
            "            if shard.loading:\n",
            "            if False:\n",
        ),
        _SHELL + "test_a_shard_is_not_listed_while_a_group_is_reloaded",
    ),
    Mutation(
        ("heartbeats write nothing, so a coordinator that has lost the group keeps answering them"),
        Change("services.coordinator.run", "Run.proven", "if self.membership.proven:", "if True:"),
        _SHELL + "test_a_coordinator_without_a_proven_lease_answers_no_heartbeats",
    ),
    Mutation(
        "offsets are written without a check of the group's owner",
        Change(
            "services.coordinator.shard",
            "Shard._write",
            "            Unchanged(self._key, self.claimed.revision),\n",
            "",
        ),
        _SHELL + "test_a_commit_of_unknown_outcome_cannot_apply_after_a_later_one",
    ),
    Mutation(
        "offsets are written without a check of the group's owner",
        Change(
            "services.coordinator.shard",
            "Shard._write",
            "            Unchanged(self._key, self.claimed.revision),\n",
            "            # whoever has it\n",
        ),
        _SHELL + "test_a_stale_coordinator_cannot_change_anything",
    ),
    Mutation(
        "a group in trouble loses nothing that it answered",
        Change(
            "services.coordinator.shard",
            "Shard.perform",
            "        entry = Entry.of(",
            "        self._answer(effects.replies)\n        entry = Entry.of(",
        ),
        _STORM + "test_a_group_in_trouble_loses_no_commit_and_has_one_coordinator",
    ),
    Mutation(
        "requests are answered after their changes are stored",
        Change(
            "services.coordinator.shard",
            "Shard.perform",
            "        entry = Entry.of(",
            "        self._answer(effects.replies)\n        entry = Entry.of(",
        ),
        _SHELL + "test_a_commit_of_unknown_outcome_cannot_apply_after_a_later_one",
    ),
    Mutation(
        "members whose heartbeats could not be answered get a full session again",
        Change(
            "services.coordinator.run",
            "Run.proven",
            "            self._drop(shard, NotServed(E.NOT_COORDINATOR))\n        return False",
            "            pass\n        return False",
        ),
        _SHELL + "test_an_outage_of_the_store_ends_no_session",
    ),
    Mutation(
        "waiting commits share a transaction",
        Change(
            "services.coordinator.writes", "together", "        if entry.alone or ", "        if entry is not first or "
        ),
        _SHELL_OFFSETS + "test_waiting_commits_share_a_transaction",
    ),
    Mutation(
        "a group's share of writes to the metadata store is limited",
        Change("services.coordinator.shard", "Shard._store", "if wait and not self.releasing:", "if False:"),
        _PACING + "test_only_a_group_that_writes_too_much_is_slowed_down",
        slow=True,
    ),
    Mutation(
        "a throttled group leaves room in the queue",
        Change(
            "services.coordinator.service",
            "CoordinatorService._begin",
            " or shard.delayed_bytes(group) >= limit // _DELAYED_PART",
            "",
        ),
        _PACING + "test_the_queue_of_a_slowed_down_group_leaves_room_for_others",
    ),
    Mutation(
        "the metadata of a group's commits is limited",
        Change("services.coordinator.offsets", "_MetadataQuota.accepts", "if more > max(self._free, 0):", "if False:"),
        _OFFSETS + "test_the_metadata_of_all_offsets_of_a_group_is_limited",
    ),
    Mutation(
        "an unchanged offset that is committed continuously does not expire",
        Change(
            "services.coordinator.offsets",
            "_is_unchanged",
            "0 <= offset.committed_ms - stored.committed_ms < late_ms",
            "0 <= offset.committed_ms - stored.committed_ms",
        ),
        _OFFSETS + "test_a_repeatedly_committed_offset_does_not_expire",
    ),
    Mutation(
        "a transaction has no more operations than etcd accepts",
        Change("services.coordinator.writes", "transactions", "len(part) == MAX_OPERATIONS or ", ""),
        _SHELL_OFFSETS + "test_a_commit_with_more_offsets_than_fit_into_a_transaction_is_stored",
        slow=True,
    ),
    Mutation(
        "the hand-over of a group finishes its work, releases it, and the next coordinator acquires it immediately",
        Change(
            "services.coordinator.run",
            "Run._hand_over",
            "        await self._release(index)\n",
            "        await trio.sleep(60)\n        await self._release(index)\n",
        ),
        _SHELL + "test_groups_move_to_a_new_coordinator_and_back_when_it_stops",
    ),
)
