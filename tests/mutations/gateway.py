"""A naive gateway and a naive Kafka wire."""

from tests.mutations.mutation import Mutation

_FETCH = "tests/unit/gateway/test_fetch.py::"
_SESSIONS = "tests/unit/gateway/test_fetch_sessions.py::"
_LINK = "tests/unit/gateway/test_storage_link.py::"
_LISTENER = "tests/unit/gateway/test_listener.py::"
_PRODUCE = "tests/unit/gateway/test_produce.py::"
_PROTOCOL = "tests/unit/gateway/test_protocol.py::"
_MESSAGES = "tests/java/test_messages.py::"
_TOPICS = "tests/unit/gateway/test_topics.py::"
_ROUTING = "tests/unit/gateway/test_routing.py::"
_BROKERS = "tests/unit/gateway/test_brokers.py::"
_MEMBERS = "tests/unit/metadata/test_members.py::"
_NODE_IDS = "tests/unit/metadata/test_node_ids.py::"
_CODEC = "tests/unit/kafka/test_codec.py::"
_CONNECTION = "tests/unit/kafka/test_connection.py::"

MUTATIONS = (
    # What was lost with its epoch is acked.
    Mutation(
        (1,),
        "services/gateway/commit_view.py",
        "        return MAY_BE_KEPT\n",
        "        return ErrorCode.none\n",
        _LINK + "test_pitfall_01_what_is_lost_is_acked_up_to_the_committed_end_only",
    ),
    # One request of a connection at a time.
    Mutation(
        (4,),
        "services/gateway/connection.py",
        "max_in_flight=environment.settings.max_in_flight,",
        "max_in_flight=1,",
        _PRODUCE + "test_pitfall_4_requests_of_one_connection_are_under_way_together_and_partitions_of_one_too",
    ),
    # Only the first batch of a record set is parsed.
    Mutation(
        (16,),
        "services/gateway/apis/produce.py",
        "                else:\n                    produce.add(result, known, records)\n",
        "                else:\n"
        '                    produce.add(result, known, records[: 12 + int.from_bytes(records[8:12], "big")])\n',
        _PRODUCE + "test_pitfall_16_every_batch_of_a_record_set_is_kept",
    ),
    # A batch over the limit is kept back.
    Mutation(
        (22,),
        "services/gateway/apis/fetch.py",
        "if not first and len(records) >",
        "if len(records) >",
        _FETCH + "test_pitfall_22_a_batch_over_the_limit_comes_whole",
    ),
    # A fetch that waits polls; partitions are asked for one after another; each has its own maximal wait.
    Mutation(
        (23,),
        "services/gateway/apis/fetch.py",
        "await waiter.event.wait()",
        "await trio.sleep(0.01)\n                    return self.positions",
        _FETCH + "test_pitfall_23_idle_partitions_cost_one_max_wait_together_and_storage_is_asked_once",
    ),
    Mutation(
        (23,),
        "services/gateway/apis/fetch.py",
        "await fetch.read(fetch.positions)",
        "for position in fetch.positions:\n            await fetch.read([position])",
        _FETCH + "test_pitfall_23_idle_partitions_cost_one_max_wait_together_and_storage_is_asked_once",
    ),
    Mutation(
        (23,),
        "services/gateway/apis/fetch.py",
        "with trio.move_on_at(self.deadline):",
        "with trio.move_on_after((self.deadline - trio.current_time()) * len(self.positions)):",
        _FETCH + "test_pitfall_23_idle_partitions_cost_one_max_wait_together_and_storage_is_asked_once",
    ),
    # An answer that a limit left short waits as if the client had caught up.
    Mutation(
        (25,),
        "services/gateway/apis/fetch.py",
        "return self.offset < self.committed_end",
        "return False",
        _FETCH + "test_pitfall_25_records_that_only_a_limit_keeps_back_end_the_waiting",
    ),
    # A timestamp gives the end.
    Mutation(
        (26,),
        "services/gateway/apis/list_offsets.py",
        "if asked.timestamp == _EARLIEST_LOCAL else asked.timestamp",
        "if asked.timestamp == _EARLIEST_LOCAL else _LATEST",
        _TOPICS + "test_pitfall_26_and_client_fact_7_offsets_of_every_kind",
    ),
    # min.bytes, max.bytes, the server's limit, partition.max.bytes and max.wait are ignored, each in turn.
    Mutation(
        (27,),
        "services/gateway/apis/fetch.py",
        "self.wanted = min(request.min_bytes, self.room)",
        "self.wanted = 1",
        _FETCH + "test_pitfall_27_a_fetch_waits_until_min_bytes_have_come_over_all_partitions",
    ),
    Mutation(
        (27,),
        "services/gateway/apis/fetch.py",
        "min(request.max_bytes, call.environment.settings.max_fetch_bytes)",
        "call.environment.settings.max_fetch_bytes",
        _FETCH + "test_pitfall_27_max_bytes_counts_over_all_partitions",
    ),
    Mutation(
        (27,),
        "services/gateway/apis/fetch.py",
        "min(request.max_bytes, call.environment.settings.max_fetch_bytes)",
        "request.max_bytes",
        _FETCH + "test_pitfall_27_the_servers_own_limit_holds_whatever_the_client_asks_for",
    ),
    Mutation(
        (27,),
        "services/gateway/apis/fetch.py",
        "max(partition.max_bytes, 1)",
        "self.room",
        _FETCH + "test_pitfall_27_partition_max_bytes_counts_for_each_partition",
    ),
    Mutation(
        (27,),
        "services/gateway/apis/fetch.py",
        "with trio.move_on_at(self.deadline):",
        "with trio.CancelScope():",
        _FETCH + "test_pitfall_27_max_wait_ends_a_fetch_that_finds_less_than_min_bytes",
    ),
    # What is not known is answered with error code 0, and so is what broke.
    Mutation(
        (36,),
        "services/gateway/connection.py",
        "raise ProtocolError(refusal(request.api_key, request.api_version))",
        "return request.slot.reply([bytes(2)])",
        _PROTOCOL + "test_pitfall_36_what_is_not_supported_closes_the_connection_and_is_never_answered_with_success",
    ),
    Mutation(
        (36,),
        "services/gateway/connection.py",
        "raise ProtocolError(refusal(request.api_key, request.api_version))",
        "return self._scope.cancel()",
        _PROTOCOL + "test_pitfall_36_an_api_that_is_not_supported_closes_the_connection_and_the_log_says_why",
    ),
    Mutation(
        (36,),
        "services/gateway/connection.py",
        "api.fail(call, ErrorCode.unknown_server_error)",
        "api.fail(call, ErrorCode.none)",
        _PROTOCOL + "test_pitfall_36_a_broken_handler_is_answered_with_an_error_for_everything_asked",
    ),
    # Writer and reader agree, and Kafka reads something else.
    Mutation(
        (37,),
        "kafscale/kafka/legacy.py",
        "ListOffsetsPartition(cursor.int32(), cursor.int64(), cursor.int32())",
        "ListOffsetsPartition(cursor.int32(), cursor.int32() + cursor.int32(), cursor.int32())",
        _MESSAGES + "test_pitfall_37_every_field_that_kafka_writes_is_read",
    ),
    # A version is advertised that is not there; null and empty lists mean the same; a header has tags that its version
    # does not have; a version lacks its throttle time.
    Mutation(
        (37,),
        "services/gateway/apis/metadata.py",
        "range(14)",
        "range(15)",
        _PROTOCOL + "test_pitfall_37_every_advertised_version_is_answered_in_full",
    ),
    Mutation(
        (37,),
        "services/gateway/apis/metadata.py",
        "if request.topics is None or (call.version == 0 and not request.topics):",
        "if not request.topics:",
        _TOPICS + "test_pitfall_37_all_and_no_topics_are_asked_for_as_each_version_does",
    ),
    Mutation(
        (37,),
        "kafscale/kafka/connection.py",
        "flexible and api_key != _API_VERSIONS",
        "flexible",
        _PROTOCOL + "test_pitfall_37_every_advertised_version_is_answered_in_full",
    ),
    Mutation(
        (37,),
        "kafscale/kafka/produce.py",
        "    if version >= 1:\n        parts.append(",
        "    if version >= 2:\n        parts.append(",
        _PROTOCOL + "test_pitfall_37_every_advertised_version_is_answered_in_full",
    ),
    # Topics are made whatever the client says, or whatever the setting says.
    Mutation(
        (38,),
        "services/gateway/apis/metadata.py",
        'environment.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)',
        "environment.settings.auto_create_topics",
        _TOPICS + "test_pitfall_38_a_topic_is_made_only_when_client_and_setting_both_allow_it",
    ),
    Mutation(
        (38,),
        "services/gateway/apis/metadata.py",
        'environment.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)',
        'getattr(request, "allow_auto_topic_creation", True)',
        _TOPICS + "test_pitfall_38_a_topic_is_made_only_when_client_and_setting_both_allow_it",
    ),
    # Frames and arrays are as large as they claim to be.
    Mutation(
        (39,),
        "kafscale/kafka/connection.py",
        "if not 0 <= size <= self._max_request_bytes:",
        "if size < 0:",
        _CONNECTION + "test_pitfall_39_a_frame_over_the_limit_is_refused_before_it_is_kept",
    ),
    Mutation(
        (39,),
        "kafscale/kafka/connection.py",
        "if not 0 <= size <= self._max_request_bytes:",
        "if size < 0:",
        _LISTENER + "test_pitfall_39_garbage_closes_its_connection_and_no_other",
    ),
    Mutation(
        (39,),
        "kafscale/kafka/schema_reader.py",
        'raise CorruptData("an array is longer than its request")',
        "pass",
        _CODEC + "test_pitfall_39_an_array_that_claims_to_be_huge_is_refused_at_once",
    ),
    # A bug takes its connection down, or the whole server.
    Mutation(
        (36, 39),
        "services/gateway/connection.py",
        "            await work\n        except Exception as error:",
        "            await work\n        except OSError as error:",
        _PROTOCOL
        + "test_pitfall_36_and_39_a_handler_that_breaks_later_is_answered_with_an_error_and_spares_the_others",
    ),
    Mutation(
        (39,),
        "services/gateway/listener.py",
        "except Exception:",
        "except OSError:",
        _LISTENER + "test_pitfall_39_a_bug_in_serving_one_connection_closes_no_other",
    ),
    # Batches of any size are taken, of today's format and of old ones.
    Mutation(
        (40,),
        "services/gateway/validation.py",
        "if header.size > config.max_message_bytes:",
        "if False:",
        _PRODUCE + "test_pitfall_40_a_batch_over_max_message_bytes_is_refused_and_one_of_that_size_taken",
    ),
    Mutation(
        (40,),
        "services/gateway/validation.py",
        "if len(batch) > config.max_message_bytes:",
        "if False:",
        _PRODUCE + "test_pitfall_40_old_messages_over_max_message_bytes_are_refused",
    ),
    # A stop waits for idle connections, for parked fetches, for what never ends; or for nothing at all.
    Mutation(
        (41,),
        "services/gateway/listener.py",
        "environment.stopping = True",
        "environment.stopping, self._connections = True, set()",
        _LISTENER + "test_pitfall_41_idle_connections_leave_at_once_when_the_gateway_stops",
    ),
    Mutation(
        (41,),
        "services/gateway/listener.py",
        "link.wake_all()",
        "pass",
        _LISTENER + "test_pitfall_41_waiting_fetches_are_answered_when_the_gateway_stops",
    ),
    Mutation(
        (41,),
        "services/gateway/listener.py",
        "connections.cancel_scope.deadline =",
        "_ =",
        _LISTENER + "test_pitfall_41_what_is_not_answered_by_the_deadline_is_given_up",
    ),
    Mutation(
        (41,),
        "services/gateway/connection.py",
        "if self._kafka.in_flight == 0:",
        "if True:",
        _LISTENER + "test_pitfall_41_busy_connections_get_their_replies_when_the_gateway_stops",
    ),
    # An Append without answer is sent again.
    Mutation(
        (48,),
        "services/gateway/storage_link.py",
        'session.give_up(f"an Append has no answer: {error}")',
        "await self._client.append(message, timeout=self._timeout)",
        _LINK + "test_pitfall_48_an_append_without_answer_is_never_sent_again_and_starts_a_new_stream",
    ),
    # An end acks whatever lies below it, of whichever epoch; a topic made anew is the old one.
    Mutation(
        (51,),
        "services/gateway/commit_view.py",
        "        if append.epoch > self.epoch:\n",
        "        if append.wait_for <= self.committed_end:\n"
        "            return ErrorCode.none\n"
        "        if append.epoch > self.epoch:\n",
        _LINK + "test_pitfall_51_an_acks_all_reply_waits_for_its_own_topic_id_and_epoch",
    ),
    # A member that comes is given nothing by its weight: all partitions are dealt out anew, by their number.
    Mutation(
        (44,),
        "kafscale/metadata/members.py",
        "    return max(members, key=lambda live: weight(live.address, place), default=None)",
        "    there = list(members)\n"
        '    return there[int.from_bytes(weight("", place), "big") % len(there)] if there else None',
        _MEMBERS + "test_pitfall_44_a_member_that_comes_is_given_its_share_and_nothing_else_moves",
    ),
    # Clients are told of the gateway that they asked, and of no other; of others until their lease is over.
    Mutation(
        (44,),
        "services/gateway/brokers.py",
        "for live in sorted(view, key=lambda live: live.since):",
        "for live in ():",
        _BROKERS + "test_pitfall_44_gateways_that_come_and_go_become_known_to_clients",
    ),
    Mutation(
        (44,),
        "services/gateway/registration.py",
        "await self._membership.tell_leaving()",
        "await trio.lowlevel.checkpoint()",
        _BROKERS + "test_pitfall_44_gateways_that_come_and_go_become_known_to_clients",
    ),
    # Batches go to the new owner while others before them are still to be refused by the former one.
    Mutation(
        (59,),
        "services/gateway/routing.py",
        "if other is not link and other.carries(key):",
        "if False:",
        _ROUTING + "test_pitfall_59_what_is_on_its_way_to_a_former_owner_is_not_overtaken_at_the_new_one",
    ),
    # What clients say of leader epochs is not passed on.
    Mutation(
        (60,),
        "services/gateway/apis/fetch.py",
        "checked_epoch(partition.current_leader_epoch)",
        "-1",
        _ROUTING + "test_pitfall_60_a_consumer_that_is_ahead_of_its_owner_is_not_told_that_its_offset_is_out_of_range",
    ),
    # A process that has gone is asked for as long as its lease lasts.
    Mutation(
        (62,),
        "services/gateway/routing.py",
        "present = {member.run_id for member in view.present}",
        "present = {member.run_id for member in view}",
        _ROUTING + "test_pitfall_62_the_older_run_of_an_address_is_not_asked",
    ),
    # A parked fetch waits for news of the owner that it had.
    Mutation(
        (65,),
        "services/gateway/apis/fetch.py",
        "return router.link(self.key) is not self.link",
        "return False",
        _ROUTING + "test_pitfall_65_a_commit_of_the_new_owner_before_the_fetch_has_moved_is_not_missed",
    ),
    Mutation(
        (),
        "services/gateway/owners.py",
        "    await _ask_all(router, moved, ask, grace, begun=0 < len(moved) < len(questions))\n",
        "",
        _ROUTING + "test_who_a_refusal_names_is_asked_before_a_reader_is_answered",
        rule="readers are answered with a refusal that names the owner",
    ),
    Mutation(
        (),
        "services/gateway/routing.py",
        "        self._hints.pop(key, None)\n",
        "",
        _ROUTING + "test_news_of_the_ownership_map_outdates_what_a_refusal_named",
        rule="what a refusal named is believed for good",
    ),
    Mutation(
        (),
        "services/gateway/routing.py",
        "            link.end()\n",
        "",
        _ROUTING + "test_a_vanished_member_fails_what_is_held_and_refuses_what_is_queued",
        rule="what waits for a member that has gone waits for its timeout",
    ),
    Mutation(
        (),
        "services/gateway/storage_link.py",
        "        if self._session is None or not self._session.waits:\n",
        "        if True:\n",
        _LINK + "test_what_an_instance_that_leaves_has_committed_is_acked_though_its_leaving_is_known_first",
        rule="news of an instance's leaving overtakes its last commits",
    ),
    Mutation(
        (),
        "services/gateway/storage_link.py",
        "        self._life.deadline = trio.current_time() + _LAST_NEWS_SECONDS\n",
        "",
        _LINK + "test_an_instance_that_has_gone_and_says_nothing_more_is_not_waited_for_long",
        rule="an instance that has gone is waited for as long as producers wait",
    ),
    Mutation(
        (),
        "kafscale/metadata/node_ids.py",
        "        return bool(await self._write(claim.node_id, claim.revision))",
        "        return True",
        _NODE_IDS + "test_two_that_come_up_at_the_same_time_never_both_keep_an_id",
        rule="a node id counts before its gateway is seen to be live",
    ),
    Mutation(
        (),
        "services/gateway/fetch_sessions.py",
        "                    session.partitions[key] = session.partitions.pop(key)\n",
        "                    pass\n",
        _SESSIONS + "test_a_session_reads_in_turn_what_one_answer_cannot_hold",
        rule="a session's first partitions starve the others",
    ),
    Mutation(
        (),
        "services/gateway/fetch_sessions.py",
        "        if session.epoch != self._epoch:\n",
        "        if False:\n",
        _SESSIONS + "test_a_request_that_the_next_one_overtakes_is_told_so",
        rule="an answer that the next request overtook counts as told",
    ),
    Mutation(
        (),
        "services/gateway/fetch_sessions.py",
        "-1 if result.error_code else result.high_watermark",
        "result.high_watermark",
        _SESSIONS + "test_a_partition_is_told_when_its_error_is_over_even_if_nothing_else_changed",
        rule="a session's reader is not told that an error is over",
    ),
    Mutation(
        (),
        "services/gateway/fetch_sessions.py",
        "        if not self._room_for(0):\n",
        "        if False:\n",
        _SESSIONS + "test_partitions_are_bounded_over_all_sessions",
        rule="a session grows without bound",
    ),
)
