"""A naive gateway and a naive Kafka wire."""

from tests.mutations.mutation import Mutation
from tests.support.change import Change

_BROKERS = "tests/unit/gateway/test_brokers.py::"
_CODEC = "tests/unit/kafka/test_codec.py::"
_CONNECTION = "tests/unit/kafka/test_connection.py::"
_FETCH = "tests/unit/gateway/test_fetch.py::"
_FETCH_SESSIONS = "tests/unit/gateway/test_fetch_sessions.py::"
_LISTENER = "tests/unit/gateway/test_listener.py::"
_MEMBERS = "tests/unit/metadata/test_members.py::"
_MESSAGES = "tests/java/test_messages.py::"
_NODE_IDS = "tests/unit/metadata/test_node_ids.py::"
_PRODUCE = "tests/unit/gateway/test_produce.py::"
_PROTOCOL = "tests/unit/gateway/test_protocol.py::"
_REFUSED = "tests/unit/gateway/test_refused_batches.py::"
_ROUTING = "tests/unit/gateway/test_routing.py::"
_TOPICS = "tests/unit/gateway/test_topics.py::"

MUTATIONS = (
    Mutation(
        "later batches of a producer pass before the refused one comes again",
        Change(
            "services.gateway.owners.refused",
            "RefusedBatches.is_behind",
            "return _is_before(refused, batch)",
            "return False",
        ),
        _REFUSED + "test_a_later_batch_does_not_reach_a_new_owner_before_the_refused_one",
    ),
    Mutation(
        "the last refused batch of a producer is remembered instead of the first",
        Change("services.gateway.owners.refused", "RefusedBatches.note", "not _is_before(batch, known[0])", "False"),
        _REFUSED + "test_batches_pass_again_when_the_first_refused_one_has_come",
    ),
    Mutation(
        "one request of a connection at a time",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection.__init__",
            "max_in_flight=environment.settings.max_in_flight,",
            "max_in_flight=1,",
        ),
        _PRODUCE + "test_requests_of_a_connection_and_their_partitions_are_in_flight_together",
    ),
    Mutation(
        "only the first batch of a record set is parsed",
        Change(
            "services.gateway.apis.produce",
            "_check",
            "                else:\n                    produce.add(result, known, records, header)\n",
            (
                "                else:\n"
                "                    produce.add(result, known, records[: 12 + "
                'int.from_bytes(records[8:12], "big")], header)\n'
            ),
        ),
        _PRODUCE + "test_every_batch_of_a_record_set_is_stored",
    ),
    Mutation(
        "a first batch over the limit is not returned",
        Change("services.gateway.apis.fetch", "_Position.take", "if not first and len(records) >", "if len(records) >"),
        _FETCH + "test_a_batch_over_the_limit_is_returned_whole",
    ),
    Mutation(
        ("a waiting fetch polls; partitions are read one after another; each has its own maximal wait"),
        Change(
            "services.gateway.apis.fetch",
            "_Fetch.wait_for_more",
            "await waiter.event.wait()",
            "await trio.sleep(0.01)\n                    return self.positions",
        ),
        _FETCH + "test_idle_partitions_wait_together_and_storage_gets_one_request",
    ),
    Mutation(
        "idle partitions share one maximal wait and one request to storage",
        Change(
            "services.gateway.apis.fetch",
            "_serve",
            "await fetch.read(fetch.positions)",
            "for position in fetch.positions:\n            await fetch.read([position])",
        ),
        _FETCH + "test_idle_partitions_wait_together_and_storage_gets_one_request",
    ),
    Mutation(
        "idle partitions share one maximal wait and one request to storage",
        Change(
            "services.gateway.apis.fetch",
            "_Fetch.wait_for_more",
            "with trio.move_on_at(self.deadline):",
            "with trio.move_on_after((self.deadline - trio.current_time()) * len(self.positions)):",
        ),
        _FETCH + "test_idle_partitions_wait_together_and_storage_gets_one_request",
    ),
    Mutation(
        "an answer cut by a limit waits as if the client had caught up",
        Change(
            "services.gateway.apis.fetch",
            "_Position.cut_short",
            "return self.offset < self.high_watermark",
            "return False",
        ),
        _FETCH + "test_a_fetch_does_not_wait_if_a_limit_holds_back_records",
    ),
    Mutation(
        "a lookup by timestamp returns the end",
        Change(
            "services.gateway.apis.list_offsets",
            "_queries",
            "if asked.timestamp == _EARLIEST_LOCAL else asked.timestamp",
            "if asked.timestamp == _EARLIEST_LOCAL else _LATEST",
        ),
        _TOPICS + "test_list_offsets_answers_every_special_timestamp",
    ),
    Mutation(
        ("min.bytes, max.bytes, the server's limit, partition.max.bytes and max.wait are ignored, one at a time"),
        Change(
            "services.gateway.apis.fetch",
            "_Fetch.__init__",
            "self.min_bytes = min(request.min_bytes, self.room)",
            "self.min_bytes = 1",
        ),
        _FETCH + "test_a_fetch_waits_for_min_bytes_of_all_partitions_together",
    ),
    Mutation(
        "max bytes applies to all partitions together",
        Change(
            "services.gateway.apis.fetch",
            "_Fetch.__init__",
            "min(request.max_bytes, call.environment.settings.max_fetch_bytes)",
            "call.environment.settings.max_fetch_bytes",
        ),
        _FETCH + "test_max_bytes_applies_to_all_partitions_together",
    ),
    Mutation(
        "the server's limit applies whatever the client requests",
        Change(
            "services.gateway.apis.fetch",
            "_Fetch.__init__",
            "min(request.max_bytes, call.environment.settings.max_fetch_bytes)",
            "request.max_bytes",
        ),
        _FETCH + "test_the_servers_limit_overrides_the_clients",
    ),
    Mutation(
        "partition max bytes applies to each partition",
        Change("services.gateway.apis.fetch", "_Fetch._place", "max(partition.max_bytes, 1)", "self.room"),
        _FETCH + "test_partition_max_bytes_applies_per_partition",
    ),
    Mutation(
        "max wait ends a fetch that finds fewer than min bytes",
        Change(
            "services.gateway.apis.fetch",
            "_Fetch.wait_for_more",
            "with trio.move_on_at(self.deadline):",
            "with trio.CancelScope():",
        ),
        _FETCH + "test_max_wait_ends_a_fetch_with_less_than_min_bytes",
    ),
    Mutation(
        "unknown requests and internal errors are answered with error code 0",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection._start",
            "raise ProtocolError(refusal(request.api_key, request.api_version))",
            "return request.slot.reply([bytes(2)])",
        ),
        _PROTOCOL + "test_an_unsupported_request_closes_the_connection",
    ),
    Mutation(
        "unknown requests and internal errors are answered with error code 0",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection._start",
            "raise ProtocolError(refusal(request.api_key, request.api_version))",
            "return self._scope.cancel()",
        ),
        _PROTOCOL + "test_an_unsupported_api_closes_the_connection_and_the_reason_is_logged",
    ),
    Mutation(
        "a failing handler is answered with an error for every part of the request",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection._failed",
            "api.fail(call, ErrorCode.unknown_server_error)",
            "api.fail(call, ErrorCode.none)",
        ),
        _PROTOCOL + "test_a_failing_handler_is_answered_with_an_error_for_every_item",
    ),
    Mutation(
        "writer and reader match each other but not Kafka",
        Change(
            "kafscale.kafka.legacy",
            "decode_list_offsets",
            "ListOffsetsPartition(cursor.int32(), cursor.int64(), cursor.int32())",
            "ListOffsetsPartition(cursor.int32(), cursor.int32() + cursor.int32(), cursor.int32())",
        ),
        _MESSAGES + "test_every_field_that_kafka_writes_is_read",
    ),
    Mutation(
        "requests for all topics and for none are encoded as each version defines",
        Change(
            "services.gateway.apis.metadata",
            "handle",
            "if request.topics is None or (call.version == 0 and not request.topics):",
            "if not request.topics:",
        ),
        _TOPICS + "test_all_and_no_topics_are_requested_as_in_each_version",
    ),
    Mutation(
        "every advertised version is answered in full",
        Change(
            "kafscale.kafka.connection",
            "KafkaConnection.next_request",
            "flexible and api_key != _API_VERSIONS",
            "flexible",
        ),
        _PROTOCOL + "test_every_advertised_version_is_answered_completely",
    ),
    Mutation(
        "every advertised version is answered in full",
        Change(
            "kafscale.kafka.produce",
            "encode_response",
            "    if version >= 1:\n        parts.append(",
            "    if version >= 2:\n        parts.append(",
        ),
        _PROTOCOL + "test_every_advertised_version_is_answered_completely",
    ),
    Mutation(
        "topics are created whatever the client requests or the setting allows",
        Change(
            "services.gateway.apis.metadata",
            "_missing_topics",
            ('environment.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)'),
            "environment.settings.auto_create_topics",
        ),
        _TOPICS + "test_a_topic_is_created_automatically_only_if_client_and_setting_allow_it",
    ),
    Mutation(
        "topics are created whatever the client requests or the setting allows",
        Change(
            "services.gateway.apis.metadata",
            "_missing_topics",
            ('environment.settings.auto_create_topics and getattr(request, "allow_auto_topic_creation", True)'),
            'getattr(request, "allow_auto_topic_creation", True)',
        ),
        _TOPICS + "test_a_topic_is_created_automatically_only_if_client_and_setting_allow_it",
    ),
    Mutation(
        "sizes of frames and arrays are not checked",
        Change(
            "kafscale.kafka.connection",
            "KafkaConnection._frame_size",
            "if not 0 <= size <= self.max_request_bytes:",
            "if size < 0:",
        ),
        _CONNECTION + "test_a_frame_over_the_limit_is_refused_before_it_is_buffered",
    ),
    Mutation(
        "sizes of frames and arrays are not checked",
        Change(
            "kafscale.kafka.connection",
            "KafkaConnection._frame_size",
            "if not 0 <= size <= self.max_request_bytes:",
            "if size < 0:",
        ),
        _LISTENER + "test_garbage_closes_only_its_own_connection",
    ),
    Mutation(
        "an array with an impossible size is refused immediately",
        Change(
            "kafscale.kafka.schema_reader",
            "_array_reader",
            "check_length(length, len(body) - position)",
            "pass",
        ),
        _CODEC + "test_an_array_that_claims_to_be_huge_is_refused_at_once",
    ),
    Mutation(
        "a bug stops the whole server instead of one connection",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection._work",
            "            await work\n        except Exception as error:",
            "            await work\n        except OSError as error:",
        ),
        _PROTOCOL + "test_a_handler_that_fails_later_does_not_affect_other_requests",
    ),
    Mutation(
        "a bug in one connection closes no other",
        Change("services.gateway.clients.listener", "Acceptor._serve", "except Exception:", "except OSError:"),
        _LISTENER + "test_a_defect_in_serving_one_connection_closes_no_other",
    ),
    Mutation(
        "batches of any size are accepted, in the current format and in old ones",
        Change("services.gateway.validation", "check_records", "if size > config.max_message_bytes:", "if False:"),
        _PRODUCE + "test_a_batch_may_be_as_large_as_max_message_bytes_but_not_larger",
    ),
    Mutation(
        "old messages over max message bytes are refused",
        Change(
            "services.gateway.validation", "convert_legacy", "if len(batch) > config.max_message_bytes:", "if False:"
        ),
        _PRODUCE + "test_old_messages_over_max_message_bytes_are_refused",
    ),
    Mutation(
        ("a stop waits for idle connections, parked fetches, or requests without end; or for nothing"),
        Change(
            "services.gateway.clients.listener",
            "Acceptor.run",
            "environment.stopping = True",
            "environment.stopping, self._connections = True, set()",
        ),
        _LISTENER + "test_idle_connections_are_closed_at_once_when_the_gateway_stops",
    ),
    Mutation(
        "waiting fetches are answered when the gateway stops",
        Change("services.gateway.clients.listener", "Acceptor.run", "link.wake_all()", "pass"),
        _LISTENER + "test_waiting_fetches_are_answered_when_the_gateway_stops",
    ),
    Mutation(
        "requests without an answer at the deadline are abandoned",
        Change("services.gateway.clients.listener", "Acceptor.run", "connections.cancel_scope.deadline =", "_ ="),
        _LISTENER + "test_requests_without_a_reply_at_the_deadline_are_abandoned",
    ),
    Mutation(
        "busy connections get their replies when the gateway stops",
        Change(
            "services.gateway.clients.connection",
            "ClientConnection.leave",
            "if self._kafka.in_flight == 0:",
            "if True:",
        ),
        _LISTENER + "test_busy_connections_get_their_replies_when_the_gateway_stops",
    ),
    Mutation(
        "a new member redistributes all partitions",
        Change(
            "kafscale.metadata.members",
            "heaviest",
            "    return max(members, key=lambda live: weight(live.address, place), default=None)",
            (
                "    there = list(members)\n"
                '    return there[int.from_bytes(weight("", place), "big") % len(there)] if there else None'
            ),
        ),
        _MEMBERS + "test_a_member_that_joins_is_assigned_its_share_and_nothing_else_moves",
    ),
    Mutation(
        "Metadata lists only the requested gateway, or others until their leases expire",
        Change(
            "services.gateway.brokers",
            "Brokers._listed",
            "for live in sorted(view, key=lambda live: live.since):",
            "for live in ():",
        ),
        _BROKERS + "test_clients_learn_of_new_and_removed_gateways",
    ),
    Mutation(
        "clients learn of gateways that come and go",
        Change(
            "services.gateway.registration",
            "Registration.announce_leaving",
            "await self._membership.tell_leaving()",
            "await trio.lowlevel.checkpoint()",
        ),
        _BROKERS + "test_clients_learn_of_new_and_removed_gateways",
    ),
    Mutation(
        "leader epochs in requests are not passed on",
        Change("services.gateway.apis.fetch", "_Fetch._place", "checked_epoch(partition.current_leader_epoch)", "-1"),
        _ROUTING + "test_a_consumer_ahead_of_the_owners_epoch_does_not_get_out_of_range",
    ),
    Mutation(
        "a parked fetch waits for news from the former owner",
        Change(
            "services.gateway.apis.fetch",
            "_Position.may_have_more",
            "return router.link(self.key) is not self.link",
            "return False",
        ),
        _ROUTING + "test_a_commit_of_the_new_owner_before_a_fetch_moves_is_not_missed",
    ),
    Mutation(
        "a node id is used before its gateway is known to be live",
        Change(
            "kafscale.metadata.node_ids",
            "NodeIds.confirm",
            "        return bool(await self._write(claim.node_id, claim.revision))",
            "        return True",
        ),
        _NODE_IDS + "test_two_gateways_that_start_at_the_same_time_never_both_keep_an_id",
    ),
    Mutation(
        "the first partitions of a session starve the others",
        Change(
            "services.gateway.fetch_sessions",
            "_Continuing.answer",
            "                    session.partitions[key] = session.partitions.pop(key)\n",
            "                    pass\n",
        ),
        _FETCH_SESSIONS + "test_a_session_rotates_partitions_that_do_not_fit_into_one_reply",
    ),
    Mutation(
        "an answer that the next request overtook counts as delivered",
        Change(
            "services.gateway.fetch_sessions",
            "_Continuing.answer",
            "        if session.epoch != self._epoch:\n",
            "        if False:\n",
        ),
        _FETCH_SESSIONS + "test_a_request_overtaken_by_the_next_one_gets_an_error",
    ),
    Mutation(
        "the reader of a session does not learn that an error has ended",
        Change(
            "services.gateway.fetch_sessions",
            "_Kept.is_news",
            "-1 if result.error_code else result.high_watermark",
            "result.high_watermark",
        ),
        _FETCH_SESSIONS + "test_a_partition_is_returned_once_after_its_error_ends",
    ),
    Mutation(
        "a session grows without limit",
        Change(
            "services.gateway.fetch_sessions",
            "FetchSessions.visit",
            "        if not self._room_for(0):\n",
            "        if False:\n",
        ),
        _FETCH_SESSIONS + "test_the_number_of_partitions_in_all_sessions_is_bounded",
    ),
)
