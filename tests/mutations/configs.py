"""Naive configs and partitions of topics."""

from tests.mutations.mutation import Mutation

_CHANGES = "tests/unit/metadata/test_topic_changes.py::"
_CONFIGS = "tests/unit/gateway/test_configs.py::"
_PARTITIONS = "tests/unit/gateway/test_partitions.py::"
_PROTOCOL = "tests/unit/gateway/test_protocol.py::"
_SIZES = "tests/unit/storage/test_sizes.py::"
_TOPICS = "tests/unit/gateway/test_topics.py::"
_STORAGE = "tests/unit/storage/test_configs.py::"


def _breaking(rule: str, path: str, old: str, new: str, test: str) -> Mutation:
    return Mutation((), path, old, new, test, rule)


MUTATIONS = (
    _breaking(
        "tools do not list partitions as under min ISR because of a config that is ignored",
        "services/gateway/configs.py",
        "return self.fixed or self.synonyms[0].value",
        "return self.synonyms[0].value",
        _CONFIGS + "test_min_insync_replicas_keeps_no_producer_out_and_is_shown_as_the_one_replica_that_counts",
    ),
    _breaking(
        "Kafka's internal topics are never created automatically",
        "services/gateway/apis/metadata.py",
        "is_topic_name(name) and name not in _NEVER_CREATED and name not in view.by_name",
        "is_topic_name(name) and name not in view.by_name",
        _TOPICS + "test_kafkas_internal_topics_are_never_created_automatically_but_may_be_by_hand",
    ),
    _breaking(
        "partitions are not assigned to brokers that do not exist",
        "services/gateway/assignments.py",
        "if broker not in known:",
        "if broker < 0:",
        _PARTITIONS + "test_what_would_be_no_more_partitions_is_refused",
    ),
    _breaking(
        "a client that seeks with epoch 0 stays at its position",
        "services/storage/partition.py",
        "unknown = i == 0 and epoch == IMPORTED",
        "unknown = False",
        "tests/unit/storage/test_epoch_ends.py::test_epoch_0_ends_with_the_log_unless_its_first_records_were_imported",
    ),
    # DescribeConfigs answers empty; CreatePartitions answers and does nothing.
    Mutation(
        (40,),
        "services/gateway/apis/describe_configs.py",
        "asked = (config for config in configs if not names or config.name in names)",
        "asked = (config for config in configs if config.name in names)",
        _CONFIGS + "test_pitfall_40_a_topic_is_shown_with_all_configs_or_those_asked_for",
    ),
    Mutation(
        (40,),
        "services/gateway/apis/create_partitions.py",
        "[] if request.validate_only else plans",
        "[]",
        _PARTITIONS + "test_pitfall_40_new_partitions_are_shown_and_written",
    ),
    Mutation(
        (40,),
        "services/gateway/topics.py",
        "if view.by_id.get(key) is known.info",
        "if key in view.by_id",
        _CONFIGS + "test_pitfall_40_a_changed_max_message_bytes_counts_for_the_next_batch",
    ),
    _breaking(
        "a topic never gets fewer partitions, whoever races",
        "kafscale/metadata/topics.py",
        "result = await self._store.txn([Unchanged(key, found.mod_revision)], [Put(key, changed.value())])",
        "result = await self._store.txn([], [Put(key, changed.value())])",
        _CHANGES + "test_two_that_grow_a_topic_never_make_it_smaller",
    ),
    _breaking(
        "partitions that were made are no error when the answer was lost",
        "kafscale/metadata/topics.py",
        "return found if unsure and found.partitions >= partitions else found.grown(partitions)",
        "return found.grown(partitions)",
        _CHANGES + "test_growing_repeats_safely_whichever_answer_is_missing",
    ),
    _breaking(
        "a topic that is being deleted is not changed",
        "kafscale/metadata/topics.py",
        "if found is None or not found.live or found.id != topic_id:",
        "if found is None or found.id != topic_id:",
        _CHANGES + "test_a_topic_that_is_deleted_is_not_changed_any_more",
    ),
    _breaking(
        "configs are changed where they are stored, not as this gateway saw them last",
        "services/gateway/resources.py",
        "lambda configs: _validated(change, configs)",
        "lambda configs: _validated(change, topic.configs)",
        _CONFIGS + "test_configs_that_another_gateway_changes_meanwhile_are_kept",
    ),
    _breaking(
        "validate_only changes nothing",
        "services/gateway/resources.py",
        "if topic is not None and dry:",
        "if topic is not None and dry is None:",
        _PROTOCOL + "test_pitfall_37_every_advertised_version_is_answered_in_full",
    ),
    _breaking(
        "an answer has no more partitions than the gateway gives",
        "services/gateway/apis/describe_topic_partitions.py",
        "min(request.response_partition_limit, _MOST_PARTITIONS)",
        "request.response_partition_limit",
        _PARTITIONS + "test_an_answer_never_has_more_partitions_than_the_gateway_gives",
    ),
    _breaking(
        "a config that changes counts for what is buffered",
        "services/storage/run.py",
        "        self._timers.clear(partition)\n        self._flush_in_time(partition)",
        "        pass",
        _STORAGE + "test_a_shorter_flush_ms_counts_for_what_waits_already",
    ),
    _breaking(
        "configs that change during a take-over count",
        "services/storage/run.py",
        "self._configs.apply(partition)",
        "pass",
        _STORAGE + "test_configs_that_change_while_the_partition_is_taken_over_count",
    ),
    _breaking(
        "segment.bytes counts for partitions that are owned already",
        "services/storage/owned.py",
        "partition.buffer.segment_bytes = self._segment_bytes(config)",
        "pass",
        _STORAGE + "test_segment_bytes_counts_from_the_next_append_on",
    ),
    _breaking(
        "a segment fits the buffer several times, whatever the topic says",
        "services/storage/owned.py",
        "return min(config.segment_bytes, self._settings.partition_buffer_bytes // 4)",
        "return config.segment_bytes",
        _STORAGE + "test_segments_are_never_larger_than_a_quarter_of_the_buffer_whatever_the_topic_says",
    ),
    _breaking(
        "Kafka's default of flush.ms does not mean for ever",
        "kafscale/topics/configs.py",
        "if flush_ms > LONGEST_FLUSH_MS:",
        "if flush_ms < 0:",
        _STORAGE + "test_kafkas_own_flush_ms_does_not_let_producers_wait_for_ever",
    ),
    _breaking(
        "asking for sizes takes over nothing that is empty",
        "services/storage/sizes.py",
        "if run.owned.may_have(ref) and not await run.owned.has_records(ref):",
        "if not run.owned.may_have(ref):",
        _SIZES + "test_partitions_without_records_are_not_taken_over_for_it",
    ),
    _breaking(
        "a change of one topic costs nothing for the others",
        "services/storage/configs.py",
        "if known is not topic and (known is None or known.configs != topic.configs):",
        "if known is None or known.live:",
        _STORAGE + "test_a_change_of_one_topic_costs_nothing_for_the_partitions_of_others",
    ),
    _breaking(
        "sizes are looked for together",
        "services/storage/sizes.py",
        "range(min(at_a_time, len(results)))",
        "range(1)",
        _SIZES + "test_partitions_are_looked_at_together_and_what_is_not_known_in_time_spares_the_others",
    ),
    _breaking(
        "a size that nobody told is not 0",
        "services/gateway/apis/describe_log_dirs.py",
        "_UNKNOWN = -1",
        "_UNKNOWN = 0",
        _PARTITIONS + "test_a_size_that_no_owner_tells_is_not_made_up",
    ),
    _breaking(
        "retention removes nothing from a topic that is compacted only",
        "kafscale/topics/configs.py",
        'retention_ms=int(value("retention.ms")) if deletes else -1,',
        'retention_ms=int(value("retention.ms")),',
        "tests/unit/storage/test_compacted.py::"
        "test_compacted_topics_lose_records_by_retention_only_with_delete_and_their_bytes_are_shown",
    ),
    _breaking(
        "an empty cleanup policy is not the cluster's",
        "kafscale/topics/configs.py",
        "found = configs.get(name, defaults.get(name))",
        "found = configs.get(name) or defaults.get(name)",
        "tests/unit/topics/test_configs.py::"
        "test_a_cleanup_policy_is_kept_as_it_was_set_and_says_what_retention_may_remove",
    ),
    _breaking(
        "old messages need keys in a compacted topic too",
        "services/gateway/validation.py",
        "        return with_keys(batch, partition, max_bytes=max_bytes)",
        "        return batch",
        "tests/unit/gateway/test_compacted.py::test_old_messages_without_a_key_are_refused",
    ),
    _breaking(
        "compressed batches are looked through for keys",
        "kafscale/records/record.py",
        "        if key_length < 0:\n            found.append(place)",
        "        if key_length < 0 and not header.codec:\n            found.append(place)",
        "tests/unit/gateway/test_compacted.py::test_a_batch_with_a_record_without_key_is_refused_as_a_whole",
    ),
    _breaking(
        "sinks write no records without keys to a compacted topic",
        "services/storage/staging.py",
        "            if keyless:",
        "            if keyless and not batches:",
        "tests/unit/storage/test_sinks.py::test_records_without_a_key_are_not_staged_for_a_compacted_topic",
    ),
)
