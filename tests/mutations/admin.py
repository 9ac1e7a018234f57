"""A naive Admin service, and a naive command."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_ADMIN = "tests/unit/gateway/test_admin.py::"
_ADMIN_DRAIN = "tests/unit/gateway/test_admin_drain.py::"
_ADMIN_GROUPS = "tests/unit/gateway/test_admin_groups.py::"
_ADMIN_SEGMENTS = "tests/unit/cli/test_admin_segments.py::"
_ADMIN_WATCH = "tests/unit/gateway/test_admin_watch.py::"
_CLI_ADMIN = "tests/unit/cli/test_admin.py::"
_CLI_ADMIN_DRAIN = "tests/unit/cli/test_admin_drain.py::"
_INDEX = "tests/unit/indexer/test_index.py::"
_SEGMENT_LIST = "tests/unit/storage/test_segment_list.py::"
_SIZES = "tests/unit/storage/test_sizes.py::"
_TOKEN = "tests/contract/rpc/test_token.py::"
_WRONG_METADATA = "tests/unit/storage/test_wrong_metadata.py::"

MUTATIONS = (
    Mutation(
        "no call is answered without the token",
        Change(
            "kafscale.rpc.calls",
            "CallHandler._answer",
            "if served.token and served.guard is None and not _has_token(served.token, context):",
            "if False and not _has_token(served.token, context):",
        ),
        _TOKEN + "test_a_call_without_the_token_is_unauthenticated_and_does_not_reach_the_service",
    ),
    Mutation(
        "the whole token is compared",
        Change("kafscale.rpc.calls", "_has_token", "hmac.compare_digest(rest, token)", "rest.startswith(token)"),
        _TOKEN + "test_a_call_without_the_token_is_unauthenticated_and_does_not_reach_the_service",
    ),
    Mutation(
        "an error keeps the status that its service set",
        Change(
            "kafscale.rpc.errors",
            "status_of",
            ("    if isinstance(error, StatusError):\n        return error.code, _shortened(str(error))\n"),
            "",
        ),
        _TOKEN + "test_a_custom_status_arrives_unchanged",
    ),
    Mutation(
        "a member that joins meanwhile keeps its offsets",
        Change(
            "services.gateway.admin.offsets",
            "_commit",
            "    if reply.error == _E.UNKNOWN_MEMBER_ID:\n",
            "    if reply.error:\n        return\n    if reply.error == _E.UNKNOWN_MEMBER_ID:\n",
        ),
        _ADMIN_GROUPS + "test_a_member_that_joins_meanwhile_keeps_its_offsets",
    ),
    Mutation(
        "a group with members keeps its offsets",
        Change(
            "services.gateway.admin.offsets",
            "_check_empty",
            'if found.members or found.state not in ("Empty", "Dead"):',
            "if False:",
        ),
        _ADMIN_GROUPS + "test_a_group_with_members_keeps_its_offsets",
    ),
    Mutation(
        "offsets are limited to the log",
        Change(
            "services.gateway.admin.offsets",
            "_planned",
            "min(max(_target(request, found, at, ref), found.log_start), found.high_watermark)",
            "_target(request, found, at, ref)",
        ),
        _ADMIN_GROUPS + "test_offsets_are_reset_within_the_log",
    ),
    Mutation(
        "validate_only changes nothing",
        Change(
            "services.gateway.admin.offsets", "reset_offsets", "    if not request.validate_only:\n", "    if True:\n"
        ),
        _ADMIN_GROUPS + "test_offsets_are_reset_within_the_log",
    ),
    Mutation(
        "nothing is set if one partition cannot report its ends",
        Change("services.gateway.admin.offsets", "_planned", "        if found.error:\n", "        if False:\n"),
        _ADMIN_GROUPS + "test_an_invalid_reset_changes_nothing",
    ),
    Mutation(
        "offsets committed for a deleted topic are not listed",
        Change(
            "services.gateway.admin.consumer_groups",
            "committed",
            "if offset.topic_id not in gone and offset.offset >= 0",
            "if offset.offset >= 0",
        ),
        _ADMIN_GROUPS + "test_offsets_of_deleted_topics_are_not_listed",
    ),
    Mutation(
        "an unknown lag is not 0",
        Change(
            "services.gateway.admin.consumer_groups",
            "_add_offsets",
            "        if offset is not None and end != UNKNOWN:\n",
            "        if offset is not None:\n",
        ),
        _ADMIN_GROUPS + "test_an_unknown_lag_is_not_0",
    ),
    Mutation(
        "an instance that has gone owns nothing",
        Change(
            "services.gateway.admin.cluster",
            "ClusterReport._count",
            "if found is not None and found.owner in storages:",
            "if found is not None:",
        ),
        _ADMIN + "test_cluster_status_lists_processes_with_health_and_owned_partitions",
    ),
    Mutation(
        "an owner's error is reported with its partitions",
        Change(
            "services.gateway.admin.logs",
            "_ends",
            "        return Ends(error=refusal_text(refused, refused.detail))\n",
            "        return Ends(0, 0)\n",
        ),
        _ADMIN + "test_partitions_without_an_answer_are_listed_with_an_error",
    ),
    Mutation(
        "an owner of an older release does not report 0 segments",
        Change(
            "services.gateway.admin.partitions",
            "list_partitions",
            "UNKNOWN if size.bytes and not size.segments else size.segments",
            "size.segments",
        ),
        _ADMIN + "test_an_older_owner_reports_an_unknown_number_of_segments",
    ),
    Mutation(
        "the current owner of a partition is asked to store it",
        Change(
            "services.gateway.owners.link",
            "StorageLink.flush",
            "self._looked_at([PartitionFlushed(partition=ref) for ref in partitions], reply.results)",
            "reply.results",
        ),
        _ADMIN + "test_a_flush_follows_a_partition_to_its_new_owner",
    ),
    Mutation(
        "an instance that does not own a partition names its owner when it is asked to flush",
        Change(
            "services.storage.methods.flush",
            "flush",
            "PartitionFlushed(status=one.status, detail=str(one), owner=one.owner)",
            "PartitionFlushed(status=one.status, detail=str(one))",
        ),
        _SIZES + "test_a_size_request_to_another_instance_names_the_owner",
    ),
    Mutation(
        "an offline partition is not reported as stored",
        Change(
            "services.storage.methods.flush",
            "flush",
            "        if one.offline:\n            result.status,",
            "        if False:\n            result.status,",
        ),
        _WRONG_METADATA + "test_metadata_of_an_older_epoch_puts_the_partition_offline",
    ),
    Mutation(
        "a topic is altered completely or not at all",
        Change("kafscale_tools.cli.admin.topic", "alter", "        server.ask(ALTER_CONFIGS, checked)\n", ""),
        _CLI_ADMIN + "test_a_topic_is_altered_completely_or_not_at_all",
    ),
    Mutation(
        "the next gateway is asked when one does not answer",
        Change(
            "kafscale.rpc.admin",
            "serving_gateway",
            "        except StatusError as error:\n            foreign",
            "        except StatusError as error:\n            raise\n            foreign",
        ),
        _CLI_ADMIN + "test_the_first_gateway_that_answers_is_used",
    ),
    Mutation(
        "a missing segment is found although no cache remembers it",
        Change(
            "services.storage.methods.segments",
            "_behind",
            "if end < log.segments_end and (await run.reader.holding(log, end)).base_offset == end:",
            "if end < log.segments_end:",
        ),
        _SEGMENT_LIST + "test_damaged_and_missing_objects_are_found",
    ),
    Mutation(
        "a hole at the start of a log hides no segment after it",
        Change(
            "services.storage.methods.segments",
            "_listed",
            "        return await run.reader.finder.oldest(log)\n",
            "        return None\n",
        ),
        _SEGMENT_LIST + "test_missing_first_segments_do_not_hide_later_ones",
    ),
    Mutation(
        "an instance that may have lost ownership reports no hole",
        Change(
            "services.storage.methods.segments",
            "_page",
            "        if not run.membership.proven:\n",
            "        if False:\n",
        ),
        _SEGMENT_LIST + "test_an_owner_without_a_proven_lease_reports_no_missing_segments",
    ),
    Mutation(
        "a log that begins with a hole is verified",
        Change("services.storage.methods.segments", "_page", "        run.retention.look_at(partition)\n", ""),
        _SEGMENT_LIST + "test_missing_first_segments_do_not_hide_later_ones",
    ),
    Mutation(
        "an unreadable partition hides no other",
        Change(
            "kafscale_tools.cli.admin.segments",
            "read_all",
            '                result["error"] = error.message\n',
            "                raise\n",
        ),
        _ADMIN_SEGMENTS + "test_an_unreadable_partition_does_not_hide_others",
    ),
    Mutation(
        "an unanswered page is requested again",
        Change(
            "kafscale_tools.cli.admin.segments",
            "_Pages.ask",
            "if error.exit_code != Exit.UNAVAILABLE or self._failures == len(_PAUSES):",
            "if True:",
        ),
        _ADMIN_SEGMENTS + "test_an_unanswered_page_is_requested_again",
    ),
    Mutation(
        "an interrupted verification prints its findings",
        Change(
            "kafscale_tools.cli.admin.segments",
            "read_all",
            "    finally:\n        # It may",
            "    except ValueError:\n        # It may",
        ),
        _ADMIN_SEGMENTS + "test_an_interrupted_verification_prints_its_findings",
    ),
    Mutation(
        "few segments are verified at a time",
        Change(
            "services.storage.methods.segments",
            "_verify",
            "            async with run.verify_turns:\n",
            "            if True:\n",
        ),
        _SEGMENT_LIST + "test_few_segments_are_verified_at_a_time_and_none_stays_in_memory",
    ),
    Mutation(
        "no segment is held while the indexer is awaited",
        Change(
            "services.storage.methods.segments",
            "_faults",
            "        end, epoch = await _end_and_epoch(run, log, segment)\n",
            (
                "        _kept = await run.reader.parsed(log, segment)\n"
                "        end, epoch = await _end_and_epoch(run, log, segment)\n"
            ),
        ),
        _SEGMENT_LIST + "test_few_segments_are_verified_at_a_time_and_none_stays_in_memory",
    ),
    Mutation(
        "one reply verifies no more bytes than its time allows",
        Change(
            "services.storage.methods.segments",
            "_page",
            "        if found and size > max_bytes:\n",
            "        if False:\n",
        ),
        _SEGMENT_LIST + "test_a_verifying_reply_is_bounded_in_bytes",
    ),
    Mutation(
        "a segment larger than the limit of a reply is verified too",
        Change(
            "services.storage.methods.segments",
            "_page",
            "        if found and size > max_bytes:\n",
            "        if size > max_bytes:\n",
        ),
        _SEGMENT_LIST + "test_a_verifying_reply_is_bounded_in_bytes",
    ),
    Mutation(
        "segments left by a dead owner are not part of the log",
        Change(
            "services.storage.methods.segments", "_verify", "        except OfAnotherEpoch:\n            return\n", ""
        ),
        _SEGMENT_LIST + "test_a_dead_owners_segment_is_not_listed",
    ),
    Mutation(
        "an unavailable store is neither damage nor success",
        Change("services.storage.methods.segments", "_verify", "        raise failures[0]\n", "        pass\n"),
        _SEGMENT_LIST + "test_an_unavailable_store_is_not_reported_as_damage",
    ),
    Mutation(
        "a topic is verified to its end",
        Change(
            "kafscale_tools.cli.admin.segments",
            "_read",
            "        if request.start_offset >= page.high_watermark:\n            result[",
            "        if True:\n            result[",
        ),
        _ADMIN_SEGMENTS + "test_a_topic_is_verified_to_its_end",
    ),
    Mutation(
        "a partly failed command does not end with status 0",
        Change("kafscale_tools.cli.admin.cluster", "flush", "    if failed:\n", "    if False:\n"),
        _CLI_ADMIN + "test_a_partly_failed_flush_is_reported",
    ),
    Mutation(
        "two concurrent drains leave an instance that is not drained",
        Change(
            "services.gateway.admin.drain",
            "Drains._mark",
            "                compares.append(Unchanged(stays.key, stays.mod_revision))\n",
            "                _ = stays\n",
        ),
        _ADMIN_DRAIN + "test_concurrent_drains_leave_one_instance",
    ),
    Mutation(
        "an instance that is stopping is assigned nothing again",
        Change(
            "services.gateway.admin.drain",
            "Drains._mark",
            "            elif not member.draining:\n",
            "            elif not member.leaving:\n",
        ),
        _ADMIN_DRAIN + "test_drains_of_unknown_or_unsuitable_instances_are_refused",
    ),
    Mutation(
        "a drain waits for partitions that are being taken over when it begins",
        Change(
            "services.gateway.admin.drain",
            "Drains._partitions",
            "named.update(item.key for item in states.items if names(item))\n",
            "_ = states\n",
        ),
        _ADMIN_DRAIN + "test_a_drain_waits_for_take_overs_that_began_before_it",
    ),
    Mutation(
        "a drain waits for a shard that is released but not yet acquired",
        Change(
            "services.gateway.admin.drain",
            "Drains._shards",
            "to is None or owners.get(key) != to.run_id for",
            "owners.get(key) == live.run_id for",
        ),
        _ADMIN_DRAIN + "test_a_drained_coordinator_hands_over_its_shards",
    ),
    Mutation(
        "a drain waits for a shard that is on its way to the drained instance",
        Change("services.gateway.admin.drain", "Drains._shards", "and owner.run_id == live.run_id\n", "and False\n"),
        _ADMIN_DRAIN + "test_a_drained_coordinator_hands_over_its_shards",
    ),
    Mutation(
        "a restarted instance does not count as drained",
        Change(
            "services.gateway.admin.drain",
            "_check",
            "each.address == live.address and each.run_id != live.run_id for each in view.placed",
            "each.run_id == live.run_id for each in view.placed",
        ),
        _ADMIN_DRAIN + "test_a_restarted_instance_is_not_regarded_as_drained",
    ),
    Mutation(
        "a gateway that stops ends the streams of operators",
        Change(
            "services.gateway.admin.service",
            "AdminService._while_serving",
            "            await self._gateway.stopping.wait()\n",
            "            await trio.sleep_forever()\n",
        ),
        _ADMIN_DRAIN + "test_a_stopping_gateway_ends_the_call_but_not_the_drain",
    ),
    Mutation(
        "a drain that times out does not end with status 0",
        Change("kafscale_tools.cli.admin.drain", "drain", "    if not in_time:\n", "    if False:\n"),
        _CLI_ADMIN_DRAIN + "test_an_instance_is_drained_and_the_drain_is_cancelled",
    ),
    Mutation(
        "a wrong index is written again",
        Change("services.storage.methods.segments", "_faults", "    if rebuilt is None:\n", "    if True:\n"),
        _SEGMENT_LIST + "test_missing_and_wrong_indexes_are_rebuilt",
    ),
    Mutation(
        "a correct index is not reported as rewritten",
        Change(
            "services.indexer.service",
            "IndexerService._rebuild",
            "                return stored.body, False\n",
            "                return stored.body, True\n",
        ),
        _INDEX + "test_rebuild_keeps_a_correct_index_even_with_another_interval",
    ),
    Mutation(
        "a damaged segment is not described as intact",
        Change("kafscale_tools.cli.admin.segment", "describe", "    if found.faults:\n", "    if False:\n"),
        _ADMIN_SEGMENTS + "test_a_segment_is_described",
    ),
    Mutation(
        "the changes waiting for a slow watcher are limited",
        Change(
            "services.gateway.admin.watch",
            "_Watcher.notify",
            "            self.scope.cancel()\n",
            "            return\n",
        ),
        _ADMIN_WATCH + "test_a_slow_watcher_is_ended_and_does_not_delay_others",
    ),
    Mutation(
        "owners of topics that are not known yet are reported",
        Change(
            "services.gateway.admin.watch",
            "Watches.watch",
            "            watcher.notify(self._owner(key, topic))\n",
            (
                "            if key[0] in self._deps.catalog.view.by_id:\n"
                "                watcher.notify(self._owner(key, topic))\n"
            ),
        ),
        _ADMIN_WATCH + "test_owners_of_unknown_topics_are_reported_with_the_topics_name",
    ),
    Mutation(
        "the number of watchers is limited",
        Change(
            "services.gateway.admin.watch",
            "Watches.watch",
            "            self._watchers.remove(watcher)\n",
            "            _ = watcher\n",
        ),
        _ADMIN_WATCH + "test_the_number_of_watchers_is_limited",
    ),
    Mutation(
        "all watchers get health changes",
        Change(
            "services.gateway.admin.watch",
            "Watches._poll_health",
            "        async with self._polling:\n",
            ("        if self._polling.locked():\n            return\n        async with self._polling:\n"),
        ),
        _ADMIN_WATCH + "test_health_checks_continue_when_the_first_watcher_leaves",
    ),
)
