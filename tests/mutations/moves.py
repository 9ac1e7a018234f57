"""Naive code for several storage instances: moves, pauses, scans, and topics that one of them deletes."""

from tests.mutations.mutation import Mutation

_ASSIGNMENT = "services/storage/assignment.py"
_DELETION = "services/storage/deletion.py"
_HANDOVER = "services/storage/handover.py"
_OWNED = "services/storage/owned.py"
_LOGS = "services/storage/logs.py"
_DELETE_TESTS = "tests/unit/storage/test_deletion.py::"
_SLOW = "tests/unit/storage/test_slow_stores.py::"
_MOVE_TESTS = "tests/unit/storage/test_moves.py::"
_PAUSE_TESTS = "tests/unit/storage/test_paused_owners.py::"
_ROUTING_TESTS = "tests/unit/gateway/test_routing.py::"
_SCAN_TESTS = "tests/unit/storage/test_scans.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    # A name that is taken is written over, whoever has it.
    Mutation(
        (5,),
        "services/storage/flusher.py",
        "await self._claim(partition, key, segment.data)",
        "await self._objects.replace_if_match(key, segment.data, (await self._objects.head(key)).etag)",
        _MOVE_TESTS + "test_pitfall_05_a_late_put_of_who_gave_up_at_its_deadline_overwrites_nothing",
    ),
    # Whoever has a partition keeps it.
    Mutation(
        (44,),
        _ASSIGNMENT,
        "(self._everything or bool(self._owned.elsewhere(partition.key)))",
        "self._everything",
        _MOVE_TESTS + "test_pitfall_44_a_newcomer_takes_its_share_and_nothing_else_moves",
    ),
    # The newest object at or below an offset is the log's.
    Mutation(
        (47,),
        "services/storage/reader.py",
        "if header.epoch == key.epoch:",
        "if True:",
        _PAUSE_TESTS + "test_pitfall_47_and_64_a_late_segment_of_a_former_owner_is_never_read",
    ),
    # A former owner's object is set aside.
    Mutation(
        (49,),
        "services/storage/flusher.py",
        "await self._objects.replace_if_match(key, data, there.etag)",
        "await self._objects.delete_many([key])\n            await self._objects.put_if_absent(key, data)",
        _PAUSE_TESTS + "test_pitfall_49_a_former_owners_object_is_replaced_and_never_deleted",
    ),
    # The state is given back as this owner knows it.
    Mutation(
        (50,),
        _HANDOVER,
        "state, revision = PartitionState.FromString(now.value), now.mod_revision",
        "revision = now.mod_revision",
        _PAUSE_TESTS + "test_pitfall_50_a_partition_is_given_back_with_the_end_that_was_committed",
    ),
    # What was refused is forgotten with the partition.
    Mutation(
        (54,),
        "services/storage/commits.py",
        "        self._subscribed.discard(key)\n",
        "        self._subscribed.discard(key)\n        self.refused.pop(key, None)\n",
        _MOVE_TESTS + "test_pitfall_54_what_was_refused_stays_so_when_the_partition_comes_back",
    ),
    # A scan believes the copy that it has.
    Mutation(
        (60,),
        _LOGS,
        "if copy.view is None or copy.read <= asked_at:",
        "if copy.view is None:",
        _SCAN_TESTS + "test_pitfall_60_a_scan_says_out_of_range_only_by_the_state_as_it_is_now",
    ),
    # Who has the same address is the same.
    Mutation(
        (62,),
        "services/storage/takeover.py",
        "            if state_kv is not None and member is not None:\n"
        "                raise StillOwned(before.owner, state_kv.mod_revision, member.mod_revision)\n"
        "            compares.append(Unchanged(member_key, 0))\n",
        "            from kafscale.v1.metadata_pb2 import Member\n"
        "            mine = await metadata.get(paths.member_key(namespace, 'storage', run_id))\n"
        "            if len({Member.FromString(kv.value).address for kv in (mine, member) if kv}) > 1:\n"
        "                raise StillOwned(before.owner, state_kv.mod_revision, member.mod_revision)\n",
        _PAUSE_TESTS + "test_pitfall_62_a_restarted_instance_is_not_its_paused_predecessor",
    ),
    # A name is free while another instance's upload is under way; after a delete without an answer; for who was paused.
    Mutation(
        (51,),
        _ASSIGNMENT,
        "await partition.quiet()",
        "pass",
        _DELETE_TESTS + "test_pitfall_51_an_upload_under_way_at_another_instance_is_waited_for",
    ),
    Mutation(
        (51,),
        _DELETION,
        "        except KafscaleError:\n            self._will_land()\n            raise\n",
        "        except KafscaleError:\n            raise\n",
        _DELETE_TESTS + "test_pitfall_51_a_delete_without_an_answer_is_waited_for",
    ),
    Mutation(
        (51,),
        _DELETION,
        "if not self._membership.proven:",
        "if False:",
        _DELETE_TESTS + "test_pitfall_51_a_paused_deleter_deletes_nothing_of_the_next_topic",
    ),
    _breaking(
        "a partition is stored before it is handed over",
        _HANDOVER,
        "await self._store(partition)",
        "pass",
        _MOVE_TESTS + "test_a_stop_hands_all_over_within_one_refusal",
    ),
    _breaking(
        "a partition is not given back while a delete may land",
        _HANDOVER,
        "await trio.sleep_until(max(partition.last_unknown_delete + self._objects.settle_seconds, "
        "trio.current_time()))",
        "pass",
        _MOVE_TESTS + "test_a_partition_of_an_unanswered_delete_is_given_back_when_that_can_land_no_more",
    ),
    _breaking(
        "nothing is taken over that another instance is to have",
        _OWNED,
        "if not self.given(key) and key not in self._unfinished:",
        "if False:",
        _MOVE_TESTS + "test_an_instance_takes_nothing_that_another_is_to_have",
    ),
    _breaking(
        "a request waits for an owner that is about to hand over",
        _OWNED,
        "self._settings.handover_wait_ms / 1000",
        "0",
        _MOVE_TESTS + "test_a_stop_hands_all_over_within_one_refusal",
    ),
    _breaking(
        "a bounded number of partitions is on the move",
        _ASSIGNMENT,
        "await self._giving.acquire()",
        "pass",
        _MOVE_TESTS + "test_no_more_partitions_are_on_the_move_than_set",
    ),
    _breaking(
        "partitions are taken over before anybody asks for them",
        _ASSIGNMENT,
        "self._nursery.start_soon(self._take_over)",
        "pass",
        _MOVE_TESTS + "test_an_idle_partition_is_where_it_belongs_within_a_second",
    ),
    _breaking(
        "what stays unavailable keeps no place from the others",
        _ASSIGNMENT,
        "self._nursery.start_soon(self._take_again, ref)",
        "await self._take_again(ref)",
        "tests/unit/storage/test_half_take_overs.py"
        "::test_what_stays_unavailable_keeps_nothing_else_from_being_taken_over",
    ),
    _breaking(
        "who waits for a commit is told of the run's end",
        "services/storage/run.py",
        "        self.streams.end()\n        self._wake_waiting()\n",
        "        self.streams.end()\n",
        _PAUSE_TESTS + "test_who_waits_for_a_commit_is_answered_when_the_lease_is_lost",
    ),
    _breaking(
        "what was given back is taken over at once",
        _ASSIGNMENT,
        "                    elif not state.owner:\n",
        "                    elif False:\n",
        _MOVE_TESTS + "test_an_idle_partition_is_where_it_belongs_within_a_second",
    ),
    _breaking(
        "readers are served until a partition is given back",
        _HANDOVER,
        "        partition.moving = True\n",
        "        partition.moving = True\n        self._owned._partitions.pop(partition.key)\n",
        _MOVE_TESTS + "test_readers_are_served_until_a_partition_is_given_back",
    ),
    _breaking(
        "who refuses an append tells who is to have the partition",
        "services/storage/placing.py",
        "owner=run.owned.elsewhere(partition.key)",
        'owner=""',
        _MOVE_TESTS + "test_readers_are_served_until_a_partition_is_given_back",
    ),
    _breaking(
        "a scan does not believe a read that began before it asked",
        _LOGS,
        "copy.view, fetch.offset, copy.reads",
        "copy.view, fetch.offset, copy.read",
        _SCAN_TESTS + "test_a_scan_that_waits_for_an_earlier_read_does_not_believe_it",
    ),
    _breaking(
        "a scan that misses an object looks at the state again",
        _LOGS,
        "            except Damaged:\n",
        "            except ZeroDivisionError:\n",
        _SCAN_TESTS + "test_a_scan_of_what_retention_deletes_is_told_where_the_log_starts",
    ),
    _breaking(
        "scans remember a bounded number of partitions",
        _LOGS,
        "if len(self._copies) > self._capacity:",
        "if False:",
        _SCAN_TESTS + "test_scans_remember_a_bounded_number_of_partitions",
    ),
    Mutation(
        (),
        "services/storage/service.py",
        "for append in request.appends], patience=patience)",
        "for append in request.appends])",
        _SLOW + "test_a_slow_take_over_holds_up_the_appends_of_other_partitions_once",
        "one slow take-over does not hold up the appends of all partitions",
    ),
    Mutation(
        (),
        _OWNED,
        "load.since = failed.since",
        "pass",
        _MOVE_TESTS + "test_an_awaited_hand_over_holds_up_the_appends_of_other_partitions_once",
        "what failed just now is not waited for anew",
    ),
    Mutation(
        (),
        _OWNED,
        "now - failed.at < _SAME_TROUBLE",
        "True",
        _SLOW + "test_after_a_take_over_that_failed_long_ago_the_next_one_is_waited_for",
        "a take-over that failed long ago does not keep the next one from being waited for",
    ),
    Mutation(
        (),
        "services/storage/fetches.py",
        "with trio.move_on_at(deadline) as waiting:",
        "with trio.move_on_at(float('inf')) as waiting:",
        _SLOW + "test_cached_records_are_given_beside_a_partition_that_cannot_be_read",
        "what cannot be read does not keep back what is cached",
    ),
    Mutation(
        (),
        "services/storage/fetches.py",
        "begun = _begin_reads(run, request.fetches, partitions, limits) if len(partitions) > 1 else {}",
        "begun: dict[int, Flight[bytes]] = {}",
        _SLOW + "test_cold_partitions_are_read_together_and_on_when_the_time_is_over",
        "the cold partitions of one fetch are read at the same time",
    ),
    Mutation(
        (),
        "services/storage/reader.py",
        "return await self.begin(view, offset, max_bytes).wait()",
        "return await self._read(view, offset, max_bytes)",
        _SLOW + "test_fetches_that_wait_for_the_store_are_bounded",
        "fetches that wait for the object store are bounded",
    ),
    # A deletion is finished by whoever began it, dead or alive.
    Mutation(
        (51,),
        "kafscale/metadata/topics.py",
        "unmoved = [Unchanged(key, topic.mod_revision), there]",
        "unmoved = [Unchanged(key, topic.mod_revision)]",
        _DELETE_TESTS + "test_pitfall_51_what_a_dead_deleter_had_sent_does_not_free_the_name",
    ),
    _breaking(
        "a state of a newer release is left alone",
        "services/storage/takeover.py",
        "if before.format != _FORMAT:",
        "if before.format > 9:",
        "tests/unit/storage/test_wrong_metadata.py::test_a_state_that_a_newer_release_wrote_is_left_alone",
    ),
    _breaking(
        "what is remembered of partitions that are lost is bounded",
        "services/gateway/commit_view.py",
        "if len(self._lost) > _LOST_REMEMBERED:",
        "if False:",
        "tests/unit/gateway/test_commit_view.py::test_partitions_that_come_and_go_leave_a_bounded_number_behind",
    ),
    _breaking(
        "records are deleted by an owner that proves its lease",
        "services/storage/service.py",
        "refusal = await refusal_of(run, self._parts, partition, -1, view.log_start)",
        "refusal = None",
        _PAUSE_TESTS + "test_what_a_paused_owner_knows_of_the_log_decides_no_delete_records",
    ),
    _breaking(
        "readers go on where the same run has a partition anew",
        "services/gateway/apis/fetch.py",
        "if router.epoch(self.key) > max(self.epoch, self.known_epoch):",
        "if False:",
        _ROUTING_TESTS + "test_a_parked_fetch_is_asked_again_when_the_same_run_has_the_partition_anew",
    ),
    _breaking(
        "an old answer is not asked for again and again",
        "services/gateway/apis/fetch.py",
        "if router.epoch(self.key) > max(self.epoch, self.known_epoch):",
        "if router.epoch(self.key) > self.epoch:",
        _ROUTING_TESTS + "test_an_answer_of_an_older_epoch_than_the_maps_is_asked_for_once_more_only",
    ),
)
