"""A naive Admin service, and a naive command."""

from tests.mutations.mutation import Mutation

_ADMIN = "tests/unit/gateway/test_admin.py::"
_CLI = "tests/unit/cli/test_admin.py::"
_DRAIN = "tests/unit/gateway/test_admin_drain.py::"
_GROUPS = "tests/unit/gateway/test_admin_groups.py::"
_SEGMENTS = "tests/unit/storage/test_segment_list.py::"
_SIZES = "tests/unit/storage/test_sizes.py::"
_TOKEN = "tests/contract/rpc/test_token.py::"
_WATCH = "tests/unit/gateway/test_admin_watch.py::"
_WRONG = "tests/unit/storage/test_wrong_metadata.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    _breaking(
        "nobody is answered without the token",
        "kafscale/rpc/calls.py",
        "if served.token and not _bears(served.token, context):",
        "if False and not _bears(served.token, context):",
        _TOKEN + "test_who_does_not_is_unauthenticated_and_the_service_is_not_called",
    ),
    _breaking(
        "the whole token counts",
        "kafscale/rpc/calls.py",
        "hmac.compare_digest(rest, token)",
        "rest.startswith(token)",
        _TOKEN + "test_who_does_not_is_unauthenticated_and_the_service_is_not_called",
    ),
    _breaking(
        "an error has the status that its service gave it",
        "kafscale/rpc/errors.py",
        "    if isinstance(error, StatusError):\n        return error.code, _shortened(str(error))\n",
        "",
        _TOKEN + "test_a_status_of_its_own_arrives_as_it_is",
    ),
    _breaking(
        "a member that joins meanwhile keeps its offsets",
        "services/gateway/admin/offsets.py",
        "    if reply.error == _E.UNKNOWN_MEMBER_ID:\n",
        "    if reply.error:\n        return\n    if reply.error == _E.UNKNOWN_MEMBER_ID:\n",
        _GROUPS + "test_a_member_that_joins_meanwhile_keeps_its_offsets",
    ),
    _breaking(
        "a group with members keeps its offsets",
        "services/gateway/admin/offsets.py",
        'if found.members or found.state not in ("Empty", "Dead"):',
        "if False:",
        _GROUPS + "test_a_group_with_members_keeps_its_offsets",
    ),
    _breaking(
        "offsets are set within the log",
        "services/gateway/admin/offsets.py",
        "min(max(_target(request, told, at, ref), told.log_start), told.high_watermark)",
        "_target(request, told, at, ref)",
        _GROUPS + "test_offsets_are_set_within_the_log",
    ),
    _breaking(
        "what is only validated changes nothing",
        "services/gateway/admin/offsets.py",
        "    if not request.validate_only:\n",
        "    if True:\n",
        _GROUPS + "test_offsets_are_set_within_the_log",
    ),
    _breaking(
        "where one partition cannot tell its ends nothing is set",
        "services/gateway/admin/offsets.py",
        "        if told.error:\n",
        "        if False:\n",
        _GROUPS + "test_what_is_wrong_with_a_reset_changes_nothing",
    ),
    _breaking(
        "what was committed for a deleted topic is not shown",
        "services/gateway/admin/groups.py",
        "if offset.topic_id not in gone and offset.offset >= 0",
        "if offset.offset >= 0",
        _GROUPS + "test_what_was_committed_for_a_deleted_topic_is_not_shown",
    ),
    _breaking(
        "a lag that nobody tells is not 0",
        "services/gateway/admin/groups.py",
        "        if offset is not None and end != UNKNOWN:\n",
        "        if offset is not None:\n",
        _GROUPS + "test_a_lag_that_nobody_tells_is_not_0",
    ),
    _breaking(
        "who is not there owns nothing",
        "services/gateway/admin/cluster.py",
        "if found is not None and found.owner in storages:",
        "if found is not None:",
        _ADMIN + "test_the_processes_are_shown_with_their_health_and_what_each_has",
    ),
    _breaking(
        "what an owner does not tell stands with its partitions",
        "services/gateway/admin/logs.py",
        "        return Ends(error=refusal_text(refused, refused.detail))\n",
        "        return Ends(0, 0)\n",
        _ADMIN + "test_what_an_owner_does_not_tell_stands_with_its_partitions",
    ),
    _breaking(
        "an owner of an older release has not 0 segments",
        "services/gateway/admin/partitions.py",
        "UNKNOWN if size.bytes and not size.segments else size.segments",
        "size.segments",
        _ADMIN + "test_how_many_segments_there_are_is_not_known_of_an_owner_of_an_older_release",
    ),
    _breaking(
        "who has a partition by now is asked to store it",
        "services/gateway/storage_link.py",
        "self._looked_at([PartitionFlushed(partition=ref) for ref in partitions], reply.results)",
        "reply.results",
        _ADMIN + "test_who_has_a_partition_by_now_is_asked_to_store_it",
    ),
    _breaking(
        "who does not own a partition names its owner when it is to store it",
        "services/storage/service.py",
        "PartitionFlushed(status=one.status, detail=str(one), owner=one.owner)",
        "PartitionFlushed(status=one.status, detail=str(one))",
        _SIZES + "test_who_is_not_the_owner_names_it",
    ),
    _breaking(
        "an offline partition does not say that it is stored",
        "services/storage/service.py",
        "            if one.offline:\n                result.status,",
        "            if False:\n                result.status,",
        _WRONG + "test_pitfall_56_metadata_of_an_older_epoch_puts_the_partition_offline",
    ),
    _breaking(
        "a topic is altered wholly or not at all",
        "services/cli/admin/topic.py",
        "        server.ask(ALTER_CONFIGS, checked)\n",
        "",
        _CLI + "test_a_topic_is_altered_wholly_or_not_at_all",
    ),
    _breaking(
        "the next gateway is asked when one does not answer",
        "kafscale/rpc/admin.py",
        "        except StatusError as error:\n            foreign",
        "        except StatusError as error:\n            raise\n            foreign",
        _CLI + "test_the_first_gateway_that_answers_is_asked",
    ),
    _breaking(
        "a segment that nobody remembers is missed",
        "services/storage/segment_list.py",
        "if end < log.committed_end and (await run.reader.holding(log, end)).base_offset == end:",
        "if end < log.committed_end:",
        _SEGMENTS + "test_what_is_not_whole_is_found",
    ),
    _breaking(
        "a hole where a log begins hides nothing behind it",
        "services/storage/segment_list.py",
        "        return await run.reader.finder.oldest(log)\n",
        "        return None\n",
        _SEGMENTS + "test_a_hole_at_the_beginning_hides_nothing_behind_it",
    ),
    _breaking(
        "who may not be the owner any more tells of no hole",
        "services/storage/segment_list.py",
        "        if not run.membership.proven:\n",
        "        if False:\n",
        _SEGMENTS + "test_who_may_not_be_the_owner_any_more_tells_of_no_hole",
    ),
    _breaking(
        "a log that begins with a hole is looked at",
        "services/storage/segment_list.py",
        "        run.retention.look_at(partition)\n",
        "",
        _SEGMENTS + "test_a_hole_at_the_beginning_hides_nothing_behind_it",
    ),
    _breaking(
        "a partition that cannot be read hides no other",
        "services/cli/admin/segments.py",
        '                result["error"] = error.message\n',
        "                raise\n",
        "tests/unit/cli/test_admin_segments.py::test_a_partition_that_cannot_be_read_hides_no_other",
    ),
    _breaking(
        "a page without an answer is asked for again",
        "services/cli/admin/segments.py",
        "if error.exit_code != Exit.UNAVAILABLE or self._failures == len(_PAUSES):",
        "if True:",
        "tests/unit/cli/test_admin_segments.py::test_a_page_without_an_answer_is_asked_for_again",
    ),
    _breaking(
        "who interrupts verifying sees what is known",
        "services/cli/admin/segments.py",
        "    finally:\n        # It may",
        "    except ValueError:\n        # It may",
        "tests/unit/cli/test_admin_segments.py::test_who_interrupts_verifying_sees_what_is_known",
    ),
    _breaking(
        "few segments are verified at a time",
        "services/storage/segment_list.py",
        "            async with run.verify_turns:\n",
        "            if True:\n",
        _SEGMENTS + "test_few_segments_are_verified_at_a_time_and_none_is_kept_for_the_indexer",
    ),
    _breaking(
        "no segment is kept while the indexer is waited for",
        "services/storage/segment_list.py",
        "        faults = await _behind(run, log, *await _end_and_epoch(run, log, segment))\n",
        "        _kept = await run.reader.parsed(log, segment)\n"
        "        faults = await _behind(run, log, *await _end_and_epoch(run, log, segment))\n",
        _SEGMENTS + "test_few_segments_are_verified_at_a_time_and_none_is_kept_for_the_indexer",
    ),
    _breaking(
        "one reply has no more bytes than can be verified in its time",
        "services/storage/segment_list.py",
        "        if found and size > most_bytes:\n",
        "        if False:\n",
        _SEGMENTS + "test_one_reply_has_no_more_bytes_than_can_be_verified",
    ),
    _breaking(
        "a segment larger than a reply is verified too",
        "services/storage/segment_list.py",
        "        if found and size > most_bytes:\n",
        "        if size > most_bytes:\n",
        _SEGMENTS + "test_one_reply_has_no_more_bytes_than_can_be_verified",
    ),
    _breaking(
        "what a dead owner left is no part of the log",
        "services/storage/segment_list.py",
        "        except OfAnotherEpoch:\n            return\n",
        "",
        _SEGMENTS + "test_what_a_dead_owner_left_is_no_part_of_the_log",
    ),
    _breaking(
        "a store that does not answer is no damage, and not whole either",
        "services/storage/segment_list.py",
        "        raise failures[0]\n",
        "        pass\n",
        _SEGMENTS + "test_a_store_that_does_not_answer_is_no_damage",
    ),
    _breaking(
        "a topic is verified to its end",
        "services/cli/admin/segments.py",
        "        if request.start_offset >= page.high_watermark:\n            result[",
        "        if True:\n            result[",
        "tests/unit/cli/test_admin_segments.py::test_a_topic_is_verified_to_its_end",
    ),
    _breaking(
        "a command that failed in part does not end with 0",
        "services/cli/admin/cluster.py",
        "    if failed:\n",
        "    if False:\n",
        _CLI + "test_a_flush_that_fails_in_part_says_so",
    ),
    _breaking(
        "two drains at once leave somebody",
        "services/gateway/admin/drain.py",
        "                compares.append(Unchanged(stays.key, stays.mod_revision))\n",
        "                _ = stays\n",
        _DRAIN + "test_two_drains_at_once_leave_somebody",
    ),
    _breaking(
        "who stops already is given nothing again",
        "services/gateway/admin/drain.py",
        "            elif not member.draining:\n",
        "            elif not member.leaving:\n",
        _DRAIN + "test_who_is_not_there_or_has_nothing_to_give_is_refused",
    ),
    _breaking(
        "what is being taken over as a drain begins is waited for",
        "services/gateway/admin/drain.py",
        "named.update(item.key for item in states.items if names(item))\n",
        "_ = states\n",
        _DRAIN + "test_what_is_being_taken_over_as_the_drain_begins_is_waited_for",
    ),
    _breaking(
        "a shard that is given back and not taken yet is waited for",
        "services/gateway/admin/drain.py",
        "to is None or owners.get(key) != to.run_id for",
        "owners.get(key) == live.run_id for",
        _DRAIN + "test_a_coordinator_gives_its_shards",
    ),
    _breaking(
        "a shard on its way to who is drained is waited for",
        "services/gateway/admin/drain.py",
        "and given.run_id == live.run_id\n",
        "and False\n",
        _DRAIN + "test_a_coordinator_gives_its_shards",
    ),
    _breaking(
        "who is started anew is not taken for drained",
        "services/gateway/admin/drain.py",
        "each.address == live.address and each.run_id != live.run_id for each in view.placed",
        "each.run_id == live.run_id for each in view.placed",
        _DRAIN + "test_who_is_started_anew_is_not_taken_for_drained",
    ),
    _breaking(
        "a gateway that stops ends the streams of operators",
        "services/gateway/admin/service.py",
        "            await self._gateway.stopping.wait()\n",
        "            await trio.sleep_forever()\n",
        _DRAIN + "test_a_gateway_that_stops_ends_the_call_and_not_the_drain",
    ),
    _breaking(
        "a drain that is not over in time does not end with 0",
        "services/cli/admin/drain.py",
        "    if not in_time:\n",
        "    if False:\n",
        "tests/unit/cli/test_admin_drain.py::test_an_instance_is_drained_and_undrained",
    ),
    _breaking(
        "an index that is not right is written anew",
        "services/storage/segment_list.py",
        "    if rebuilt is None:\n",
        "    if True:\n",
        _SEGMENTS + "test_indexes_that_are_not_right_are_written_anew",
    ),
    _breaking(
        "an index that was right is not told as written",
        "services/indexer/service.py",
        "                return stored.body, False\n",
        "                return stored.body, True\n",
        "tests/unit/indexer/test_index.py::test_rebuild_leaves_a_right_index_alone_even_with_another_interval",
    ),
    _breaking(
        "a segment that is not whole is not described as whole",
        "services/cli/admin/segment.py",
        "    if found.faults:\n",
        "    if False:\n",
        "tests/unit/cli/test_admin_segments.py::test_a_segment_is_described",
    ),
    _breaking(
        "who takes changes too slowly keeps no more than so many",
        "services/gateway/admin/watch.py",
        "            self.scope.cancel()\n",
        "            return\n",
        _WATCH + "test_who_is_too_slow_is_told_so_and_keeps_nobody_waiting",
    ),
    _breaking(
        "owners of topics that are not known yet are told",
        "services/gateway/admin/watch.py",
        "            watcher.tell(self._owner(key, topic))\n",
        "            if key[0] in self._parts.catalog.view.by_id:\n"
        "                watcher.tell(self._owner(key, topic))\n",
        _WATCH + "test_owners_of_a_topic_that_the_catalog_does_not_know_are_told_by_its_name",
    ),
    _breaking(
        "no more watch than may",
        "services/gateway/admin/watch.py",
        "            self._watchers.remove(watcher)\n",
        "            _ = watcher\n",
        _WATCH + "test_no_more_watch_than_may",
    ),
    _breaking(
        "all watchers are told of health",
        "services/gateway/admin/watch.py",
        "        async with self._asking:\n",
        "        if self._asking.locked():\n            return\n        async with self._asking:\n",
        _WATCH + "test_the_next_watcher_looks_after_health_when_the_first_has_gone",
    ),
)
