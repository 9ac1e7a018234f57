"""Naive code for several storage instances: moves, pauses, scans, and deletions of topics."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_COMMIT_VIEW = "tests/unit/gateway/test_commit_view.py::"
_DELETION = "tests/unit/storage/test_deletion.py::"
_HALF_TAKE_OVERS = "tests/unit/storage/test_half_take_overs.py::"
_MOVES = "tests/unit/storage/test_moves.py::"
_PAUSED_OWNERS = "tests/unit/storage/test_paused_owners.py::"
_ROUTING = "tests/unit/gateway/test_routing.py::"
_SCANS = "tests/unit/storage/test_scans.py::"
_SLOW_STORES = "tests/unit/storage/test_slow_stores.py::"
_WRONG_METADATA = "tests/unit/storage/test_wrong_metadata.py::"

MUTATIONS = (
    Mutation(
        "an existing object is overwritten whoever owns it",
        Change(
            "services.storage.writing.flusher",
            "Flusher._put",
            "await self._replace(partition, key, segment.data, there)",
            "await self._objects.replace_if_match(key, segment.data, (await self._objects.head(key)).etag)",
        ),
        _MOVES + "test_a_late_put_after_the_hand_over_deadline_overwrites_nothing",
    ),
    Mutation(
        "an owner keeps its partition whatever the assignment",
        Change(
            "services.storage.owning.assignment",
            "Assignment._is_to_move",
            "(self._everything or bool(self._owned.elsewhere(partition.key)))",
            "self._everything",
        ),
        _MOVES + "test_a_new_instance_gets_its_share_and_nothing_else_moves",
    ),
    Mutation(
        "a former owner's object is deleted before ours is written",
        Change(
            "services.storage.writing.flusher",
            "Flusher._replace",
            "await self._objects.replace_if_match(key, data, there.etag)",
            ("await self._objects.delete_many([key])\n            await self._objects.put_if_absent(key, data)"),
        ),
        _PAUSED_OWNERS + "test_a_former_owners_object_is_overwritten_and_never_deleted",
    ),
    Mutation(
        "the state is released as this owner remembers it",
        Change(
            "services.storage.owning.handover",
            "HandOver.release",
            "state, revision = PartitionState.FromString(now.value), now.mod_revision",
            "revision = now.mod_revision",
        ),
        _PAUSED_OWNERS + "test_a_partition_is_released_with_its_high_watermark",
    ),
    Mutation(
        "the record of refused batches is forgotten with the partition",
        Change(
            "services.storage.writing.commit_streams",
            "CommitStream.forget",
            "        self._subscribed.discard(key)\n",
            "        self._subscribed.discard(key)\n        self.refused.pop(key, None)\n",
        ),
        _MOVES + "test_a_refusal_still_blocks_later_appends_after_the_partition_returns",
    ),
    Mutation(
        "a scan trusts its cached copy",
        Change(
            "services.storage.owning.logs",
            "Logs._refreshed",
            "if copy.view is None or copy.read <= requested_at:",
            "if copy.view is None:",
        ),
        _SCANS + "test_a_scan_reports_out_of_range_only_by_the_current_state",
    ),
    Mutation(
        "an instance with the same address is the same instance",
        Change(
            "services.storage.owning.takeover",
            "_fence",
            (
                "            if state_kv is not None and member is not None:\n"
                "                raise StillOwned(before.owner, state_kv.mod_revision, member.mod_revision)\n"
                "            compares.append(Unchanged(member_key, 0))\n"
            ),
            (
                "            from kafscale.v1.metadata_pb2 import Member\n"
                "            mine = await metadata.get(paths.member_key(namespace, 'storage', run_id))\n"
                "            if len({Member.FromString(kv.value).address for kv in (mine, member) if kv}) "
                "> 1:\n"
                "                raise StillOwned(before.owner, state_kv.mod_revision, member.mod_revision)\n"
            ),
        ),
        _PAUSED_OWNERS + "test_a_restarted_instance_is_distinct_from_its_paused_predecessor",
    ),
    Mutation(
        ("a name is free during another instance's upload, after a delete without an answer, or for a paused process"),
        Change(
            "services.storage.owning.assignment", "Assignment._release_when_quiet", "await partition.quiet()", "pass"
        ),
        _DELETION + "test_a_deletion_waits_for_an_upload_of_another_instance",
    ),
    Mutation(
        "a delete without an answer is awaited",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._delete_together",
            "        except KafscaleError:\n            self._note_pending()\n            raise\n",
            "        except KafscaleError:\n            raise\n",
        ),
        _DELETION + "test_a_deletion_waits_until_an_unanswered_delete_cannot_apply",
    ),
    Mutation(
        "a paused process deletes nothing of the next topic",
        Change(
            "services.storage.upkeep.deletion",
            "_Deletion._delete_together",
            "if not self._membership.proven:",
            "if False:",
        ),
        _DELETION + "test_a_paused_instance_deletes_nothing_of_the_recreated_topic",
    ),
    Mutation(
        "a partition is stored before its hand-over",
        Change("services.storage.owning.handover", "HandOver.prepare", "await self._store(partition)", "pass"),
        _MOVES + "test_a_stop_hands_over_with_at_most_one_refusal_per_partition",
    ),
    Mutation(
        "a partition is not released while a delete may take effect",
        Change(
            "services.storage.owning.handover",
            "HandOver.prepare",
            (
                "await trio.sleep_until(max(partition.last_unknown_delete + self._objects.settle_seconds, "
                "trio.current_time()))"
            ),
            "pass",
        ),
        _MOVES + "test_a_partition_is_released_when_its_unanswered_delete_can_no_longer_apply",
    ),
    Mutation(
        "a partition assigned to another instance is not taken over",
        Change(
            "services.storage.owning.owned",
            "OwnedPartitions._check_assigned",
            "if not self.is_assigned(key) and key not in self._unfinished:",
            "if False:",
        ),
        _MOVES + "test_an_instance_takes_over_nothing_assigned_to_another",
    ),
    Mutation(
        "a request waits for an owner that is about to hand over",
        Change(
            "services.storage.owning.owned", "OwnedPartitions._take_over", "self._settings.handover_wait_ms / 1000", "0"
        ),
        _MOVES + "test_a_stop_hands_over_with_at_most_one_refusal_per_partition",
    ),
    Mutation(
        "the number of partitions in a move is limited",
        Change(
            "services.storage.owning.assignment",
            "Assignment._hand_over_moved",
            "await self._releasing.acquire()",
            "pass",
        ),
        _MOVES + "test_concurrent_moves_are_limited",
    ),
    Mutation(
        "partitions are taken over before the first request",
        Change(
            "services.storage.owning.assignment", "Assignment.run", "self._nursery.start_soon(self._take_over)", "pass"
        ),
        _MOVES + "test_an_idle_partition_moves_to_its_new_owner_within_a_second",
    ),
    Mutation(
        "unavailable partitions do not block others",
        Change(
            "services.storage.owning.assignment",
            "Assignment._take",
            "self._nursery.start_soon(self._take_later, ref)",
            "await self._take_again(ref)",
        ),
        _HALF_TAKE_OVERS + "test_unavailable_partitions_do_not_block_other_take_overs",
    ),
    Mutation(
        "requests that wait for a commit are answered when the run ends",
        Change(
            "services.storage.run",
            "Run.end",
            "        self.streams.end()\n        self._moved.notify()\n",
            "        self.streams.end()\n",
        ),
        _PAUSED_OWNERS + "test_requests_that_wait_for_a_commit_are_answered_when_the_lease_is_lost",
    ),
    Mutation(
        "a released partition is taken over immediately",
        Change(
            "services.storage.owning.assignment",
            "Assignment._take_released",
            "                    elif not state.owner:\n",
            "                    elif False:\n",
        ),
        _MOVES + "test_an_idle_partition_moves_to_its_new_owner_within_a_second",
    ),
    Mutation(
        "readers are served until a partition is released",
        Change(
            "services.storage.owning.handover",
            "HandOver.prepare",
            "        partition.moving = True\n",
            "        partition.moving = True\n        self._owned._partitions.pop(partition.key)\n",
        ),
        _MOVES + "test_readers_are_served_until_a_partition_is_released",
    ),
    Mutation(
        "an error for an append names the next owner",
        Change("services.storage.methods.append", "_append_to", "owner=run.owned.elsewhere(partition.key)", 'owner=""'),
        _MOVES + "test_readers_are_served_until_a_partition_is_released",
    ),
    Mutation(
        "a scan does not trust a read that began before its request",
        Change(
            "services.storage.owning.logs",
            "Logs._fetch",
            "self._recent(copy), fetch.offset, copy.reads",
            "self._recent(copy), fetch.offset, copy.read",
        ),
        _SCANS + "test_a_scan_does_not_rely_on_an_earlier_state_read",
    ),
    Mutation(
        "a scan that misses an object reads the state again",
        Change(
            "services.storage.owning.logs",
            "Logs._fetch",
            "            except Damaged:\n",
            "            except ZeroDivisionError:\n",
        ),
        _SCANS + "test_a_scan_below_the_log_start_gets_the_log_start",
    ),
    Mutation(
        "scans remember a limited number of partitions",
        Change("services.storage.owning.logs", "Logs._copy", "if len(self._copies) > self._capacity:", "if False:"),
        _SCANS + "test_scans_remember_a_bounded_number_of_partitions",
    ),
    Mutation(
        "one slow take-over does not block the appends of other partitions",
        Change(
            "services.storage.methods.append",
            "append",
            "for append in request.appends], patience=patience)",
            "for append in request.appends])",
        ),
        _SLOW_STORES + "test_a_slow_take_over_delays_appends_to_other_partitions_only_once",
    ),
    Mutation(
        "a request does not wait again for a take-over that has just failed",
        Change("services.storage.owning.owned", "OwnedPartitions._begin", "load.since = failed.since", "pass"),
        _MOVES + "test_a_pending_hand_over_delays_appends_only_once",
    ),
    Mutation(
        "a take-over that failed long ago does not keep requests from waiting for the next one",
        Change("services.storage.owning.owned", "OwnedPartitions._begin", "now - failed.at < _SAME_TROUBLE", "True"),
        _SLOW_STORES + "test_appends_wait_for_a_take_over_if_the_last_failure_was_long_ago",
    ),
    Mutation(
        "an unreadable partition does not delay cached data",
        Change(
            "services.storage.methods.fetch",
            "fetch",
            "with trio.move_on_at(deadline) as waiting:",
            "with trio.move_on_at(float('inf')) as waiting:",
        ),
        _SLOW_STORES + "test_cached_records_are_returned_next_to_an_unreadable_partition",
    ),
    Mutation(
        "the cold partitions of a fetch are read concurrently",
        Change(
            "services.storage.methods.fetch",
            "fetch",
            "begun = _begin_reads(run, request.fetches, partitions, limits) if len(partitions) > 1 else {}",
            "begun: dict[int, Flight[bytes]] = {}",
        ),
        _SLOW_STORES + "test_cold_partitions_are_read_concurrently_and_beyond_the_timeout",
    ),
    Mutation(
        "the number of fetches that wait for the object store is limited",
        Change(
            "services.storage.reading.reader",
            "Reader.read",
            "return await self.begin(view, offset, max_bytes).wait()",
            "return await self._read(view, offset, max_bytes)",
        ),
        _SLOW_STORES + "test_fetches_that_wait_for_the_store_are_bounded",
    ),
    Mutation(
        "any owner finishes a deletion, even if its initiator is dead",
        Change(
            "kafscale.metadata.topics",
            "TopicCatalog._forget",
            "unmoved = [Unchanged(key, topic.mod_revision), there]",
            "unmoved = [Unchanged(key, topic.mod_revision)]",
        ),
        _DELETION + "test_a_late_request_of_a_dead_instance_does_not_free_the_name",
    ),
    Mutation(
        "a state of a newer release is not changed",
        Change(
            "services.storage.owning.takeover", "_fence", "if before.format not in _FORMATS:", "if before.format > 9:"
        ),
        _WRONG_METADATA + "test_a_state_of_a_newer_release_is_not_changed",
    ),
    Mutation(
        "the memory of lost partitions is limited",
        Change(
            "services.gateway.owners.commit_view",
            "CommitView.apply",
            "if len(self._lost) > _LOST_REMEMBERED:",
            "if False:",
        ),
        _COMMIT_VIEW + "test_the_number_of_remembered_partitions_is_bounded",
    ),
    Mutation(
        "only an owner with a proven lease deletes records",
        Change(
            "services.storage.methods.delete_records",
            "_delete_records_of",
            "refusal = await refusal_of(run, deps, partition, -1, view.log_start)",
            "refusal = None",
        ),
        _PAUSED_OWNERS + "test_a_paused_owner_does_not_answer_delete_records",
    ),
    Mutation(
        "readers continue if the same run owns a partition again",
        Change(
            "services.gateway.apis.fetch",
            "_Position.may_have_more",
            "if router.epoch(self.key) > max(self.epoch, self.known_epoch):",
            "if False:",
        ),
        _ROUTING + "test_a_parked_fetch_is_sent_again_when_the_same_run_gets_the_partition_back",
    ),
    Mutation(
        "an old answer is not requested repeatedly",
        Change(
            "services.gateway.apis.fetch",
            "_Position.may_have_more",
            "if router.epoch(self.key) > max(self.epoch, self.known_epoch):",
            "if router.epoch(self.key) > self.epoch:",
        ),
        _ROUTING + "test_an_answer_with_an_older_epoch_is_requested_only_once_more",
    ),
)
